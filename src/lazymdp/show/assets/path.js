// The eta-path, as in the library's EtaPath: the optimal policy at any price, its values and its lazy-gaps.

const TYPES = { f8: Float64Array, i4: Int32Array, u1: Uint8Array };

function unpack(key, value) {
  if (value === null || typeof value !== "object" || typeof value.base64 !== "string") return value;
  const numbers = TYPES[value.type];
  if (typeof value.table !== "string") return new numbers(bytesOf(value.base64).buffer);
  const table = new numbers(bytesOf(value.table).buffer); // few different numbers: each entry is an index into the table
  return numbers.from(bytesOf(value.base64), (code) => table[code]);
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const data = JSON.parse(document.getElementById("data").textContent, unpack);
const { nStates: S, nActions: A, gamma, breakpoints, switches, startValues, startCounts, criticalEta } = data;
data.indptr = new Int32Array(S * A + 1); // [S * A + 1] where the transitions of each state and action begin
data.rowSizes.forEach((size, row) => { data.indptr[row + 1] = data.indptr[row] + size; });
const LAZY = A;
const LAST = breakpoints.length; // index of the last of the LAST + 1 policies, which is always lazy

/** The index of the optimal policy at a price: the number of breakpoints that are at most eta. */
function segmentOf(eta) {
  let low = 0, high = LAST;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (breakpoints[middle] <= eta) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A price at which policy `segment` is the only optimal policy. */
function insideOf(segment) {
  if (LAST === 0) return 0;
  if (segment === 0) return breakpoints[0] / 2;
  if (segment === LAST) return 1.1 * breakpoints[LAST - 1];
  const middle = (breakpoints[segment - 1] + breakpoints[segment]) / 2;
  return middle < breakpoints[segment] ? middle : breakpoints[segment - 1];
}

/** [S] actions of policy `segment`: all switches from the largest price down to it. */
function segmentAction(segment) {
  const action = new Int32Array(S).fill(LAZY);
  for (let i = switches.length - 4; i >= 0 && switches[i] >= segment; i -= 4) action[switches[i + 1]] = switches[i + 2];
  return action;
}

/** [S] optimal actions at a price; a tie is lazy. */
function actionAt(eta, segment) {
  const action = segmentAction(segment);
  if (segment === 0 || breakpoints[segment - 1] !== eta) return action;
  for (let i = 0; i < switches.length; i += 4) {
    if (switches[i] === segment - 1 && switches[i + 2] === LAZY) action[switches[i + 1]] = LAZY;
  }
  return action;
}

/**
 * Everything the page shows at a price. The lazy-gaps come from one Bellman backup of the values.
 * `exact` is false while the values of this policy are still being computed; the choices are always exact.
 */
function answerAt(eta) {
  const segment = segmentOf(eta);
  const action = actionAt(eta, segment);
  const { values: base, counts: count, exact } = lineOf(segment);
  const value = base.map((v, s) => v - eta * count[s]);
  const q = new Float64Array(S * A);
  const gap = new Float64Array(S);
  let controls = 0;
  for (let s = 0; s < S; s++) {
    if (action[s] < LAZY) controls++;
    if (data.absorbing[s]) continue;
    let best = -Infinity;
    for (let row = s * A; row < (s + 1) * A; row++) {
      let ahead = 0;
      for (let k = data.indptr[row]; k < data.indptr[row + 1]; k++) ahead += data.probabilities[k] * value[data.indices[k]];
      q[row] = data.rewards[row] - eta + gamma * ahead;
      best = Math.max(best, q[row]);
    }
    for (let row = s * A; row < (s + 1) * A; row++) gap[s] += data.defaultPolicy[row] * (best - q[row]);
  }
  const tie = segment > 0 && breakpoints[segment - 1] === eta;
  return { eta, segment, tie, exact, action, count, base, value, q, gap, controls };
}

/** The best mixture of two policies with at most `budget` expected controls; EtaPath.for_control_count. */
function forControlCount(budget) {
  if (budget >= startCounts[0]) return { eta: 0, below: 0, weight: 1, value: startValues[0], count: startCounts[0] };
  const above = startCounts.findIndex((count) => count <= budget);
  const below = above - 1;
  const weight = (budget - startCounts[above]) / (startCounts[below] - startCounts[above]);
  const mix = (numbers) => weight * numbers[below] + (1 - weight) * numbers[above];
  return { eta: breakpoints[below], below, weight, value: mix(startValues), count: mix(startCounts) };
}
