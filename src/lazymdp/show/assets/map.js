// The map: a button for each state, in the layout of a grid world or with one to three axes.

const ARROWS = { up: [-1, 0], right: [0, 1], down: [1, 0], left: [0, -1] };
const SHAPES = 6; // number of shapes in explorer.css; further actions are shown by their number
const MODES = {
  policy: { label: "Policy" },
  gap: { label: "Lazy-gap", of: (s) => now.gap[s], colors: data.controlColors, fromZero: true },
  critical: { label: "Critical \u03b7", of: (s) => criticalEta[s], colors: data.controlColors, fromZero: true },
  value: { label: "Value", of: (s) => now.value[s], colors: data.valueColors, fromZero: false },
};
const cells = []; // [state] the button that stands for it
const places = []; // [state] its layer, row and column
const stops = []; // [layer] the state that the Tab key reaches
let cellAt = []; // [layer][row][column] the buttons, or null
const drawn = []; // [state] the choice and the color drawn last, so that only changes are drawn

/** The actions with which some policy takes control, and the sign of each: an arrow, a shape or a number. */
const usedActions = [...new Set(Array.from(switches.filter((_, i) => i % 4 === 2)))].filter((a) => a < LAZY).sort((a, b) => a - b);
const signs = new Map();
for (const a of usedActions) {
  const move = actionName(a).toLowerCase();
  const others = [...signs.values()].filter((sign) => !(sign in ARROWS)).length;
  signs.set(a, Object.hasOwn(ARROWS, move) ? move : others < SHAPES ? `shape${others + 1}` : String(a + 1));
}

function sign(a) {
  const glyph = make("span", { class: "glyph", "aria-hidden": "true" });
  const name = signs.get(a) ?? "";
  if (/^\d/.test(name)) glyph.textContent = name;
  return glyph;
}

/** The color and the sign of an action, as on the map; of the lazy choice if `a` is LAZY. */
function swatch(a) {
  const kind = a < LAZY ? "control" : "lazy";
  return make("i", { class: `swatch ${kind}`, "aria-hidden": "true", "data-sign": signs.get(a) ?? "" }, sign(a));
}

function buildMaps() {
  if (!MAP) return;
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
  const layers = data.axes ? layersOfAxes() : layersOfWorld();
  const count = layers.reduce((sum, { states }) => sum + states.length * states[0].length, 0);
  byId("maps").classList.toggle("tiny", count > 2500); // such cells are too small for glyphs
  byId("maps").classList.toggle("multiples", Boolean(data.axes) && layers.length > 1);
  cellAt = layers.map(buildLayer);
}

function layersOfWorld() {
  const { layout, cells: places, layers } = data.world;
  return layers.map(({ name, states }) => {
    const stateAt = new Map(states.map((s) => [places[s].join(), s]));
    return { name, tiles: layout,
      states: layout.map((line, row) => [...line].map((_, column) => stateAt.get([row, column].join()) ?? null)) };
  });
}

/** layer: { name, states: [row][column] a state or null, tiles: the text of a grid world's map, frame: its axes } */
function buildLayer({ name, states, tiles, frame }, layer) {
  const grid = make("div", { class: "grid", role: "group", "aria-label": name ? `Map, ${name}` : "Map" });
  const boxes = states.map((line, row) => line.map((state, column) => {
    const box = state === null ? make("div", { class: "tile-only" }) : buildCell(state, layer, row, column);
    if (tiles) {
      const tile = tiles[row][column];
      box.dataset.tile = tile;
      if ("SGTKDA".includes(tile)) box.append(make("span", { class: "letter", "aria-hidden": "true" }, tile));
    }
    grid.append(box);
    return state === null ? null : box;
  }));
  grid.style.setProperty("--columns", states[0].length);
  const figure = make("figure", {}, frame ? framed(grid, frame, states) : grid);
  if (name) figure.prepend(make("figcaption", {}, name));
  byId("maps").append(figure);
  listen(grid);
  const own = states.flat().filter((s) => s !== null);
  stops[layer] = own.includes(chosen) ? chosen : own[0];
  if (own.length) cells[stops[layer]].tabIndex = 0;
  if (own.includes(chosen)) cells[chosen].classList.add("chosen");
  return boxes;
}

