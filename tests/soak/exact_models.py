"""Random models of every difficult kind, and the library's answers about them against rational arithmetic.

Pytest does not collect this file. `make soak` calls `check_models`, or run it alone:

    PYTHONPATH=src:tests python tests/soak/exact_models.py 10000

An answer is *wrong* if it differs from the exact one by more than it claims: a value by more than its error bound,
control that is not better than being lazy, a price or a policy by more than rounding errors allow. A question that is
refused with a reason is *refused*, and *needless* if the model lives so short (`H <= 1e6`) that rounding is no excuse.
"""

import sys
import time
import warnings
from collections import Counter, defaultdict
from fractions import Fraction
from unittest.mock import patch

import numpy as np
from model_kinds import KINDS
from rational import Rational

import lazymdp as lz
from lazymdp.exact import path_exact, path_sparse
from lazymdp.exact.algorithms import METHODS

EPS = float(np.finfo(float).eps)
SHORT_LIVED = 1e6


def check_models(n, seed=0):
    """Checks `n` random models and counts the outcomes of each kind.

    Returns:
        `{kind: Counter}` with the counts `models`, `answers`, `wrong`, `refused` and `needless`, and a list of
        descriptions of everything that was wrong or needless.
    """
    counts, problems = defaultdict(Counter), []
    kinds = sorted(KINDS)
    for index in range(n):
        kind = kinds[index % len(kinds)]
        outcome, found = check_model(kind, np.random.default_rng([seed, index]))
        counts[kind] += outcome
        problems += [f"{kind}, default_rng([{seed}, {index}]): {problem}" for problem in found]
    return dict(counts), problems


def check_model(kind, rng):
    """Checks one model; returns its counts and what was wrong."""
    model = KINDS[kind](rng)
    exact = Rational(*model)
    outcome, problems = Counter(models=1), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lz.NotConverged)
        for question in (solution, horizon, evaluation, bounds, path, path_within_tol, optimal):
            before = len(problems)
            try:
                question(model, exact, rng, problems)
                outcome["answers"] += 1
            except ValueError as error:
                if "cannot be told from infinite" not in str(error) and "long-run" not in str(error):
                    problems.append(f"{question.__name__} raised {error}")
                outcome["refused"] += 1
                if lifetime(exact) <= SHORT_LIVED:
                    outcome["needless"] += 1
                    problems.append(f"{question.__name__} refused a model that lives {lifetime(exact):.1e} steps")
            outcome["wrong"] += len(problems) > before and "refused a model" not in problems[-1]
    return outcome, problems


# -- the questions ---------------------------------------------------------------------------------------------------


def parts(model):
    transitions, rewards, gamma, _, default = model
    return lz.MDP(transitions, rewards, gamma), default


def lifetime(exact):
    """Largest expected number of steps under any policy; inf if it is not finite."""
    steps = exact.longest
    return float(max(steps, default=0)) if steps is not None else np.inf


def noise(exact, model, *values):
    """What rounding may do to values: proportional to the lifetime and to the largest value."""
    largest = max([float(np.abs(model[1]).max()), *(abs(float(v)) for value in values for v in value)])
    return 64.0 * EPS * largest * min(lifetime(exact), 1e15)


def solution(model, exact, rng, problems):
    mdp, default = parts(model)
    eta = price(exact, model, rng)
    method = str(rng.choice(sorted(METHODS)))
    if lifetime(exact) > 2e3 and method not in ("auto", "policy_iteration"):
        method = "policy_iteration"  # sweeps would take for ever
    found = lz.solve(lz.LazyMDP(mdp, default, eta), method=method, max_iterations=20_000)
    if found.error_bound == np.inf:
        if lifetime(exact) <= SHORT_LIVED and method == "policy_iteration":
            problems.append(f"{method} proved nothing at eta = {eta!r}")
        return
    truth = exact.optimum(Fraction(eta))
    if truth is None:
        problems.append(f"{method} proved an error of {found.error_bound} for values that are not finite")
        return
    value, q, _ = truth
    for i, s in enumerate(exact.alive):
        if abs(Fraction(float(found.value[s])) - value[i]) > Fraction(found.error_bound):
            problems.append(f"{method}: value {found.value[s]} in {s}, truth {float(value[i])}, eta = {eta!r}")
        if found.control[s] and max(q[i][:-1]) <= q[i][-1]:
            problems.append(f"{method}: control in {s} is not better than being lazy, eta = {eta!r}")


