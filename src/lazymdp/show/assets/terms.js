// The terms of the page, explained where they stand: a small button opens the explanation.

const TERMS = {
  eta: ["price \u03b7", "What one step of control costs, in units of reward. At price 0 the agent may act whenever that helps; " +
    "the higher the price, the fewer steps are worth it."],
  control: ["control", "The agent chooses the action itself, instead of leaving the step to the default policy. A step in " +
    "control is also called an intervention."],
  "default policy": ["default policy", "It acts whenever the agent does not take control: for example a habit, a simple rule, " +
    "or chance. The agent is then called lazy."],
  return: ["return", "The expected sum of rewards from the start, without the price" +
    (gamma < 1 ? `. A reward after t steps counts ${number(gamma, 6)}\u1d57.` : ".")],
  value: ["value", "The return minus the price of every step in control. The optimal policy at a price has the largest value."],
  controls: ["controls", "The expected number of steps in control" +
    (gamma < 1 ? `, discounted like the return: a step in control after t steps counts ${number(gamma, 6)}\u1d57.` : ".")],
  gap: ["lazy-gap", "How much better the best action is than leaving this step to the default policy. The agent takes control " +
    "where the lazy-gap is larger than the price."],
  critical: ["critical \u03b7", "The highest price at which the agent still takes control in a state. The higher it is, the more " +
    "the state matters."],
};
let asked = null; // the button whose explanation is open

function termButton(key) {
  return make("button", { type: "button", class: "term", "data-term": key, "aria-expanded": false,
    "aria-label": `What does ${TERMS[key][0]} mean?` }, make("span", { "aria-hidden": "true" }, "i"));
}

function closeTerm() {
  asked?.setAttribute("aria-expanded", false);
  asked = null;
  byId("tip").replaceChildren();
}

function openTerm(button) {
  closeTerm();
  asked = button;
  const [name, words] = TERMS[button.dataset.term];
  const tip = byId("tip");
  tip.replaceChildren(make("strong", {}, name), `: ${words}`);
  button.setAttribute("aria-expanded", true);
  const box = button.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 12;
  tip.style.left = `${Math.max(12, Math.min(box.left, room)) + scrollX}px`;
  tip.style.top = `${box.bottom + scrollY}px`;
}

function buildTerms() {
  for (const place of document.querySelectorAll("[data-explain]")) place.append(termButton(place.dataset.explain));
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".term");
    if (button && button !== asked) openTerm(button);
    else if (!event.target.closest("#tip")) closeTerm();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeTerm(); });
}
