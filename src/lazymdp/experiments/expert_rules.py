"""Dials on top of rules that nobody trained: how little control improves on an expert?

Each default policy is a rule. *lander* is the heuristic that comes with LunarLander-v3 in Gymnasium. *car* drives
MountainCar-v0 back and forth: to the right if `v + slope (turn - x) > 0`, for the position x and the velocity v, else
to the left. *pole* balances CartPole-v1 by its pole alone: to the right if `angle + weight x angular velocity > 0`. The
numbers of these two rules are the best of a grid, in episodes that are not used again (table `tuning`). *lean* is the
textbook rule without tuning, to the right if the pole leans to the right. On top of each rule, a dial is trained with
the default settings of `dqn` for control problems, and evaluated at each of its prices.

Return of the dial (interquartile mean over seeds, 95% bootstrap intervals) against its control rate, one point per
price. The dotted line is the rule alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, INK
from lazymdp._provenance import machine
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import Parts
from lazymdp.measure.statistics import Interval, iqm_interval
from lazymdp.show import styled

TITLE = "Expert rules: how little control improves on them"
NEEDS_GPU = True
SLOPE, TURN = 0.02, -0.45
"""The rule of *car*: the best of `CAR_GRID`."""
CAR_GRID = [(slope, turn) for slope in (0.0, 0.01, 0.02, 0.03, 0.04, 0.05) for turn in (-0.5, -0.45, -0.4, -0.35, -0.3)]
WEIGHT = 0.1
"""The rule of *pole*: the best of `POLE_GRID`, the first one if several are perfect."""
POLE_GRID = [0.0, 0.1, 0.25, 0.5, 1.0, 2.0]

Rule = Callable[[NDArray[Any]], NDArray[Any]]
"""Maps `[B, ...]` observations to `[B]` actions."""


def lander(seen: NDArray[Any]) -> NDArray[np.int64]:
    """Return the actions of Gymnasium's `lunar_lander.heuristic` for `[B, 8]` observations, all at once."""
    x, y, right, up, angle, turning, left_leg, right_leg = seen.T
    stands = (left_leg != 0) | (right_leg != 0)
    target = np.clip(0.5 * x + right, -0.4, 0.4)  # the angle should point toward the center
    turn = np.where(stands, 0.0, 0.5 * (target - angle) - turning)
    lift = np.where(stands, -0.5 * up, 0.5 * (0.55 * np.abs(x) - y) - 0.5 * up)
    tilt = np.select([turn < -0.05, turn > 0.05], [3, 1], 0)
    return np.where((lift > np.abs(turn)) & (lift > 0.05), 2, tilt)


def car(seen: NDArray[Any], slope: float = SLOPE, turn: float = TURN) -> NDArray[np.int64]:
    """Return the actions of the rule for MountainCar for `[B, 2]` observations."""
    return np.where(seen[:, 1] + slope * (turn - seen[:, 0]) > 0.0, 2, 0)


def pole(seen: NDArray[Any], weight: float = WEIGHT) -> NDArray[np.int64]:
    """Return the actions of the rule for CartPole for `[B, 4]` observations."""
    return (seen[:, 2] + weight * seen[:, 3] > 0.0).astype(np.int64)


def lean(seen: NDArray[Any]) -> NDArray[np.int64]:
    """Return the actions of the rule for CartPole that knows only the side to which the pole leans."""
    return pole(seen, 0.0)


class Case(NamedTuple):
    """A rule, its environment and the training of a dial on top of it."""

    env: str
    rule: Rule
    steps: int
    eta: tuple[float, float]


CASES = {
    "lander": Case("LunarLander-v3", lander, 150_000, (0.05, 5.0)),
    "car": Case("MountainCar-v0", car, 120_000, (0.005, 1.0)),
    "pole": Case("CartPole-v1", pole, 100_000, (0.005, 5.0)),
    "lean": Case("CartPole-v1", lean, 100_000, (0.005, 5.0)),
}
"""The default policies by name."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = tuple(CASES)
    """Rules; each can be run separately into the same folder."""
    seeds: int = 5
    """Number of dials per rule."""
    share: float = 1.0
    """Training steps as a share of the usual number."""
    episodes: int = 100
    """Evaluation episodes per dial and price."""
    tuning_episodes: int = 100
    """Episodes per setting of a rule in the table `tuning`."""


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs: one per rule and seed."""
    unknown = [name for name in config.games if name not in CASES]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(CASES)}.")
    return [f"{name}_{seed}" for name in config.games for seed in range(config.seeds)]


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate a dial on top of every rule; finished runs are saved in `parts`."""
    made = {"runs": run_jobs(jobs(config), lambda job: make_job(config, job), progress, parts)}
    tuned = [name for name in config.games if name in ("car", "pole")]
    if tuned:
        made["tuning"] = stacked([tuning(name, config.tuning_episodes) for name in tuned])
    return made


def make_job(config: Config, job: str) -> Table:
    """Train a dial and evaluate it. This is the only function here that uses `lazymdp.learn.deep`."""
    try:
        from lazymdp.learn.deep.trainer import train
    except ImportError as error:
        raise ImportError(f"training needs JAX ({error}): pip install 'lazymdp[deep]' 'gymnasium[box2d]'") from error

    name, seed = job.split("_")[0], int(job.split("_")[1])
    case = CASES[name]
    steps = round(config.share * case.steps)
    n_actions = int(gym.make(case.env).action_space.n)  # type: ignore[attr-defined]

    def default_policy(seen: NDArray[Any]) -> NDArray[np.float64]:
        return np.eye(n_actions)[case.rule(np.asarray(seen))]

    trained = train(case.env, algorithm="dqn", eta=case.eta, steps=steps, default_policy=default_policy, seed=seed)
    played = trained.evaluate(episodes=config.episodes, seed=seed)
    alone = played.default_alone
    assert alone is not None
    returns = np.concatenate([played.returns, alone.returns])
    return table(
        game=name, seed=seed, eta=[*played.etas, np.inf], steps=steps, episodes=config.episodes,
        mean_return=returns.mean(-1).round(4), std_return=returns.std(-1).round(4),
        control_rate=np.round([*played.control_rate, 0.0], 5), machine=machine(),
    )  # fmt: skip


def tuning(name: str, episodes: int) -> dict[str, NDArray[Any]]:
    """Return the mean return of a rule for every setting of its grid, in episodes with seeds from 10,000."""
    grid: list[tuple[float, ...]] = [(weight,) for weight in POLE_GRID] if name == "pole" else [*CAR_GRID]
    rule: Any = pole if name == "pole" else car
    seeds = range(10_000, 10_000 + episodes)
    returns = [_play(CASES[name].env, lambda seen, one=one: rule(seen, *one), seeds).mean() for one in grid]  # type: ignore[misc]
    words = [" ".join(f"{number:g}" for number in one) for one in grid]
    return table(game=name, setting=words, episodes=episodes, mean_return=np.round(returns, 3))


def _play(env_id: str, rule: Rule, seeds: range) -> NDArray[np.float64]:
    """Return the returns of a rule in episodes with these seeds, which are played at the same time."""
    envs = [gym.make(env_id) for _ in seeds]
    seen = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    returns, alive = np.zeros(len(seeds)), np.ones(len(seeds), dtype=bool)
    while alive.any():
        actions = rule(seen)
        for place in np.flatnonzero(alive):
            seen[place], reward, terminated, truncated, _ = envs[place].step(int(actions[place]))
            returns[place] += float(reward)
            alive[place] = not (terminated or truncated)
    return returns


# -- from the data -----------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A dial at one price: its return over seeds, and its mean control rate."""

    eta: float
    returns: Interval
    control_rate: float