function buildCell(state, layer, row, column) {
  const cell = make("button", { type: "button", class: "cell", "data-state": state, tabindex: -1 });
  if (data.absorbing[state]) cell.dataset.absorbing = "";
  cells[state] = cell;
  places[state] = [layer, row, column];
  return cell;
}

function listen(grid) {
  const stateOf = (event) => Number(event.target.closest(".cell")?.dataset.state ?? NaN);
  const on = (kind, act) => grid.addEventListener(kind, (event) => {
    const state = stateOf(event);
    if (!Number.isNaN(state)) act(state, event);
  });
  on("pointerover", (state) => { if (state !== pointed) point(state); });
  on("focusin", choose);
  on("click", choose);
  on("keydown", (state, event) => {
    const move = event.shiftKey && ARROWS[event.key.replace("Arrow", "").toLowerCase()];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    const [layer, row, column] = places[state];
    let [r, c] = [row + move[0], column + move[1]];
    const rows = cellAt[layer];
    while (rows[r] && rows[r][c] === null) [r, c] = [r + move[0], c + move[1]]; // jump over walls
    if (rows[r] && rows[r][c]) rows[r][c].focus();
  });
  grid.addEventListener("pointerleave", () => point(null));
}

/** Marks the selected state on its map, where the Tab key finds it again. */
function markCell(before, state) {
  cells[before]?.classList.remove("chosen");
  const cell = cells[state];
  if (!cell) return;
  cell.classList.add("chosen");
  const [layer] = places[state];
  cells[stops[layer]].tabIndex = -1;
  cell.tabIndex = 0;
  stops[layer] = state;
}

function showMaps() {
  if (!MAP) return;
  const { of, colors, fromZero } = MODES[mode];
  let low = 0, high = 0;
  if (of) {
    high = fromZero ? 0 : -Infinity;
    low = fromZero ? 0 : Infinity;
    cells.forEach((_, s) => {
      if (data.absorbing[s]) return;
      high = Math.max(high, of(s));
      if (!fromZero) low = Math.min(low, of(s));
    });
  }
  cells.forEach((cell, s) => {
    drawn[s] ??= { action: null, part: null, colors: null };
    const last = drawn[s];
    if (last.action !== now.action[s]) drawChoice(cell, s);
    last.action = now.action[s];
    if (data.absorbing[s]) return;
    const part = of ? (high > low ? (of(s) - low) / (high - low) : 0) : null;
    if (last.part === part && last.colors === colors) return;
    if (of) paint(cell, part, colors);
    else cell.style.background = cell.dataset.pale = "";
    [last.part, last.colors] = [part, colors];
  });
  showLegend(of, colors, low, high);
}

function drawChoice(cell, s) {
  const action = now.action[s];
  const control = action < LAZY;
  const choice = choiceName(s);
  cell.dataset.control = control;
  cell.dataset.choice = choice;
  cell.dataset.sign = control ? signs.get(action) ?? "" : "";
  if (!byId("maps").classList.contains("tiny")) {
    cell.querySelector(".glyph")?.remove();
    cell.prepend(sign(action));
  }
  cell.setAttribute("aria-label", `${stateName(s)}: ${control ? "control, " : ""}${choice}`);
}

function paint(cell, part, colors) {
  const at = Math.min(Math.floor(part * (colors.length - 1)), colors.length - 2);
  const percent = 100 * (part * (colors.length - 1) - at);
  cell.style.background = `color-mix(in srgb, ${colors[at + 1]} ${percent}%, ${colors[at]})`;
  cell.dataset.pale = part < 0.6;
}

function showLegend(of, colors, low, high) {
  const entry = (words, a) => make("span", { class: "entry" }, swatch(a), words);
  if (of) {
    const ramp = make("i", { class: "ramp", "aria-hidden": "true" });
    ramp.style.background = `linear-gradient(to right, ${colors.join(", ")})`;
    byId("legend").replaceChildren(make("span", { class: "entry" }, number(low, 3), ramp, number(high, 3)));
    return;
  }
  const arrowsOnly = [...signs.values()].every((name) => name in ARROWS);
  const right = usedActions.find((a) => signs.get(a) === "right") ?? usedActions[0];
  const control = arrowsOnly ? (usedActions.length ? [entry("takes control", right)] : [])
    : ["takes control:", ...usedActions.map((a) => entry(actionName(a), a))];
  byId("legend").replaceChildren(...control, entry("lazy", LAZY));
}
