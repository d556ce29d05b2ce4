// The page of a report: for each recording, a playback in which video, timelines and moments show the same step.
// Strings from outside (names of actions) are inserted through textContent only, so that they cannot become markup.
"use strict";
(() => {
  const { make, number, color } = page;
  const TYPES = { f4: Float32Array, u1: Uint8Array, i4: Int32Array };
  const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const unpacked = ({ type, base64 }) => new TYPES[type](bytes(base64).buffer); // the page assumes a little-endian machine
  const players = [];
  let active = null; // the player that the keys move

  // ---- Playback ----------------------------------------------------------------------------------------------------

  function player(data) {
    const article = document.getElementById(`agent-${data.key}`);
    const find = (selector) => article.querySelector(selector);
    const video = find("video");
    const curves = timelines(find(".timelines"), data.eta, (step) => { activate(); go(step); });
    const readouts = Object.fromEntries([...article.querySelectorAll("[data-show]")].map((each) => [each.dataset.show, each]));
    let episode = null;
    let step = 0;
    let playing = false;
    let clock = 0; // seconds into the episode, when no video gives the time
    let before = 0; // time of the last animation frame, in milliseconds

    readouts.state.parentElement.hidden = !data.stateNames;
    const activate = () => { active = self; };
    const speed = () => Number(find(".speed").value);
    const inVideo = () => step < episode.covered;

    function open(index, at = 0) {
      pause();
      const source = data.episodes[index];
      const columns = ["gap", "value", "reward", "control", "action", ...(data.stateNames ? ["state"] : [])];
      const arrays = Object.fromEntries(columns.map((name) => [name, unpacked(source[name])]));
      const earned = new Float64Array(arrays.reward.length); // sum of the rewards before each step
      for (let t = 1; t < earned.length; t++) earned[t] = earned[t - 1] + arrays.reward[t - 1];
      episode = { ...source, ...arrays, earned, index, length: arrays.gap.length };
      find(".episode").value = index;
      find(".scrub").max = episode.length - 1;
      find(".readout").style.setProperty("--widest", `${2 * String(episode.length - 1).length + 3}ch`); // "61 of 65"
      find(".screen").hidden = !data.episodes.some(({ covered }) => covered > 0);
      if (video.src) URL.revokeObjectURL(video.src);
      video.removeAttribute("src");
      if (episode.covered) {
        const file = document.getElementById(`video-${data.key}-${episode.number}`).textContent;
        video.src = URL.createObjectURL(new Blob([bytes(file)], { type: "video/mp4" }));
      }
      curves.show(episode);
      go(at);
    }

    /** Moves to a step: the video, the playhead and the numbers. */
    function go(to, fromVideo = false) {
      step = Math.min(Math.max(Math.round(to), 0), episode.length - 1);
      if (!fromVideo) {
        clock = step / data.fps;
        if (inVideo()) video.currentTime = (step + 0.5) / data.fps; // the middle of the frame
      }
      curves.mark(step);
      show();
    }

    function show() {
      const control = episode.control[step] === 1;
      const name = data.actionNames[episode.action[step]];
      const texts = {
        choice: control ? `in control: ${name}` : `lazy, the default policy: ${name}`, step: `${step} of ${episode.length - 1}`,
        gap: number(episode.gap[step]), value: number(episode.value[step]), reward: number(episode.reward[step]),
        return: number(episode.earned[step]), state: data.stateNames ? data.stateNames[episode.state[step]] : "",
      };
      for (const [key, text] of Object.entries(texts)) readouts[key].textContent = text;
      find(".readout .swatch").className = `swatch ${control ? "control" : "lazy"}`;
      find(".scrub").value = step;
      find(".scrub").setAttribute("aria-valuetext", `step ${step}, ${texts.choice}`);
      video.hidden = !inVideo();
      find(".no-video").hidden = inVideo();
      find(".no-video").textContent = episode.covered ? `The video stops at step ${episode.covered}.` : "This episode has no video on this page.";
      for (const moment of article.querySelectorAll(".moment")) {
        const here = Number(moment.dataset.episode) === episode.number && Number(moment.dataset.step) === step;
        moment.setAttribute("aria-current", here);
      }
      if (!playing) find(".live").textContent = `step ${step}, ${texts.state && `${texts.state}, `}${texts.choice}, lazy-gap ${texts.gap}`;
      article.dataset.step = step;
    }

    function play() {
      if (step === episode.length - 1) go(0);
      playing = true;
      activate();
      before = performance.now();
      video.playbackRate = speed();
      if (inVideo()) video.play().catch(() => {}); // a browser may refuse; then the clock below moves
      requestAnimationFrame(tick);
      label();
    }

    function pause() {
      const moved = playing;
      playing = false;
      video.pause();
      label();
      if (moved) go(step); // the video may be a frame ahead
      else if (episode) show();
    }

    /** Follows the video, or a clock where there is none. */
    function tick(now) {
      if (!playing) return;
      const seconds = (speed() * (now - before)) / 1000;
      before = now;
      const byVideo = inVideo() && !video.ended && !video.paused;
      clock = byVideo ? video.currentTime : clock + seconds;
      const next = Math.floor(clock * data.fps + 1e-3);
      if (next !== step && !video.seeking) go(next, true);
      if (next >= episode.length - 1) pause();
      else requestAnimationFrame(tick);
    }

    function label() {
      find(".play").setAttribute("aria-label", playing ? "Pause" : "Play");
      find(".play").textContent = playing ? "\u275a\u275a" : "\u25b6\ufe0e";
    }

    function jump(by) {
      pause();
      go(step + by);
    }

    function listen() {
      const on = (selector, event, act) => find(selector).addEventListener(event, () => { activate(); act(); });
      const toggle = () => (playing ? pause() : play());
      on(".play", "click", toggle);
      on("video", "click", toggle);
      on(".back", "click", () => jump(-1));
      on(".forward", "click", () => jump(1));
      on(".scrub", "input", () => go(Number(find(".scrub").value)));
      on(".episode", "change", () => open(Number(find(".episode").value)));
      on(".speed", "change", () => { video.playbackRate = speed(); });
      on(".in", "click", () => curves.zoom(0.5));
      on(".out", "click", () => curves.zoom(2));
      on(".all", "click", () => curves.zoom(Infinity));
      for (const moment of article.querySelectorAll(".moment")) moment.addEventListener("click", () => visit(moment));
      article.addEventListener("click", ({ detail, target }) => {
        if (detail) target.closest("button")?.blur(); // after the mouse, Space plays instead of clicking again
      });
    }

    function visit({ dataset }) {
      activate();
      const index = data.episodes.findIndex((each) => each.number === Number(dataset.episode));
      if (index < 0) return; // its timelines are not on the page
      pause();
      if (index !== episode.index) open(index, Number(dataset.step));
      else go(Number(dataset.step));
      find(".player").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }

    function start() {
      data.episodes.forEach(({ number: name, return: earned }, index) =>
        find(".episode").append(make("option", { value: index }, `Episode ${name}, return ${number(earned)}`)));
      find(".episode").parentElement.hidden = data.episodes.length === 1;
      listen();
      const first = article.querySelector(".moment");
      const top = first && Number(first.dataset.episode) === data.episodes[data.start].number ? Number(first.dataset.step) : 0;
      open(data.start, top); // on the most important step
      article.dataset.ready = "true";
    }

    const self = { article, start, jump, go: (to) => jump(to - step), end: () => episode.length - 1,
      toggle: () => (playing ? pause() : play()), redraw: () => { curves.redraw(); } };
    return self;
  }

  // ---- Return against control ---------------------------------------------------------------------------------------

  /** The curve over prices as points with intervals, and the default policy alone as a dashed line. */
  function frontier(holder, rows) {
    const points = rows.filter((row) => row.return !== null).sort((a, b) => a.control_rate - b.control_rate);
    const rates = points.map((row) => 100 * (row.control_rate ?? 0));
    const ends = points.flatMap((row) => [row.return, row.low ?? row.return, row.high ?? row.return]);
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const room = 0.1 * (high - low || Math.abs(high) || 1);
    const right = Math.max(...rates, 1);
    const draw = (plot) => {
      const { ctx } = plot;
      const x = (value) => plot.valToPos(value, "x", true);
      const y = (value) => plot.valToPos(value, "y", true);
      const stroke = (...path) => {
        ctx.beginPath();
        path.forEach(([a, b], i) => (i ? ctx.lineTo(a, b) : ctx.moveTo(a, b)));
        ctx.stroke();
      };
      ctx.save();
      points.forEach((row, i) => {
        const alone = row.eta === null;
        ctx.strokeStyle = ctx.fillStyle = color(alone ? "--muted" : "--control");
        ctx.lineWidth = 1.5 * devicePixelRatio;
        if (row.low !== null && row.high !== null) stroke([x(rates[i]), y(row.low)], [x(rates[i]), y(row.high)]);
        ctx.beginPath();
        ctx.arc(x(rates[i]), y(row.return), 4 * devicePixelRatio, 0, 2 * Math.PI);
        ctx.fill();
        if (alone) {
          ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
          stroke([plot.bbox.left, y(row.return)], [plot.bbox.left + plot.bbox.width, y(row.return)]);
          ctx.setLineDash([]);
        }
      });
      label(plot, ctx, points.map((row, i) => ({ row, x: x(rates[i]), y: y(row.return), low: y(row.low ?? row.return), high: y(row.high ?? row.return) })));
      ctx.restore();
    };
    /** Writes the price beside each point where it covers nothing; a price without room is in the table only. */
    function label(plot, ctx, marks) {
      const unit = devicePixelRatio;
      const { left, top, width, height } = plot.bbox;
      const taken = marks.flatMap(({ row, x, y, low, high }) => [
        [x - 5 * unit, y - 5 * unit, x + 5 * unit, y + 5 * unit], [x - unit, high, x + unit, low],
        ...(row.eta === null ? [[left, y - unit, left + width, y + unit]] : []), // the dashed line
      ]);
      const apart = ([a, b, c, d]) => ([e, f, g, h]) => c <= e || g <= a || d <= f || h <= b;
      const free = ([a, b, c, d]) => a >= left && c <= left + width && b >= top && d <= top + height
        && taken.every(apart([a, b, c, d]));
      const curve = marks.slice(1).flatMap(({ x, y }, i) => Array.from({ length: 60 }, (_, part) => {
        const [across, down] = [x + (part / 60) * (marks[i].x - x), y + (part / 60) * (marks[i].y - y)];
        return [across, down, across + unit, down + unit];
      }));
      ctx.font = `${11 * unit}px system-ui, sans-serif`;
      ctx.fillStyle = color("--muted");
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      for (const { row, x, y } of marks) {
        const alone = row.eta === null;
        const text = alone ? "default policy alone" : `\u03b7 ${number(row.eta)}`;
        const size = ctx.measureText(text).width;
        const places = [[8, 13], [8, -13], [-8, 13], [-8, -13], [9, 0], [-9, 0], [8, 26], [-8, 26], [8, -26], [-8, -26]];
        const boxes = places.map(([across, down]) => {
          const start = alone ? left + width - size - 4 * unit : x + across * unit - (across < 0 ? size : 0);
          const middle = y + (alone && Math.abs(down) < 10 ? -10 : down) * unit;
          return [start, middle - 7 * unit, start + size, middle + 7 * unit];
        }).filter(free);
        const found = boxes.find((box) => curve.every(apart(box))) ?? boxes[0]; // beside the curve, if there is room
        if (!found) continue;
        taken.push(found);
        ctx.fillText(text, found[0], (found[1] + found[3]) / 2);
      }
    }
    return page.plot(holder, {
      padding: [12, 12, 0, 0], cursor: { show: false },
      scales: { x: { time: false, range: () => [-0.04 * right, 1.08 * right] }, y: { range: () => [low - room, high + room] } },
      axes: [
        page.axis({ size: 24, space: 50, label: "steps in control, %", labelSize: 18, labelFont: "11px system-ui, sans-serif" }),
        page.axis({ size: 52, space: 30, label: "return", labelSize: 18, labelFont: "11px system-ui, sans-serif" }),
      ],
      series: [{}, { stroke: () => color("--edge"), width: 1.5, points: { show: false } }],
      hooks: { draw: [draw] },
    }, [rates, points.map((row) => row.return)]);
  }

  // ---- Start ----------------------------------------------------------------------------------------------------------

  const KEYS = {
    " ": (self) => self.toggle(),
    ArrowLeft: (self, event) => self.jump(event.shiftKey ? -10 : -1),
    ArrowRight: (self, event) => self.jump(event.shiftKey ? 10 : 1),
    Home: (self) => self.go(0),
    End: (self) => self.go(self.end()),
  };
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    const busy = target.matches("select, textarea, input:not([type=range])") || (key === " " && target.matches("button, summary"));
    if (busy || event.altKey || event.ctrlKey || event.metaKey || !(key in KEYS)) return;
    event.preventDefault();
    const own = players.find(({ article }) => article.contains(target));
    KEYS[key](own ?? active, event);
  });

  const curves = [];
  for (const data of JSON.parse(document.getElementById("data").textContent)) {
    const made = player(data);
    players.push(made);
    made.start();
    const holder = made.article.querySelector(".frontier");
    if (holder) curves.push(frontier(holder, data.frontier));
  }
  active = players[0];
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    players.forEach((each) => each.redraw());
    curves.forEach((plot) => plot.redraw(false));
  });
})();
