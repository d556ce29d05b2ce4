// The card of one state.

function point(state) {
  pointed = state;
  showCard();
}

function choose(state) {
  const row = (s) => byId("states").querySelector(`tr[data-state="${s}"]`);
  const [before, after] = [row(chosen), row(state)];
  if (before) { before.classList.remove("chosen"); before.tabIndex = -1; }
  if (after) { after.classList.add("chosen"); after.tabIndex = 0; }
  markCell(chosen, state);
  chosen = state;
  pointed = null;
  showCard();
}

function showCard() {
  const s = pointed ?? chosen;
  const control = now.action[s] < LAZY;
  const asking = document.activeElement?.closest("#card .term")?.dataset.term; // keeps the focus when the card changes
  if (asked?.closest("#card")) closeTerm();
  const title = make("h2", {}, stateName(s));
  if (NAMED) title.append(make("small", { class: "muted" }, ` state ${s}`));
  const words = data.absorbing[s] ? "absorbing: the episode has terminated"
    : control ? `takes control: ${actionName(now.action[s])}` : "lazy: the default policy acts";
  const choice = make("p", { id: "card-choice" }, swatch(now.action[s]), words);
  byId("card").dataset.state = s;
  byId("card").replaceChildren(make("p", { class: "computing muted small", role: "status" },
    now.exact ? "" : "Computing the values of this policy\u2026"), title, choice);
  if (data.absorbing[s]) return;
  byId("card").append(make("p", { id: "card-default" }, defaultWords(s), termButton("default policy"),
    make("span", { id: "card-important", class: "muted" }, importanceWords(s))));
  const facts = [
    ["Lazy-gap", "gap", level(now.gap[s], 5), "card-gap", data.tol > 0 || now.tie ? `price ${number(now.eta)}`
      : `${control ? "more than" : "at most"} the price ${number(now.eta)}`],
    ["Critical \u03b7", "critical", number(criticalEta[s], 5), "card-critical", criticalWords(s)],
    ["Value", "value", level(now.value[s], 5), "card-value", "from here, price included"],
    ["Controls", "controls", number(now.count[s], 5), "card-count", `from here, with return ${level(now.base[s])}`],
  ];
  const list = make("dl", {});
  for (const [name, term, figure, id, note] of facts) {
    const small = make("dd", { class: "muted small" }, note);
    list.append(make("div", {}, make("dt", {}, name, termButton(term)), make("dd", { id }, figure), small));
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
  if (asking) byId("card").querySelector(`[data-term="${asking}"]`)?.focus({ preventScroll: true });
}

function criticalWords(s) {
  const intervals = data.intervals[s];
  if (!intervals) return criticalEta[s] > 0 ? "takes control below it" : "never takes control";
  const listed = intervals.map(([low, high]) => `${number(low)} to ${number(high)}`).join(" and ");
  return `not indexable: takes control from ${listed}`;
}
