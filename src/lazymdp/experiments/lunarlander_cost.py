"""LunarLander with a price per engine burst: our agents against an independent comparison.

A thesis of 2026 (https://github.com/hyeseongjeon5-png/when-to-act-rl, a draft) charges `lambda` for every executed
action other than the no-op, trains DQN, TempoRL and its own Lazy-MDP agent for 200,000 steps at each `lambda`, and
compares them with rules. Its `lambda` is our price `eta` over the default policy `noop`: a lazy step executes the no-op
for free, and any other action has to be taken in control. The no-op can be chosen in control, too, and would be charged
here but not there. In the structured form this makes no difference: the value of being lazy is that of the no-op plus
the price, so a greedy agent never chooses the no-op in control (a tie is lazy), and the targets never assume that it
does. We train on `eta = lambda`, but score as the thesis does: by counting executed actions other than the no-op, in
episodes that start from the seeds of the thesis (500,000 + 1,000 x seed + number of the episode).

*specialist* is one `dqn` run for one price, *dial* one run for all prices from 0.3 to 3, each with 200,000 steps and
the defaults of `dqn` for control problems. Nothing was tuned for this study. (The defaults were chosen before, in runs
on LunarLander and other problems over a uniform default policy.) *cold* is the specialist without the warm-up of its
price. We evaluate the final network without exploration; the thesis takes the mean of three networks, after 90, 95 and
100% of the steps.

Return minus `eta` times the number of executed actions other than the no-op: interquartile mean over 10 seeds with 95%
bootstrap intervals, against the price. The gray lines are the published agents and rules; *heuristic* is the rule that
comes with the environment in Gymnasium, which the thesis does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp._provenance import machine
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, table
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import Parts
from lazymdp.measure.statistics import Interval, iqm_interval
from lazymdp.show import styled

TITLE = "LunarLander: return minus the price of every executed action, against a thesis"
NEEDS_GPU = True
ENV = "LunarLander-v3"
NOOP = 0
ETAS = (0.0, 0.6, 1.6, 2.0)
PUBLISHED = {
    "DQN": (189.0, 90.0, -150.0, -134.0),
    "TempoRL": (159.0, 59.0, -200.0, -153.0),
    "Lazy-MDP": (210.0, 103.0, -56.0, -157.0),
    "tuned rule": (162.0, 65.0, -99.0, -164.0),
    "never acting": (-131.3, -131.3, -131.3, -131.3),
}
"""Interquartile means over 10 seeds, at the prices `ETAS`."""
NEVER = (-133.7, -128.7)
"""Published 95% interval of never acting."""
RULES = ("never", "heuristic")
"""Policies that are not trained: never acting, and the heuristic that comes with the environment in Gymnasium."""
VARIANTS: dict[str, dict[str, Any]] = {
    "specialist": {},
    "cold": {"zero_fraction": 0.0},
    "dial": {"eta": (0.3, 3.0)},
}
"""Settings of `dqn` that differ from its defaults for control problems; an agent without `eta` is a specialist."""
LOOKS = {"specialist": (INK, "s", "-"), "dial": (CONTROL, "o", "-"), "cold": (INK, "v", "--"),
         "heuristic": (INK, "", ":")}  # fmt: skip
"""Color, marker and line style of the agents in the figure."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = (ENV,)
    """The environment."""
    agents: tuple[str, ...] = ("specialist", "dial", "cold")
    """Agents: one price each, one dial for all, one price each without a warm-up."""
    etas: tuple[float, ...] = ETAS
    """Prices."""
    seeds: int = 10
    """Number of runs per agent, and per price for a specialist."""
    seed: int = 0
    """Seed of the first run; a run trains with its seed plus 1,000."""
    steps: int = 200_000
    """Training steps of each run."""
    episodes: int = 100
    """Evaluation episodes per run and price."""


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs: one per run, and one for all rules."""
    unknown = [agent for agent in config.agents if agent not in VARIANTS]
    if unknown:
        raise ValueError(f"agents has {unknown[0]!r}, expected one or more of {', '.join(VARIANTS)}.")
    names = ["rules"]
    ready = [agent for agent in config.agents if agent != "cold"]
    for agents in (ready, [agent for agent in config.agents if agent == "cold"]):
        for first in range(config.seed, config.seed + config.seeds, 5):  # so that a part of the study is of use
            seeds = range(first, min(first + 5, config.seed + config.seeds))
            for agent in sorted(agents, key=lambda agent: "eta" not in VARIANTS[agent]):  # the dials take longest
                prices = ("dial",) if "eta" in VARIANTS[agent] else _charged(agent, config.etas)
                names += [f"{agent}_{price}_{seed}" for seed in seeds for price in prices]
    return names


def _charged(agent: str, etas: tuple[float, ...]) -> tuple[float, ...]:
    """Return the prices for which a specialist is trained: without a price, there is nothing to warm up."""
    return etas if VARIANTS[agent].get("zero_fraction") is None else tuple(eta for eta in etas if eta > 0.0)


def make_job(config: Config, job: str) -> Table:
    """Do one job: train and evaluate an agent, or evaluate the rules."""
    if job == "rules":
        return _rules(config)
    agent, price, seed = job.split("_")
    return _train_and_evaluate(config, agent, config.etas if price == "dial" else (float(price),), int(seed))


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every agent; finished runs are saved in `parts`."""
    return {"runs": run_jobs(jobs(config), lambda job: make_job(config, job), progress, parts)}


