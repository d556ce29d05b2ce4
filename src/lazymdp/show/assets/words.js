// Sentences made from the numbers of the path.

const EPISODIC = ALIVE < S;
const percent = (share) => `${number(100 * share, 3)}%`;
const listed = (words, last) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`);

/** The policy with the fewest expected controls that keeps a share of the gain over the default policy alone. */
function keeping(share) {
  const gain = startValues[0] - startValues[LAST];
  for (let i = LAST; i > 0; i--) if (startValues[i] - startValues[LAST] >= share * gain) return i;
  return 0;
}

function buildSummary() {
  const gain = startValues[0] - startValues[LAST];
  if (LAST === 0 || !(gain > NOISE)) {
    byId("headline").textContent = LAST === 0
      ? "The default policy is already optimal: taking control never pays."
      : "From the start, the default policy is already optimal: taking control gains nothing.";
    return;
  }
  const unit = EPISODIC ? "per episode" : "from the start";
  const jump = (i, words) => {
    const button = make("button", { type: "button", class: "jump", title: `Show policy ${i + 1} of ${LAST + 1}` }, words);
    button.addEventListener("click", () => moveTo(insideOf(i)));
    return button;
  };
  const [most, many] = [keeping(0.99), keeping(0.9)];
  const times = (i) => `${number(startCounts[i], 3)} ${startCounts[i] === 1 ? "intervention" : "interventions"}`;
  const kept = (i) => `${Math.floor(100 * ((startValues[i] - startValues[LAST]) / gain) + 1e-9)}%`;
  const sentence = ["With ", jump(most, times(most)), ` ${unit}, you keep ${kept(most)} of the gain`];
  if (startCounts[many] < startCounts[most]) sentence.push("; with ", jump(many, number(startCounts[many], 3)), `, ${kept(many)}`);
  byId("headline").replaceChildren(...sentence, ".");
  const discounted = gamma < 1 ? `, counted with the discount of the return: one after t steps counts ${number(gamma, 6)}\u1d57` : "";
  byId("gain").textContent = `The gain is over the default policy alone, which returns ${level(startValues[LAST])}; the best ` +
    `policy returns ${level(startValues[0])} with ${times(0)}. These are expected numbers of steps in control${discounted}.`;
}

/** What the default policy does in a state, as a sentence. */
function defaultWords(s) {
  const chances = Array.from({ length: A }, (_, a) => [data.defaultPolicy[s * A + a], a]).filter(([p]) => p > 0);
  const names = chances.map(([, a]) => actionName(a));
  const verb = names.every((name) => Object.hasOwn(ARROWS, name.toLowerCase())) ? "moves" : "chooses";
  if (chances.length === 1) return `The default policy always ${verb} ${names[0]} here.`;
  const even = chances.every(([p]) => Math.abs(p - chances[0][0]) < 1e-9);
  if (even && chances.length > 6) return `The default policy chooses one of ${chances.length} actions at random here.`;
  if (even) return `The default policy ${verb} ${listed(names, "or")} at random here.`;
  chances.sort(([p, a], [q, b]) => q - p || a - b);
  const told = chances.slice(0, chances.length > 4 ? 3 : 4);
  const words = told.map(([p, a]) => `${actionName(a)} with probability ${percent(p)}`);
  const rest = chances.slice(told.length).reduce((sum, [p]) => sum + p, 0);
  if (rest > 0) words.push(`another action with ${percent(rest)}`);
  return `The default policy ${verb} ${listed(words, "and")} here.`;
}

/** How important a state is: its critical eta, and its rank among all states. */
function importanceWords(s) {
  const eta = criticalEta[s];
  if (eta === 0) return "Control never pays here.";
  const prices = data.intervals[s] ? `at some prices up to ${number(eta)}` : `up to a price of ${number(eta)}`;
  const rank = 1 + criticalEta.reduce((count, other) => count + (other > eta), 0);
  return s === IMPORTANT ? `This is the most important state: control pays here ${prices}.`
    : `Control pays here ${prices}: number ${whole(rank)} of ${whole(ALIVE)} states by importance.`;
}
