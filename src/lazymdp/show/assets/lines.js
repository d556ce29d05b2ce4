// V and K of every policy. The page stores them for some policies, the keyframes. For the others, the browser solves
// V = r + gamma P V and the same for K, from the nearest keyframe, by GMRES on Gauss-Seidel sweeps.

const ACCURACY = 1e-10; // largest error of V and K, relative to their largest entry
const RESTART = 24; // sweeps per cycle of GMRES
const SLICE = 12; // milliseconds of computation per frame, so that the page stays responsive
const KEPT = Math.max(8, Math.floor(64e6 / (16 * S))); // number of computed lines to keep

const stored = new Map(Array.from(data.keyframes, (segment, i) => [segment, {
  values: data.values.subarray(i * S, (i + 1) * S), counts: data.counts.subarray(i * S, (i + 1) * S), exact: true,
}]));
const computed = new Map(); // segment -> line, the most recently used last
let work = null; // the evaluation in progress: { segment, line, steps }
let whenExact = () => {}; // called when the line that was asked for last has become exact

/** The line of a policy. If it is not `exact` yet, it is computed in the background, and `whenExact` is called then. */
function lineOf(segment) {
  const known = stored.get(segment) ?? computed.get(segment);
  if (known) {
    if (work && work.segment !== segment) work = null;
    if (computed.delete(segment)) computed.set(segment, known);
    return known;
  }
  if (work?.segment !== segment) {
    const near = nearestLine(segment);
    const line = { values: near.values.slice(), counts: near.counts.slice(), exact: false };
    work = { segment, line, steps: evaluation(line, segmentAction(segment)) };
    if (!advance()) schedule();
  }
  return computed.get(segment) ?? work.line;
}

function nearestLine(segment) {
  let best = 0;
  const known = [...stored.keys(), ...computed.keys()];
  for (const other of known) if (Math.abs(other - segment) <= Math.abs(best - segment)) best = other;
  return stored.get(best) ?? computed.get(best);
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (work === null) return; // the slider has moved on to a policy that is known
    if (advance()) whenExact();
    else schedule();
  });
}

/** Computes for one slice of time; returns whether the line is exact now. */
function advance() {
  const end = performance.now() + SLICE;
  while (performance.now() < end) {
    if (!work.steps.next().done) continue;
    const { segment, line } = work;
    line.exact = true;
    computed.set(segment, line);
    if (computed.size > KEPT) computed.delete(computed.keys().next().value);
    work = null;
    return true;
  }
  return false;
}

/** Evaluates a policy: writes V and K into `line`, one sweep per step of the generator. */
function* evaluation(line, action) {
  const chain = chainOf(action);
  yield* solveChain(chain, chain.rewards, line.values);
  yield* solveChain(chain, chain.controls, line.counts);
}

/** The Markov chain of a policy: transitions without self-loops, by rows, times gamma. */
function chainOf(action) {
  const { indptr, indices, probabilities, rewards, defaultPolicy, absorbing } = data;
  const start = new Int32Array(S + 1), stay = new Float64Array(S).fill(1);
  const chain = { start, stay, rewards: new Float64Array(S), controls: new Float64Array(S) };
  let size = 0;
  const each = (s, visit) => { // calls visit(row, weight) for the actions that the policy takes in state s
    if (absorbing[s]) return;
    if (action[s] < LAZY) visit(s * A + action[s], 1);
    else for (let row = s * A; row < (s + 1) * A; row++) if (defaultPolicy[row] > 0) visit(row, defaultPolicy[row]);
  };
  for (let s = 0; s < S; s++) each(s, (row) => { size += indptr[row + 1] - indptr[row]; });
  chain.next = new Int32Array(size);
  chain.weight = new Float64Array(size);
  let end = 0;
  for (let s = 0; s < S; s++) {
    chain.controls[s] = action[s] < LAZY && !absorbing[s] ? 1 : 0;
    each(s, (row, weight) => {
      chain.rewards[s] += weight * rewards[row];
      for (let k = indptr[row]; k < indptr[row + 1]; k++) {
        const p = gamma * weight * probabilities[k];
        if (indices[k] === s) stay[s] -= p;
        else { chain.next[end] = indices[k]; chain.weight[end++] = p; }
      }
    });
    start[s + 1] = end;
  }
  return chain;
}

/** A Gauss-Seidel sweep forward and one backward, in place: x <- G x + c; without `gains`, x <- G x. */
function sweep({ start, stay, next, weight }, gains, x) {
  for (let step = 0; step < 2 * S; step++) {
    const s = step < S ? step : 2 * S - 1 - step;
    let sum = gains === null ? 0 : gains[s];
    for (let k = start[s]; k < start[s + 1]; k++) sum += weight[k] * x[next[k]];
    x[s] = sum / stay[s];
  }
}

/** Solves x = G x + c by restarted GMRES; plain sweeps, which always converge, get it out of a standstill. */
function* solveChain(chain, gains, x) {
  let before = Infinity;
  for (;;) {
    const residual = x.slice();
    sweep(chain, gains, residual);
    let largest = 0, scale = 0;
    for (let s = 0; s < S; s++) {
      residual[s] -= x[s];
      largest = Math.max(largest, Math.abs(residual[s]));
      scale = Math.max(scale, Math.abs(x[s]), Math.abs(gains[s]));
    }
    // A sweep contracts by at least gamma: the error is at most largest / (1 - gamma). Rounding limits the residual.
    if (largest <= scale * Math.max(ACCURACY * Math.max(1 - gamma, 1e-5), 4e-16)) return;
    if (largest < 1e-13 * scale && largest > 0.5 * before) return; // no progress: rounding errors
    if (largest > 0.9 * before) for (let i = 0; i < RESTART; i++) { sweep(chain, gains, x); yield; }
    else yield* minimizeResidual(chain, residual, x);
    before = largest;
  }
}

/** One cycle of GMRES (Arnoldi with Givens rotations): adds to x the best correction in the Krylov space. */
function* minimizeResidual(chain, residual, x) {
  const norm = (v) => Math.sqrt(v.reduce((sum, a) => sum + a * a, 0));
  const size = norm(residual);
  const basis = [residual.map((a) => a / size)];
  const columns = [], turns = [], right = [size];
  while (columns.length < RESTART) {
    const j = columns.length;
    const image = basis[j].slice();
    sweep(chain, null, image);
    for (let s = 0; s < S; s++) image[s] = basis[j][s] - image[s];
    const column = [];
    for (const v of basis) {
      let dot = 0;
      for (let s = 0; s < S; s++) dot += v[s] * image[s];
      for (let s = 0; s < S; s++) image[s] -= dot * v[s];
      column.push(dot);
    }
    const rest = norm(image);
    turns.forEach(([c, d], i) => {
      [column[i], column[i + 1]] = [c * column[i] + d * column[i + 1], c * column[i + 1] - d * column[i]];
    });
    const long = Math.hypot(column[j], rest);
    if (long === 0) break;
    const [c, d] = [column[j] / long, rest / long];
    column[j] = long;
    columns.push(column);
    turns.push([c, d]);
    right.push(-d * right[j]);
    right[j] *= c;
    yield;
    if (rest <= 1e-14 * size || Math.abs(right[j + 1]) <= 1e-13 * size) break;
    basis.push(image.map((a) => a / rest));
  }
  for (let i = columns.length - 1; i >= 0; i--) {
    for (let k = i + 1; k < columns.length; k++) right[i] -= columns[k][i] * right[k];
    right[i] /= columns[i][i];
    for (let s = 0; s < S; s++) x[s] += right[i] * basis[i][s];
  }
  yield;
}