def _train_and_evaluate(config: Config, agent: str, etas: tuple[float, ...], seed: int) -> Table:
    """Train an agent and evaluate it at each price. This is the only function here that uses `lazymdp.learn.deep`."""
    try:
        from lazymdp.learn.deep.trainer import train
    except ImportError as error:
        raise ImportError(f"training needs JAX ({error}): pip install 'lazymdp[deep]' 'gymnasium[box2d]'") from error

    began = time.process_time()
    settings = {"eta": etas[0], **VARIANTS[agent]}
    trained = train(ENV, algorithm="dqn", default_policy="noop", steps=config.steps, seed=1_000 + seed, **settings)
    seconds = time.process_time() - began
    rows = []
    for eta in etas:

        def act(observations: NDArray[Any], eta: float = eta) -> NDArray[Any]:
            chosen = np.asarray(trained.predict(observations, eta=eta)[0])
            return np.where(chosen == trained.lazy_action, NOOP, chosen)

        rows.append(play(act, _episode_seeds(config, seed)))
    return _table(agent, etas, seed, config.steps, seconds, rows)


def _rules(config: Config) -> Table:
    """Evaluate the policies that are not trained, with every seed."""
    from gymnasium.envs.box2d.lunar_lander import heuristic

    rule: Any = heuristic
    env = gym.make(ENV)
    rules: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
        "never": lambda seen: np.full(len(seen), NOOP),
        "heuristic": lambda seen: np.array([rule(env, one) for one in seen]),
    }
    parts = []
    for seed in range(config.seed, config.seed + config.seeds):
        for name, act in rules.items():
            played = play(act, _episode_seeds(config, seed))
            parts.append(_table(name, config.etas, seed, 0, 0.0, [played] * len(config.etas)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _episode_seeds(config: Config, seed: int) -> list[int]:
    return [500_000 + 1_000 * seed + number for number in range(config.episodes)]


def play(act: Callable[[NDArray[Any]], NDArray[Any]], seeds: list[int]) -> NDArray[np.float64]:
    """Play one episode per seed, all at the same time.

    Args:
        act: Returns `[N]` actions for `[N, 8]` observations.
        seeds: N seeds of episodes.

    Returns:
        `[3, N]`: the return, the number of executed actions other than the no-op, and the number of steps.
    """
    envs = [gym.make(ENV) for _ in seeds]
    seen = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    totals, alive = np.zeros((3, len(seeds))), np.ones(len(seeds), dtype=bool)
    while alive.any():
        actions = act(seen)
        for place in np.flatnonzero(alive):
            seen[place], reward, terminated, truncated, _ = envs[place].step(int(actions[place]))
            totals[:, place] += float(reward), actions[place] != NOOP, 1.0
            alive[place] = not (terminated or truncated)
    for env in envs:
        env.close()
    return totals


def _table(
    agent: str, etas: tuple[float, ...], seed: int, steps: int, seconds: float, played: list[NDArray[np.float64]]
) -> Table:
    returns, actions, lengths = np.stack(played, axis=1)  # each [E, N]
    net = returns - np.array(etas)[:, None] * actions
    return table(
        game=ENV, agent=agent, eta=etas, seed=seed, steps=steps, episodes=returns.shape[1],
        net_return=net.mean(-1).round(3), net_std=net.std(-1).round(3), mean_return=returns.mean(-1).round(3),
        actions=actions.mean(-1).round(3), length=lengths.mean(-1).round(3), seconds=round(seconds, 1),
        machine=machine(),
    )  # fmt: skip


def net_return(rows: Table, agent: str, eta: float) -> Interval:
    """Return the interquartile mean over seeds of an agent's return minus the price paid, with its interval."""
    return iqm_interval(rows["net_return"][(rows["agent"] == agent) & (rows["eta"] == eta)])


def _shown(one: Interval) -> str:
    return f"{one.mean:.1f} [{one.low:.1f}, {one.high:.1f}]"


def claims(data: Tables) -> list[Claim]:
    """Check that the score is that of the thesis, that our agents are better, and that the warm-up is needed."""
    rows = data["runs"]
    never = net_return(rows, "never", 0.0)
    found = [
        Claim(
            "Never acting has the published return, so episodes and score are those of the thesis",
            f"-131.3 [{NEVER[0]}, {NEVER[1]}]", _shown(never), bool(NEVER[0] <= never.mean <= NEVER[1]),
        )
    ]  # fmt: skip
    agents = [agent for agent in LOOKS if agent in rows["agent"]]
    for agent, words in (("specialist", "a specialist"), ("dial", "one dial for all prices")):
        for place, eta in enumerate(ETAS):
            if agent not in agents or eta not in rows["eta"]:
                continue
            ours, best = net_return(rows, agent, eta), max(PUBLISHED, key=lambda name: PUBLISHED[name][place])
            wanted = PUBLISHED[best][place]
            text = f"eta = {eta:g}: the net return of {words} is above every published one"
            found.append(Claim(text, f"> {wanted:g} ({best})", _shown(ours), bool(ours.mean > wanted)))
    for agent, words in (("specialist", "a specialist"), ("dial", "one dial for all prices")):
        for eta in ETAS:
            if agent in agents and eta in rows["eta"] and "heuristic" in rows["agent"]:
                ours, rule = net_return(rows, agent, eta), net_return(rows, "heuristic", eta)
                text = f"eta = {eta:g}: the net return of {words} is above that of Gymnasium's own heuristic"
                found.append(Claim(text, f"> {_shown(rule)}", _shown(ours), bool(ours.mean > rule.mean)))
    for eta in ETAS[1:]:
        if {"cold", "specialist"} <= set(agents) and eta in rows["eta"][rows["agent"] == "cold"]:
            warm, cold = net_return(rows, "specialist", eta), net_return(rows, "cold", eta)
            text = f"eta = {eta:g}: a specialist is better if its price rises from 0 than if it is fixed"
            found.append(Claim(text, f"> {cold.mean:.1f}", _shown(warm), bool(warm.mean > cold.mean)))
    return found


def plot(data: Tables) -> Figure:
    """Draw the net return against the price."""
    rows = data["runs"]
    with styled():
        figure, ax = plt.subplots(figsize=(5.6, 3.8))
        for place, (name, numbers) in enumerate(PUBLISHED.items()):
            look: dict[str, Any] = dict(linestyle=(":", "--", "-", "-.", (0, (1, 4)))[place], linewidth=1.2)
            ax.plot(ETAS, numbers, color=FAINT, label=f"{name} (thesis)", **look)
        for agent, (color, marker, style) in LOOKS.items():
            etas = np.unique(rows["eta"][rows["agent"] == agent])
            if not etas.size:
                continue
            points = [net_return(rows, agent, eta) for eta in etas]
            mean = np.array([float(one.mean) for one in points])
            off = np.array([(one.mean - one.low, one.high - one.mean) for one in points], dtype=float).T
            look = dict(color=color, marker=marker, markersize=5, elinewidth=0.9, linestyle=style)
            ax.errorbar(etas, mean, np.maximum(off, 0.0), label=agent, **look)
        ax.set_xlabel("price of an executed action other than the no-op")
        ax.set_ylabel("return minus the price paid")
        ax.legend(fontsize="x-small", loc="lower left")
    return figure