def horizon(model, exact, rng, problems):
    mdp, default = parts(model)
    eta = price(exact, model, rng)
    steps = int(rng.integers(1, 4))
    found = lz.solve(lz.LazyMDP(mdp, default, eta), horizon=steps)
    value = [Fraction(0)] * len(exact.alive)
    for t in reversed(range(steps)):
        q = exact.backed_up(value, Fraction(eta))
        value = [max(row) for row in q]
        for i, s in enumerate(exact.alive):
            if abs(Fraction(float(found.value[t, s])) - value[i]) > Fraction(found.error_bound):
                problems.append(f"horizon: value {found.value[t, s]} in {s} at {t}, truth {float(value[i])}")
            if found.control[t, s] and max(q[i][:-1]) <= q[i][-1]:
                problems.append(f"horizon: control in {s} at {t} is not better than being lazy, eta = {eta!r}")


def evaluation(model, exact, rng, problems):
    mdp, default = parts(model)
    action = rng.integers(mdp.n_actions + 1, size=mdp.n_states)
    found = lz.evaluate(lz.LazyMDP(mdp, default, 0.5), action)
    truth = exact.lines([int(action[s]) for s in exact.alive])
    if truth is None:
        problems.append("evaluate answered for values that are not finite")
        return
    for name, line, got in zip(("V", "K"), truth, (found.base_value, found.control_count), strict=False):
        allowed = noise(exact, model, line)
        for i, s in enumerate(exact.alive):
            if not abs(got[s] - float(line[i])) <= allowed:
                problems.append(f"evaluate: {name} = {got[s]} in {s}, truth {float(line[i])}")


def bounds(model, exact, rng, problems):
    mdp, default = parts(model)
    scale = mdp.max_reward
    top, truth = lz.eta_max(mdp, default), exact.eta_max
    if truth is None:
        problems.append("eta_max answered for values that are not finite")
        return
    allowed = noise(exact, model, exact.lines([exact.n_actions] * len(exact.alive))[0])
    if not abs(top - float(truth)) <= min(allowed, 1e-4 * scale):
        problems.append(f"eta_max is {top}, truth {float(truth)}")
    bottom, truth = lz.eta_min(mdp, default), exact.eta_min
    if truth is None:
        problems.append("eta_min answered for values that are not finite")
        return
    if not bottom <= top + allowed:
        problems.append(f"eta_min is {bottom}, above eta_max = {top}")
    if not abs(bottom - float(truth)) <= 1e-9 * max(float(truth), scale) + 10.0 * allowed:
        problems.append(f"eta_min is {bottom}, truth {float(truth)}")
    formula = lz.eta_min_theorem(mdp, default)
    if formula.holds and not abs(formula.value - float(truth)) <= 1e-9 * max(float(truth), scale) + 10.0 * allowed:
        problems.append(f"eta_min_theorem holds with {formula.value}, truth {float(truth)}")


def path_by(walk, mdp, default, steps=3):
    """Computes the path by one of the walks, all of which small models would not see; few steps between factors."""
    with (
        patch.object(path_exact, "is_sparse", lambda lazy: walk != "tableau"),
        patch.object(path_sparse, "stays_sparse", lambda matrix: walk == "factors"),
        patch.object(path_sparse, "_STEPS", steps),
    ):
        return lz.eta_path(mdp, default)


