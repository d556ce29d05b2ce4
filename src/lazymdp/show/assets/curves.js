// The curves, drawn by uPlot.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const top_ = LAST ? breakpoints[LAST - 1] : 1;
const LOG = LAST > 1 && top_ / breakpoints[0] > 10;
const LOW = LOG ? breakpoints[0] / 1.4 : 0;
const HIGH = LOG ? top_ * 1.25 : top_ * 1.1;

/** The value is linear between breakpoints, hence curved on a logarithmic axis: it needs points between them. */
function valueCurve() {
  const part = (i) => (LOG ? LOW * (HIGH / LOW) ** (i / 200) : LOW + (HIGH - LOW) * (i / 200));
  const x = [...breakpoints, ...Array.from({ length: 201 }, (_, i) => part(i))].sort((a, b) => a - b);
  return [x, x.map((eta) => startValues[segmentOf(eta)] - eta * startCounts[segmentOf(eta)])];
}

const stairs = (heights) => [[LOW, ...breakpoints, HIGH], [...heights, heights[LAST]]];
const onPrice = { x: () => now.eta, log: LOG, low: LOW, high: HIGH, axis: "price \u03b7", pick: (x) => moveTo(x) };

function buildCharts() {
  const order = Array.from(startCounts.keys()).sort((a, b) => startCounts[a] - startCounts[b]);
  const span = startCounts[0] || 1;
  addChart({ ...onPrice, title: "Return", points: stairs(startValues), ink: "--line", stepped: true,
    y: () => startValues[now.segment] });
  addChart({ ...onPrice, title: "Expected controls", points: stairs(startCounts), ink: "--control", stepped: true,
    y: () => startCounts[now.segment] });
  addChart({ ...onPrice, title: "Value, price included", points: valueCurve(), ink: "--line",
    y: () => startValues[now.segment] - now.eta * startCounts[now.segment] });
  addChart({ title: "Return against controls", points: [order.map((i) => startCounts[i]), order.map((i) => startValues[i])],
    ink: "--line", dots: LAST < 200, line: false, low: -0.03 * span, high: 1.03 * span, axis: "expected controls",
    x: () => startCounts[now.segment], y: () => startValues[now.segment],
    pick: (x) => moveTo(insideOf(startCounts.reduce((best, count, i) =>
      (Math.abs(count - x) < Math.abs(startCounts[best] - x) ? i : best), 0))) });
}

function addChart({ title, points, ink, stepped, dots, line: upright = true, log, low, high, axis, x, y, pick }) {
  const reading = make("output", { class: "muted" });
  const holder = make("div", { class: "plot", role: "img", "aria-label": `${title} against ${axis}` });
  byId("charts").append(make("figure", {}, make("figcaption", {}, title, " ", reading), holder));
  /** On a logarithmic axis, 1, 2 and 5 of each power of ten have labels where these fit, otherwise few powers of ten. */
  const round = (u, splits) => {
    const room = u.bbox.width / devicePixelRatio / Math.log10(high / low); // pixels for a factor of ten
    const isRound = (v) => {
      const power = Math.floor(Math.log10(v * 1.0001));
      const leading = Number((v / 10 ** power).toPrecision(6));
      return room >= 100 ? [1, 2, 5].includes(leading) : leading === 1 && power % Math.ceil(40 / room) === 0;
    };
    return splits.map((v) => (!log || isRound(v) ? v : null));
  };
  const style = { stroke: () => color("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false },
    grid: { stroke: () => color("--rule"), width: 1, filter: round } };
  const labels = (u, splits) => splits.map((v) => (v === null ? "" : number(v, 3)));
  const plot = new uPlot({
    width: holder.clientWidth, height: holder.clientHeight, legend: { show: false }, padding: [8, 10, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, distr: log ? 3 : 1, range: () => [low, high] } },
    axes: [
      { ...style, values: labels, filter: round, size: 24, space: 34, label: axis, labelSize: 16, labelFont: style.font },
      { ...style, values: labels, grid: { ...style.grid, filter: (u, splits) => splits }, size: 48, space: 28 },
    ],
    series: [{}, { stroke: () => color(ink), width: 2, points: { show: Boolean(dots), size: 4, fill: () => color(ink) },
      ...(stepped && { paths: uPlot.paths.stepped({ align: 1 }) }) }],
  }, points, holder);

  const line = make("div", { class: "now-line" });
  const dot = make("div", { class: "now-dot" });
  plot.over.append(...(upright ? [line, dot] : [dot]));
  const mark = () => {
    const left = plot.valToPos(Math.min(Math.max(x(), low), high), "x");
    line.style.left = dot.style.left = `${left}px`;
    dot.style.top = `${plot.valToPos(y(), "y")}px`;
    reading.textContent = level(y());
  };
  const follow = (event) => {
    const box = plot.over.getBoundingClientRect();
    pick(plot.posToVal(Math.min(Math.max(event.clientX - box.left, 0), box.width), "x"));
  };
  plot.over.addEventListener("pointerdown", (event) => { plot.over.setPointerCapture(event.pointerId); follow(event); });
  plot.over.addEventListener("pointermove", (event) => { if (event.buttons & 1) follow(event); });
  new ResizeObserver(() => {
    if (holder.clientWidth) plot.setSize({ width: holder.clientWidth, height: holder.clientHeight });
    mark();
  }).observe(holder);
  charts.push({ mark, redraw: () => plot.redraw() });
}