def frontier(rows: Table, name: str) -> list[Point]:
    """Return the points of a rule by increasing price; the last one, at an infinite price, is the rule alone."""
    here = rows["game"] == name
    points = []
    for eta in np.unique(rows["eta"][here]):
        at = here & (rows["eta"] == eta)
        points.append(Point(float(eta), iqm_interval(rows["mean_return"][at]), float(rows["control_rate"][at].mean())))
    return points


def least_control(points: list[Point]) -> Point | None:
    """Return the point with the lowest control rate whose return is above the rule's, without overlap."""
    alone = points[-1].returns
    better = [point for point in points[:-1] if point.returns.low > alone.high]
    return min(better, key=lambda point: point.control_rate, default=None)


def claims(data: Tables) -> list[Claim]:
    """Check that little control improves on the rules, and none is taken where nothing can be gained."""
    rows, found = data["runs"], []
    for name in (name for name in CASES if name in rows["game"]):
        points = frontier(rows, name)
        alone = points[-1].returns
        said = f"{alone.mean:.1f} [{alone.low:.1f}, {alone.high:.1f}]"
        if name != "pole":
            least = least_control(points)
            words = "never" if least is None else (
                f"{least.control_rate:.1%} at eta = {least.eta:g}: {least.returns.mean:.1f} "
                f"[{least.returns.low:.1f}, {least.returns.high:.1f}]"
            )  # fmt: skip
            text = f"{name}: the least control whose return is above the rule's {said}, without overlap"
            found.append(Claim(text, "< 10% of the steps", words, least is not None and least.control_rate < 0.1))
        else:
            kept = max(points[1:-1], key=lambda point: point.control_rate)
            text = "pole: the rule is perfect, so control is wasted at every price above 0 (the most at any price)"
            found.append(Claim(text, "<= 1% of the steps", f"{kept.control_rate:.1%}", kept.control_rate <= 0.01))
        best = max(points[:-1], key=lambda point: float(point.returns.mean))
        text = f"{name}: at its best price, the dial is at least as good as the rule"
        holds = bool(best.returns.mean >= alone.mean)
        found.append(Claim(text, f">= {alone.mean:.1f}", f"{best.returns.mean:.1f} at eta = {best.eta:g}", holds))
        last = points[-2]
        text = f"{name}: at the highest price, the dial is the rule"
        found.append(Claim(text, "<= 1% control", f"{last.control_rate:.1%}", last.control_rate <= 0.01))
    return found


def plot(data: Tables) -> Figure:
    """Draw the return against the control rate, one panel per rule."""
    rows = data["runs"]
    names = [name for name in CASES if name in rows["game"]]
    with styled():
        figure, axes = plt.subplots(1, len(names), figsize=(2.9 * len(names) + 0.4, 2.9), squeeze=False)
        for ax, name in zip(axes.flat, names, strict=True):
            *points, alone = frontier(rows, name)
            ax.axhline(float(alone.returns.mean), color=INK, linestyle=":", linewidth=1.0)
            mean = np.array([float(point.returns.mean) for point in points])
            off = [
                (point.returns.mean - point.returns.low, point.returns.high - point.returns.mean) for point in points
            ]
            look: dict[str, Any] = dict(color=CONTROL, marker="o", markersize=4, elinewidth=0.8, linestyle="-")
            rates = [100 * point.control_rate for point in points]
            ax.errorbar(rates, mean, np.maximum(np.array(off, dtype=float).T, 0.0), **look)
            ax.set_title(f"{name} ({CASES[name].env.partition('-')[0]})")
        figure.supxlabel("control rate (% of the steps)")
        figure.supylabel("return")
    return figure