def path(model, exact, rng, problems):
    mdp, default = parts(model)
    walk = str(rng.choice(["tableau", "tableau", "factors", "inverse"]))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = path_by(walk, mdp, default)
    if warned and lifetime(exact) <= SHORT_LIVED:
        problems.append(f"eta_path ({walk}) warned of a model that lives {lifetime(exact):.1e} steps")
    if exact.eta_max == 0 and found.breakpoints.size:
        problems.append(f"{found.breakpoints.size} breakpoints, up to {found.breakpoints[-1]}, where eta_max is 0")
    prices = [0.0, abs(price(exact, model, rng))]
    if found.breakpoints.size:
        prices.append(float(rng.choice(found.breakpoints)) * float(rng.choice([0.999, 1.001])))
    for eta in prices:
        truth = exact.optimum(Fraction(eta))
        if truth is None:
            problems.append(f"eta_path answered for values that are not finite at {eta!r}")
            return
        value, q, _ = truth
        allowed = noise(exact, model, value)
        got, action = found.value_at(eta), found.action_at(eta)
        for i, s in enumerate(exact.alive):
            if not abs(got[s] - float(value[i])) <= allowed:
                problems.append(f"eta_path ({walk}): value {got[s]} in {s} at {eta!r}, truth {float(value[i])}")
            lost = float(value[i] - q[i][action[s]])
            if not lost <= allowed:
                problems.append(f"eta_path ({walk}): action {action[s]} in {s} at {eta!r} loses {lost}")


def path_within_tol(model, exact, rng, problems):
    mdp, default = parts(model)
    value = exact.optimum(Fraction(0)) or [[0]]
    largest = max(float(np.abs(model[1]).max()), float(exact.eta_max or 0), *(abs(float(v)) for v in value[0]))
    tol = max(largest * 10.0 ** -float(rng.uniform(0, 7)), 1e-300)
    try:
        found = lz.eta_path(mdp, default, tol=tol)
    except ValueError as error:
        # A proof by sweeps multiplies the rounding errors of values, which grow with the lifetime, by the lifetime.
        if "cannot be proven" in str(error) and tol <= EPS * largest * (2000.0 + 16.0 * lifetime(exact)) * lifetime(
            exact
        ):
            return
        raise
    prices = [0.0, abs(price(exact, model, rng)), float(exact.eta_max or 0) * float(rng.uniform(0.0, 1.1))]
    for eta in [*prices, *map(float, rng.permutation(found.breakpoints)[:2])]:
        truth = exact.optimum(Fraction(eta))
        if truth is None:
            problems.append(f"eta_path(tol={tol}) answered for values that are not finite at {eta!r}")
            return
        got = found.value_at(eta)
        for i, s in enumerate(exact.alive):
            if not abs(got[s] - float(truth[0][i])) <= tol:
                problems.append(f"eta_path(tol={tol!r}): value {got[s]} in {s} at {eta!r}, truth {float(truth[0][i])}")


def optimal(model, exact, rng, problems):
    mdp, _ = parts(model)
    found = lz.policies.optimal(mdp)
    truth = exact.optimum(Fraction(0), lazy=False)
    if truth is None:
        problems.append("policies.optimal answered for values that are not finite")
        return
    value, q, _ = truth
    allowed = noise(exact, model, value)
    for i, s in enumerate(exact.alive):
        for a in range(mdp.n_actions):
            lost = value[i] - q[i][a]
            if found[s, a] == 0.0 and lost == 0:
                problems.append(f"policies.optimal leaves out action {a} in {s}, which ties")
            if found[s, a] > 0.0 and not float(lost) <= allowed:
                problems.append(f"policies.optimal takes action {a} in {s}, which loses {float(lost)}")


def price(exact, model, rng):
    """A price near those that matter: often exactly a lazy-gap, where control and being lazy tie."""
    top = exact.eta_max
    if top is None or rng.random() < 0.2:
        return float(rng.choice([0.0, 0.1, 1.0])) * float(np.abs(model[1]).max())
    return float(top) * float(rng.choice([0.0, 0.3, 1.0 - EPS, 1.0, 1.0, 1.1, -0.1]))


def table(counts):
    """The counts as text, one line per kind."""
    columns = ("models", "answers", "wrong", "refused", "needless")
    lines = [f"{'kind':<14}" + "".join(f"{name:>10}" for name in columns)]
    total = sum(counts.values(), Counter())
    for kind, found in [*sorted(counts.items()), ("all", total)]:
        lines.append(f"{kind:<14}" + "".join(f"{found[name]:>10,}" for name in columns))
    return "\n".join(lines)


if __name__ == "__main__":
    started = time.time()
    counted, wrong = check_models(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, *map(int, sys.argv[2:3]))
    print(table(counted), *wrong[:50], f"{time.time() - started:.0f} s", sep="\n")
    sys.exit(bool(wrong))
