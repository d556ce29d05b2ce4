// The page of the explorer: it shows the optimal policy at the selected price, from the eta-path of path.js.
// Strings from outside (title, names) are inserted through textContent only, so that they cannot become markup.

const ALIVE = S - data.absorbing.reduce((sum, flag) => sum + flag, 0);
const LARGEST_VALUE = data.values.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
const NOISE = (stored.size > LAST ? 1e-12 : 10 * ACCURACY) * LARGEST_VALUE; // error of the values
const NOT_INDEXABLE = Object.keys(data.intervals).length;
const MAP = data.world !== null || data.axes !== null;

// ---- Formatting and elements ---------------------------------------------------------------------------------

function number(x, digits = 4) {
  if (x === 0 || !Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size >= 1e7 || size < 1e-4) return x.toExponential(digits - 2);
  return String(Number(x.toPrecision(size >= 10 ** digits ? Math.ceil(Math.log10(size) + 1e-9) : digits)));
}

const whole = (n) => n.toLocaleString("en-US"); // 20,001
const level = (x, digits = 4) => number(Math.abs(x) < NOISE ? 0 : x, digits); // a value, or a difference of values

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text, never markup
  return element;
}

const byId = (id) => document.getElementById(id);
const NAMED = Boolean(data.stateNames || data.axes);
const stateName = (s) => (data.stateNames ? data.stateNames[s] : data.axes ? axisName(s) : `state ${s}`);
const actionName = (a) => (data.actionNames ? data.actionNames[a] : `action ${a}`);
const parse = (text) => (text.trim() === "" ? NaN : Number(text.trim().replace(",", ".")));
const choiceName = (s) => (data.absorbing[s] ? "end" : now.action[s] === LAZY ? "lazy" : actionName(now.action[s]));

// ---- The selected price --------------------------------------------------------------------------------------

const IMPORTANT = criticalEta.reduce((best, eta, s) => (eta > criticalEta[best] ? s : best), 0);
let now; // the result of answerAt at the selected price
let chosen = criticalEta[IMPORTANT] > 0 ? IMPORTANT : data.startState; // the state selected by click or focus
let pointed = null; // the state under the pointer
let mode = "policy";
const charts = [];

function moveTo(eta, plan = null) {
  now = answerAt(eta);
  byId("plan").textContent = plan === null ? "type a budget to find its price" : planWords(plan);
  showReadout();
  showStates();
  charts.forEach((chart) => chart.mark());
  announce();
}

function showStates() {
  document.body.toggleAttribute("data-computing", !now.exact);
  showMaps();
  showTable();
  showCard();
}

whenExact = () => {
  now = answerAt(now.eta);
  showStates();
};

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
  byId("control-count").textContent = whole(now.controls);
  byId("of-states").textContent = `of ${whole(ALIVE)} states`;
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
