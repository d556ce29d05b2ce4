// The controls of the page, and its start.

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
    byId("theme").textContent = dark ? "Light" : "Dark"; // what a click does
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
  byId("facts").textContent = [`${whole(S)} states`, `${A} actions`, `\u03b3 = ${number(data.gamma, 6)}`, `${whole(LAST)} breakpoints`,
    NOT_INDEXABLE ? `${whole(NOT_INDEXABLE)} ${NOT_INDEXABLE === 1 ? "state" : "states"} not indexable` : "indexable",
    data.tol > 0 ? `values proven within ${number(data.tol)}` : "exact"].join(" \u00b7 ");
  byId("exactness").textContent = data.tol > 0
    ? `The ${LAST + 1} policies are optimal up to a tolerance: values proven within ${number(data.tol)} of the optimum.`
    : `The slider stops at each of the ${LAST + 1} optimal policies, from the lowest price to the highest; none is left out.`;
  byId("columns").classList.toggle("with-map", MAP);
}

const first = Math.floor((LAST + 1) / 2);
buildTheme();
buildHeader();
buildSummary();
buildTerms();
buildMaps();
buildTable();
buildControls();
now = answerAt(readAddress() ?? insideOf(first));
buildCharts();
moveTo(now.eta);
window.explorer = { now: () => now }; // everything shown, in full precision: for the console of the browser and for tests
