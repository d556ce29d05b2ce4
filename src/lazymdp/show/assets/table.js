// The table of states.

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
].filter((column) => column.key !== "name" || NAMED);
let sortBy = COLUMNS.find((column) => column.key === "critical");
let falling = true;
let limit = PAGE;

function buildTable() {
  byId("table-panel").open = !MAP;
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
    (NAMED && stateName(s).toLowerCase().includes(wanted)) || named(s).toLowerCase().includes(wanted));
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
