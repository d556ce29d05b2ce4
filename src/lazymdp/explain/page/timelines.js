// The timelines of one episode: lazy-gap, value, reward and control over the steps, one plot each, with one playhead.
"use strict";

const page = {
  make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children); // strings become text, never markup
    return element;
  },

  number(x, digits = 3) {
    if (x === null || Number.isNaN(x)) return "\u2013";
    if (x === 0 || !Number.isFinite(x)) return String(x);
    const size = Math.abs(x);
    if (size >= 1e7 || size < 1e-4) return x.toExponential(digits - 1);
    return String(Number(x.toPrecision(size >= 10 ** digits ? Math.ceil(Math.log10(size) + 1e-9) : digits)));
  },

  color: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),

  axis(more) {
    const splits = (u, values) => values.map((v) => page.number(v));
    return { stroke: () => page.color("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: () => page.color("--rule"), width: 1 }, values: splits, ...more };
  },

  /** Draws a plot at the size of its holder, and again when the size changes. */
  plot(holder, options, points) {
    const size = () => ({ width: Math.max(holder.clientWidth, 1), height: holder.clientHeight });
    const plot = new uPlot({ ...size(), legend: { show: false }, ...options }, points, holder);
    new ResizeObserver(() => { if (holder.clientWidth) plot.setSize(size()); }).observe(holder);
    return plot;
  },
};

/**
 * Shows the timelines in `holder`. `pick(step)` is called when a step is clicked.
 * Returns `show(episode)`, `mark(step)`, `zoom(factor)`, `redraw()`.
 */
function timelines(holder, eta, pick) {
  const make = page.make;
  const ROWS = [
    { key: "gap", title: eta === null ? "Lazy-gap" : `Lazy-gap, with the price \u03b7 = ${page.number(eta)} (dashed)`, height: 138, ink: "--control" },
    { key: "value", title: "Value", height: 98, ink: "--line" },
    { key: "reward", title: "Reward", height: 80, ink: "--line", bars: true },
    { key: "control", title: "Control", height: 46, ink: "--control", bars: true },
  ];
  const STEPS = [1, 10, 100, 1000, 10000, 100000].flatMap((unit) => [unit, 2 * unit, 5 * unit]); // between labels
  let plots = [];
  let episode = null;
  let step = 0;
  let [low, high] = [-0.5, 0.5]; // the steps in view

  function show(next) {
    episode = next;
    plots.forEach((plot) => plot.destroy());
    [low, high] = [-0.5, episode.length - 0.5];
    const steps = Array.from({ length: episode.length }, (_, t) => t);
    holder.replaceChildren();
    const known = ROWS.filter(({ key }) => episode[key].some(Number.isFinite)); // an agent may have no values
    plots = known.map((row) => build(row, steps));
  }

  function build({ key, title, height, ink, bars }, steps) {
    const last = key === "control";
    const box = make("div", { class: "plot", role: "img", "aria-label": `${title} over the steps of the episode` });
    box.style.height = `${height}px`;
    holder.append(make("figure", { class: "timeline" }, make("figcaption", {}, title), box));
    const values = Array.from(episode[key], (v) => (Number.isFinite(v) ? v : null));
    const plot = page.plot(box, {
      padding: [6, 8, last ? 0 : 7, 0],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 5 } },
      scales: { x: { time: false, range: () => [low, high] }, y: { range: (u, from, to) => heights(key, from, to) } },
      axes: [
        page.axis({ show: last, size: 22, space: 60, incrs: STEPS }),
        page.axis({ size: 48, space: 26, ...(last && { values: (u, splits) => splits.map(() => ""), grid: { show: false } }) }),
      ],
      series: [{}, {
        stroke: () => page.color(ink), width: bars ? 0 : 1.5, points: { show: false },
        ...(bars && { fill: () => page.color(ink), paths: uPlot.paths.bars({ size: [1, 1000, 1] }) }),
      }],
      hooks: { draw: key === "gap" && eta !== null ? [drawPrice] : [], setSelect: [zoomToSelection] },
    }, [steps, values]);
    plot.over.append(plot.nowLine = make("div", { class: "now-line" }));
    listen(plot, key === "gap" ? values : null);
    plot.over.addEventListener("dblclick", () => zoom(Infinity));
    return plot;
  }

  function heights(key, from, to) {
    if (key === "control") return [0, 1];
    if (from === null) return [0, 1];
    if (key !== "value") [from, to] = [Math.min(from, 0), Math.max(to, 0)];
    if (key === "gap" && eta !== null) to = Math.max(to, eta);
    const room = 0.08 * (to - from || Math.abs(to) || 1);
    return [from === 0 ? 0 : from - room, to + room];
  }

  function drawPrice(plot) {
    const y = plot.valToPos(eta, "y", true);
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = page.color("--ink");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  /** A click goes to its step; on the lazy-gap, to the highest peak within 8 pixels. */
  function listen(plot, peaks) {
    let from = null;
    const at = (x) => Math.round(Math.min(Math.max(plot.posToVal(x, "x"), 0), episode.length - 1));
    plot.over.addEventListener("pointerdown", (event) => { from = event.clientX; });
    plot.over.addEventListener("click", (event) => {
      if (from !== null && Math.abs(event.clientX - from) > 4) return; // a drag zooms
      const x = event.clientX - plot.over.getBoundingClientRect().left;
      let found = at(x);
      if (peaks) for (let t = at(x - 8); t <= at(x + 8); t++) if ((peaks[t] ?? -Infinity) > (peaks[found] ?? -Infinity)) found = t;
      pick(found);
    });
  }

  function zoomToSelection(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    view(from, to);
  }

  /** Shows a range of steps, at least five of them and none outside the episode. */
  function view(from, to) {
    const size = Math.min(Math.max(to - from, 5), episode.length);
    low = Math.min(Math.max((from + to - size) / 2, -0.5), episode.length - 0.5 - size);
    high = low + size;
    plots.forEach((plot) => plot.setScale("x", { min: low, max: high }));
    mark(step);
  }

  function zoom(factor) {
    const half = Math.min(0.5 * factor * (high - low), episode.length);
    const middle = step >= low && step <= high ? step : (low + high) / 2;
    view(middle - half, middle + half);
  }

  function mark(at) {
    step = at;
    const size = high - low;
    if (step < low || step > high) { // a zoomed view follows the playhead
      low = Math.min(Math.max(step - 0.1 * size, -0.5), episode.length - 0.5 - size);
      high = low + size;
      plots.forEach((plot) => plot.setScale("x", { min: low, max: high }));
    }
    for (const plot of plots) plot.nowLine.style.left = `${(100 * (step - low)) / size}%`;
  }

  return { show, mark, zoom, redraw: () => plots.forEach((plot) => plot.redraw(false)) };
}
