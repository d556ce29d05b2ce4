// The page of the explorer: it shows the optimal policy at the selected price, from the eta-path of path.js.
// Strings from outside (title, names) are inserted through textContent only, so that they cannot become markup.
"use strict";
(() => {
  const { data, S, A, LAZY, LAST, segmentOf, insideOf, answerAt, forControlCount } = path;
  const { breakpoints, startValues, startCounts, criticalEta } = data;
  const ALIVE = S - data.absorbing.reduce((sum, flag) => sum + flag, 0);
  const NOISE = 1e-12 * data.values.reduce((most, v) => Math.max(most, Math.abs(v)), 0); // rounding of the values
  const NOT_INDEXABLE = Object.keys(data.intervals).length;

  // ---- Formatting and elements ---------------------------------------------------------------------------------

  function number(x, digits = 4) {
    if (x === 0 || !Number.isFinite(x)) return String(x);
    const size = Math.abs(x);
    if (size >= 1e7 || size < 1e-4) return x.toExponential(digits - 2);
    return String(Number(x.toPrecision(size >= 10 ** digits ? Math.ceil(Math.log10(size) + 1e-9) : digits)));
  }

  const level = (x, digits = 4) => number(Math.abs(x) < NOISE ? 0 : x, digits); // a value, or a difference of values

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children); // strings become text, never markup
    return element;
  }

  const byId = (id) => document.getElementById(id);
  const stateName = (s) => (data.stateNames ? data.stateNames[s] : `state ${s}`);
  const actionName = (a) => (data.actionNames ? data.actionNames[a] : `action ${a}`);
  const parse = (text) => (text.trim() === "" ? NaN : Number(text.trim().replace(",", ".")));
  const choiceName = (s) => (data.absorbing[s] ? "end" : now.action[s] === LAZY ? "lazy" : actionName(now.action[s]));

  // ---- The selected price ----------------------------------------------------------------------------------------

  let now; // the result of path.answerAt at the selected price
  let chosen = data.startState; // the state selected by click or focus
  let pointed = null; // the state under the pointer
  let mode = "policy";
  const charts = [];

  function moveTo(eta, plan = null) {
    now = answerAt(eta);
    byId("plan").textContent = plan === null ? "type a budget to find its price" : planWords(plan);
    showReadout();
    showMaps();
    showTable();
    showCard();
    charts.forEach((chart) => chart.mark());
    announce();
  }

  const step = (by) => moveTo(insideOf(Math.min(Math.max(now.segment + by, 0), LAST)));

  function showReadout() {
    const { eta, segment } = now;
    byId("slider").value = segment;
    byId("slider").setAttribute("aria-valuetext", `policy ${segment + 1} of ${LAST + 1}, eta ${number(eta)}`);
    byId("eta").value = number(eta, 5);
    byId("eta").dataset.exact = eta;
    byId("eta").removeAttribute("aria-invalid");
    byId("span").textContent = spanWords();
    byId("bar-eta").textContent = `\u03b7 ${number(eta, 3)}`; // on a phone the bar stays, the box scrolls away
    byId("return").textContent = level(startValues[segment]);
    byId("controls").textContent = number(startCounts[segment]);
    byId("control-count").textContent = String(now.controls);
    byId("of-states").textContent = `of ${ALIVE} states`;
    byId("priced").textContent = level(startValues[segment] - eta * startCounts[segment]);
    byId("previous").disabled = segment === 0;
    byId("next").disabled = segment === LAST;
  }

  function spanWords() {
    const { segment } = now;
    const which = `policy ${segment + 1} of ${LAST + 1}`;
    if (now.tie) return `${which}, tied\nwith policy ${segment}: a tie is lazy`;
    if (LAST === 0) return `${which}\nalways lazy, whatever the price`;
    const low = segment === 0 ? "0" : number(breakpoints[segment - 1], 5);
    if (segment === LAST) return `${which}\nalways lazy, from ${low} up`;
    return `${which}\noptimal from ${low} to ${number(breakpoints[segment], 5)}`;
  }

  function planWords({ eta, below, weight, value, count }) {
    const earns = `return ${level(value)} with ${number(count)} controls`;
    if (eta === 0) return `Policy 1 needs no more than that: ${earns}.`;
    if (weight === 0) return `Policy ${below + 2}: ${earns}.`;
    return `Policy ${below + 1} with probability ${number(weight)}, otherwise policy ${below + 2}, drawn once per episode: ${earns}.`;
  }

  // The address and the text for screen readers are updated once the price has not changed for a moment.
  let resting;
  function announce() {
    clearTimeout(resting);
    resting = setTimeout(() => {
      byId("live").textContent = `eta ${number(now.eta)}: ${now.controls} of ${ALIVE} states take control, ` +
        `return ${level(startValues[now.segment])}, ${number(startCounts[now.segment])} expected controls`;
      try {
        history.replaceState(null, "", `#eta=${now.eta}`);
      } catch {
        // A page inside another page may not be allowed to change its address.
      }
    }, 200);
  }

  function readAddress(hash = location.hash) {
    const found = /^#eta=(.+)$/.exec(hash);
    const eta = found ? parse(found[1]) : NaN;
    return eta >= 0 && eta < Infinity ? eta : null;
  }

  // ---- The map -----------------------------------------------------------------------------------------------------

  const ARROWS = { up: [-1, 0], right: [0, 1], down: [1, 0], left: [0, -1] };
  const MODES = {
    policy: { label: "Policy" },
    gap: { label: "Lazy-gap", of: (s) => now.gap[s], colors: data.controlColors, fromZero: true },
    critical: { label: "Critical \u03b7", of: (s) => criticalEta[s], colors: data.controlColors, fromZero: true },
    value: { label: "Value", of: (s) => now.value[s], colors: data.valueColors, fromZero: false },
  };
  const cells = []; // [state] the button that stands for it
  let cellAt = []; // [layer][row][column] the same buttons

  function buildMaps() {
    if (!data.world) return;
    byId("map-panel").hidden = false;
    for (const [key, { label }] of Object.entries(MODES)) {
      const button = make("button", { type: "button", "data-mode": key, "aria-pressed": key === mode }, label);
      button.addEventListener("click", () => {
        mode = key;
        for (const other of byId("modes").children) other.setAttribute("aria-pressed", other === button);
        showMaps();
      });
      byId("modes").append(button);
    }
    cellAt = data.world.layers.map(buildLayer);
    byId("maps").style.setProperty("--columns", data.world.layout[0].length);
  }

  function buildLayer({ name, states }, layer) {
    const stateAt = new Map(states.map((s) => [data.world.cells[s].join(), s]));
    const grid = make("div", { class: "grid", role: "group", "aria-label": name ? `Map, ${name}` : "Map" });
    const rows = data.world.layout.map((line, row) =>
      [...line].map((tile, column) => {
        const state = stateAt.get([row, column].join());
        const box = state === undefined ? make("div", { class: "tile-only" }) : buildCell(state, layer, row, column);
        box.dataset.tile = tile;
        if ("SGTKDA".includes(tile)) box.append(make("span", { class: "letter", "aria-hidden": "true" }, tile));
        grid.append(box);
        return state === undefined ? null : box;
      }));
    const figure = make("figure", {}, grid);
    if (name) figure.prepend(make("figcaption", {}, name));
    byId("maps").append(figure);
    grid.addEventListener("pointerleave", () => point(null));
    return rows;
  }

  function buildCell(state, layer, row, column) {
    const cell = make("button", { type: "button", class: "cell", "data-state": state, tabindex: -1 });
    cell.append(make("span", { class: "glyph", "aria-hidden": "true" }));
    cell.addEventListener("pointerenter", () => point(state));
    cell.addEventListener("focus", () => choose(state));
    cell.addEventListener("click", () => choose(state));
    cell.addEventListener("keydown", (event) => {
      const move = event.shiftKey && ARROWS[event.key.replace("Arrow", "").toLowerCase()];
      if (!move) return;
      event.preventDefault();
      event.stopPropagation();
      let [r, c] = [row + move[0], column + move[1]];
      const rows = cellAt[layer];
      while (rows[r] && rows[r][c] === null) [r, c] = [r + move[0], c + move[1]]; // jump over walls
      if (rows[r] && rows[r][c]) rows[r][c].focus();
    });
    cells[state] = cell;
    return cell;
  }

  function showMaps() {
    if (!data.world) return;
    const { of, colors, fromZero } = MODES[mode];
    let low = 0, high = 0;
    if (of) {
      const shown = cells.map((_, s) => s).filter((s) => !data.absorbing[s]).map(of);
      high = shown.reduce((a, b) => Math.max(a, b), fromZero ? 0 : -Infinity);
      low = fromZero ? 0 : shown.reduce((a, b) => Math.min(a, b), Infinity);
    }
    cells.forEach((cell, s) => {
      const control = now.action[s] < LAZY;
      const choice = choiceName(s);
      cell.dataset.control = control;
      cell.dataset.choice = choice;
      if (data.absorbing[s]) cell.dataset.absorbing = "";
      else if (of) paint(cell, high > low ? (of(s) - low) / (high - low) : 0, colors);
      else cell.style.background = cell.dataset.pale = "";
      cell.firstChild.textContent = control && !(choice in ARROWS) ? choice.slice(0, 2) : "";
      cell.setAttribute("aria-label", `${stateName(s)}: ${control ? "control, " : ""}${choice}`);
      cell.tabIndex = s === chosen ? 0 : -1;
      cell.classList.toggle("chosen", s === chosen);
    });
    for (const rows of cellAt) { // so that each map can be reached with the Tab key
      const boxes = rows.flat().filter(Boolean);
      if (boxes.length && !boxes.some((box) => box.tabIndex === 0)) boxes[0].tabIndex = 0;
    }
    showLegend(of, colors, low, high);
  }

  function paint(cell, part, colors) {
    const at = Math.min(Math.floor(part * (colors.length - 1)), colors.length - 2);
    const percent = 100 * (part * (colors.length - 1) - at);
    cell.style.background = `color-mix(in srgb, ${colors[at + 1]} ${percent}%, ${colors[at]})`;
    cell.dataset.pale = part < 0.6;
  }

  function showLegend(of, colors, low, high) {
    const swatch = (kind) => make("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
    if (!of) {
      byId("legend").replaceChildren(swatch("control"), "takes control", swatch("lazy"), "lazy");
      return;
    }
    const ramp = make("i", { class: "ramp", "aria-hidden": "true" });
    ramp.style.background = `linear-gradient(to right, ${colors.join(", ")})`;
    byId("legend").replaceChildren(number(low, 3), ramp, number(high, 3));
  }

  // ---- The card of one state -------------------------------------------------------------------------------------

  function point(state) {
    pointed = state;
    showCard();
  }

  function choose(state) {
    const standIns = (s) => [cells[s], byId("states").querySelector(`tr[data-state="${s}"]`)].filter(Boolean);
    for (const element of standIns(chosen)) { element.classList.remove("chosen"); element.tabIndex = -1; }
    for (const element of standIns(state)) { element.classList.add("chosen"); element.tabIndex = 0; }
    chosen = state;
    pointed = null;
    showCard();
  }

  function showCard() {
    const s = pointed ?? chosen;
    const control = now.action[s] < LAZY;
    const title = make("h2", {}, stateName(s));
    if (data.stateNames) title.append(make("small", { class: "muted" }, ` state ${s}`));
    const words = data.absorbing[s] ? "absorbing: the episode has terminated"
      : control ? `takes control: ${actionName(now.action[s])}` : "lazy: the default policy acts";
    const choice = make("p", { id: "card-choice" }, make("i", { class: `swatch ${control ? "control" : "lazy"}` }), words);
    byId("card").dataset.state = s;
    byId("card").replaceChildren(title, choice);
    if (data.absorbing[s]) return;
    const facts = [
      ["Lazy-gap", level(now.gap[s], 5), "card-gap", data.tol > 0 || now.tie ? `price ${number(now.eta)}`
        : `${control ? "more than" : "at most"} the price ${number(now.eta)}`],
      ["Critical \u03b7", number(criticalEta[s], 5), "card-critical", criticalWords(s)],
      ["Value", level(now.value[s], 5), "card-value", "from here, price included"],
      ["Controls", number(now.count[s], 5), "card-count", `from here, with return ${level(now.base[s])}`],
    ];
    const list = make("dl", {});
    for (const [name, figure, id, note] of facts) {
      const small = make("dd", { class: "muted small" }, note);
      list.append(make("div", {}, make("dt", {}, name), make("dd", { id }, figure), small));
    }
    const body = make("tbody");
    for (let a = 0; a < A; a++) {
      const row = make("tr", {}, make("th", { scope: "row" }, actionName(a)),
        make("td", {}, level(now.q[s * A + a], 5)), make("td", {}, number(data.defaultPolicy[s * A + a], 3)));
      if (now.action[s] === a) row.className = "taken";
      body.append(row);
    }
    const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Action"),
      make("th", { scope: "col" }, "Value in control"), make("th", { scope: "col" }, "Default policy")));
    byId("card").append(make("div", { class: "body" }, list, make("div", { class: "scroll" }, make("table", {}, head, body))));
  }

  function criticalWords(s) {
    const intervals = data.intervals[s];
    if (!intervals) return criticalEta[s] > 0 ? "takes control below it" : "never takes control";
    const listed = intervals.map(([low, high]) => `${number(low)} to ${number(high)}`).join(" and ");
    return `not indexable: takes control from ${listed}`;
  }

  // ---- The table of states ----------------------------------------------------------------------------------------

  const PAGE = 200;
  const COLUMNS = [
    { key: "number", label: "State", of: (s) => s, text: String },
    { key: "name", label: "Name", of: stateName, text: String },
    { key: "choice", label: "Choice", of: (s) => (data.absorbing[s] ? A + 1 : now.action[s]), text: (_, s) => choiceName(s) },
    { key: "gap", label: "Lazy-gap", of: (s) => now.gap[s], falling: true },
    { key: "critical", label: "Critical \u03b7", of: (s) => criticalEta[s], falling: true,
      text: (x, s) => number(x) + (data.intervals[s] ? " *" : "") },
    { key: "value", label: "Value", of: (s) => now.value[s], falling: true },
    { key: "count", label: "Controls", of: (s) => now.count[s], falling: true },
  ].filter((column) => column.key !== "name" || data.stateNames);
  let sortBy = COLUMNS.find((column) => column.key === "critical");
  let falling = true;
  let limit = PAGE;

  function buildTable() {
    byId("table-panel").open = !data.world;
    byId("table-panel").addEventListener("toggle", showTable);
    for (const column of COLUMNS) {
      const button = make("button", { type: "button" }, column.label);
      button.addEventListener("click", () => {
        falling = sortBy === column ? !falling : Boolean(column.falling);
        sortBy = column;
        showTable();
        byId("scroll").scrollTop = 0;
      });
      column.head = make("th", { scope: "col", "data-key": column.key }, button);
      byId("states").tHead.rows[0].append(column.head);
    }
    byId("filter").addEventListener("input", () => { limit = PAGE; showTable(); });
    byId("more").addEventListener("click", () => { limit *= 2; showTable(); });
    byId("states").tBodies[0].addEventListener("pointerleave", () => point(null));
  }

  function showTable() {
    if (!byId("table-panel").open) return;
    const wanted = byId("filter").value.trim().toLowerCase();
    const named = (s) => `${data.absorbing[s] || now.action[s] === LAZY ? "" : "control "}${choiceName(s)}`;
    const states = [...Array(S).keys()].filter((s) => !wanted || String(s) === wanted ||
      (data.stateNames && stateName(s).toLowerCase().includes(wanted)) || named(s).toLowerCase().includes(wanted));
    const sign = falling ? -1 : 1;
    const key = new Map(states.map((s) => [s, sortBy.of(s)]));
    states.sort((a, b) => {
      const [x, y] = [key.get(a), key.get(b)];
      const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
      return sign * order || a - b;
    });
    for (const column of COLUMNS) {
      column.head.setAttribute("aria-sort", column !== sortBy ? "none" : falling ? "descending" : "ascending");
    }
    const body = byId("states").tBodies[0];
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    body.replaceChildren(...states.slice(0, limit).map(buildRow));
    if (!body.querySelector("[tabindex='0']") && body.rows.length) body.rows[0].tabIndex = 0;
    if (focused !== null) body.querySelector(`[data-state="${focused}"]`)?.focus({ preventScroll: true });
    byId("matches").textContent = `${states.length} of ${S} states${NOT_INDEXABLE ? "; * not indexable" : ""}`;
    byId("more").hidden = states.length <= limit;
    byId("more").textContent = `Show more (${Math.max(states.length - limit, 0)} left)`;
  }

  function buildRow(s) {
    const row = make("tr", { "data-state": s, "data-control": now.action[s] < LAZY, tabindex: s === chosen ? 0 : -1 });
    row.classList.toggle("chosen", s === chosen);
    for (const { key, of, text } of COLUMNS) {
      const x = of(s);
      row.append(make("td", { "data-key": key }, text ? text(x, s) : level(x)));
    }
    row.addEventListener("pointerenter", () => point(s));
    row.addEventListener("focus", () => choose(s));
    row.addEventListener("click", () => choose(s));
    row.addEventListener("keydown", (event) => {
      const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
    return row;
  }

  // ---- The curves (uPlot) -----------------------------------------------------------------------------------------

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
    const leading = log && high / low < 1000 ? [1, 2, 5] : [1]; // with few decades, 2 and 5 have labels, too
    const isRound = (v) => leading.includes(Number((v / 10 ** Math.floor(Math.log10(v * 1.0001))).toPrecision(6)));
    const round = (u, splits) => splits.map((v) => (!log || isRound(v) ? v : null));
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

  // ---- Controls -----------------------------------------------------------------------------------------------------

  /** Calls `apply` with the number in the input; shows a message if it is not a number of at least 0. */
  function onEnter(input, apply) {
    const accept = () => {
      const x = parse(input.value);
      input.setAttribute("aria-invalid", !(x >= 0 && x < Infinity));
      if (x >= 0 && x < Infinity) apply(x);
      else byId(input.getAttribute("aria-describedby")).textContent = "expected a number, at least 0";
    };
    input.addEventListener("change", accept);
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") accept(); });
  }

  function buildControls() {
    byId("slider").max = LAST;
    byId("slider").addEventListener("input", (event) => moveTo(insideOf(Number(event.target.value))));
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    onEnter(byId("eta"), (eta) => { if (byId("eta").value !== number(now.eta, 5)) moveTo(eta); }); // the input shows a rounded price
    onEnter(byId("budget"), (budget) => { const plan = forControlCount(budget); moveTo(plan.eta, plan); });
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input:not([type=range]), textarea, select");
      if (typing || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      step(steps[event.key]);
    });
    window.addEventListener("hashchange", (event) => {
      // From the event and not from the page: `announce` may have changed the address since.
      const eta = readAddress(new URL(event.newURL).hash);
      if (eta !== null) moveTo(eta);
    });
  }

  function buildTheme() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const apply = (dark) => {
      document.documentElement.dataset.theme = dark ? "dark" : "light";
      byId("theme").setAttribute("aria-pressed", dark);
      charts.forEach((chart) => chart.redraw());
    };
    const follow = (event) => apply(event.matches);
    system.addEventListener("change", follow);
    byId("theme").addEventListener("click", () => {
      system.removeEventListener("change", follow); // from now on the choice of the user counts
      apply(document.documentElement.dataset.theme !== "dark");
    });
    apply(system.matches);
  }

  function buildHeader() {
    byId("title").textContent = data.title;
    byId("facts").textContent = [`${S} states`, `${A} actions`, `\u03b3 = ${number(data.gamma, 6)}`, `${LAST} breakpoints`,
      NOT_INDEXABLE ? `${NOT_INDEXABLE} ${NOT_INDEXABLE === 1 ? "state" : "states"} not indexable` : "indexable",
      data.tol > 0 ? `values proven within ${number(data.tol)}` : "exact"].join(" \u00b7 ");
    byId("exactness").textContent = data.tol > 0
      ? `The ${LAST + 1} policies are optimal up to a tolerance: values proven within ${number(data.tol)} of the optimum.`
      : `The slider stops at each of the ${LAST + 1} optimal policies, from the lowest price to the highest; none is left out.`;
    byId("columns").classList.toggle("with-map", Boolean(data.world));
  }

  // ---- Start ----------------------------------------------------------------------------------------------------------

  const first = Math.floor((LAST + 1) / 2);
  buildTheme();
  buildHeader();
  buildMaps();
  buildTable();
  buildControls();
  now = answerAt(readAddress() ?? insideOf(first));
  buildCharts();
  moveTo(now.eta);
})();
