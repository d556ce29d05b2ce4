"""Our own: do importance measures name the states where control is worth most?

The ground truth is exact. In every state, control is taken away on all visits: the default policy (uniform) acts there
and the optimal base policy everywhere else. The loss of return is computed by linear systems, and every measure is
compared with it.

Upper left: rank correlation of each measure with the exact loss, with the world's own start and with a uniform one,
which visits every state. Between the lines, masks after StateMask, learned (not in random models) and at their exact
optimum; below, references that know how often a state is visited. Upper right: exact loss if a share of the states is
handed over, as a fraction of what the optimum gains over the default policy. Lower row: episodes played with steps
handed over, with 95 % intervals over seeds; Replace hands over the most important steps (higher is better), Keep all
others (lower is better).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.experiments import fidelity_masks, fidelity_worlds
from lazymdp.experiments.experiment import Progress, Tables, stacked, table
from lazymdp.experiments.fidelity_figure import claims as claims
from lazymdp.experiments.fidelity_figure import plot as plot
from lazymdp.experiments.fidelity_figure import summary
from lazymdp.experiments.fidelity_worlds import (
    MEASURES,
    OF_VALUES,
    RANDOM_MODELS,
    WORLDS,
    CartPoleRegulator,
    Optimum,
    measures_of,
)
from lazymdp.mdp import MDP
from lazymdp.measure.agreement import rank_correlation, top_count, top_overlap, top_sets
from lazymdp.measure.control_removal import removal_loss, removal_loss_of_sets
from lazymdp.measure.fidelity import KINDS, MODES, SHARES, fidelity
from lazymdp.measure.fidelity_score import PROTOCOLS, fidelity_score
from lazymdp.measure.statistics import mean_interval

TITLE = "Fidelity, exact: which importance measure finds the states where control is worth most"
_PLAYED = {"Rivers & Bridges": 0.99, "FrozenLake 4x4": 1.0}
"""Worlds in which episodes are played with steps handed over, and the discount of their returns."""
_MOST_STEPS = 200
"""Length at which a played episode is truncated; an agent that is rarely in control may never arrive."""
_NEVER = 1e-12
"""Discounted visits below which a state counts as never visited."""


@dataclass(frozen=True)
class Config:
    """Settings of the comparison."""

    models: int = 200
    """Number of random models."""
    n_states: int = 40
    """Number of states of a random model, including the absorbing one."""
    n_actions: int = 4
    """Number of actions of a random model."""
    successors: int = 3
    """Number of states to which an action of a random model may lead."""
    gamma: float = 0.95
    """Discount factor of the random models."""
    shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """Shares of the states that are handed over together."""
    draws: int = 20
    """Number of random orders of the states of a world, also to break ties; one for each random model."""
    seeds: int = 5
    """Number of seeds of the played episodes."""
    episodes: int = 10
    """Number of played episodes per seed, measure and share; half as many on CartPole, where they are long."""
    seed: int = 0
    """Random seed of the models, the random sets and the masks."""
    masks: int = 5
    """Number of masks trained for each world and start; those of the default settings are in the repository."""
    mask_steps: int = 50_000
    """Steps that are played to train a mask."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Compute the ground truth for every model, then play episodes with steps handed over."""
    rng = np.random.default_rng(config.seed)
    jobs = len(WORLDS) + config.models + config.seeds * (2 * len(_PLAYED) + 1)
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, jobs)

    agreement, sets, states, masks = [], [], [], []
    trained = fidelity_masks.Masks(config.seed, config.masks, config.mask_steps)
    for name in WORLDS:
        for start, mdp, best in _with_starts(fidelity_worlds.model(name)):
            mask = trained.of(name, start, mdp, best)
            best = best._replace(measures=best.measures | {"mask": mask})
            found, losses, columns = _judge(mdp, best, config, rng)
            agreement.append(_agreement_rows(name, start, found[None]))
            sets.append(_set_rows(name, start, config.shares, losses[None]))
            states.append(table(world=name, start=start, **columns))
            masks.append(table(world=name, start=start, **fidelity_masks.effect(mdp, best, mask)))
        tell()
    for start, found, losses in _judge_random_models(config, rng, tell):
        agreement.append(_agreement_rows(RANDOM_MODELS, start, found))
        sets.append(_set_rows(RANDOM_MODELS, start, config.shares, losses))
    curves, areas = _played(config, tell)
    data = {
        "agreement": stacked(agreement),
        "sets": stacked(sets),
        "states": stacked(states),
        "masks": stacked(masks),
        "curves": curves,
        "areas": areas,
        "scores": _scores(config, tell),
    }
    return data | summary(data)


# -- the ground truth ------------------------------------------------------------------------------------------------


def _with_starts(mdp: MDP) -> Iterator[tuple[str, MDP, Optimum]]:
    """Solve a model with its own start distribution, and with a uniform one."""
    best = fidelity_worlds.optimum(mdp)
    for start, started in (("own", mdp), ("everywhere", fidelity_worlds.from_everywhere(mdp))):
        known = fidelity_worlds.with_visits(best, started)
        optimal = fidelity_masks.optimal_mask(started, known)
        yield start, started, known._replace(measures=known.measures | {"mask_optimum": optimal})


def _judge(
    mdp: MDP, best: Optimum, config: Config, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, NDArray[Any]]]:
    """Compare every measure with the exact loss in one model.

    Returns:
        `[M, 3]` rank correlation over all states, over the visited states, and overlap of the top 10 %; `[M, K, 2]`
        losses of the top and the bottom sets, as fractions of the optimum's gain over the default policy; and the
        measures by state.
    """
    alive = ~mdp.absorbing
    truth = removal_loss(mdp, best.policy, best.default_policy)[alive]
    visited = best.measures["visits"][alive] > _NEVER
    shuffled = rng.permuted(np.tile(np.arange(truth.size, dtype=float), (config.draws, 1)), axis=1)
    known = {name: np.atleast_2d(measure)[:, alive] for name, measure in best.measures.items()} | {"random": shuffled}
    candidates = [known[name] for name in MEASURES if name in known]
    agreement = [
        np.mean(
            [
                (
                    rank_correlation(values, truth),
                    rank_correlation(values[visited], truth[visited]),
                    top_overlap(values, truth),
                )
                for values in rows
            ],
            axis=0,
        )
        for rows in candidates
    ]
    columns = {"state": np.flatnonzero(alive), "loss": truth}
    for name, rows in known.items():
        if name == "mask":
            columns |= {f"mask_{index}": row for index, row in enumerate(rows)}
        elif name != "random":
            columns[name] = rows[0]
    return np.array(agreement), _set_losses(mdp, best, candidates, config, rng), columns


def _set_losses(
    mdp: MDP, best: Optimum, candidates: list[NDArray[np.float64]], config: Config, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return `[M, K, 2]` losses of handing over the top and the bottom states, as fractions of the whole gain.

    The mean is taken over the candidates `[N, alive states]` of each of the M measures.
    """
    alive = np.flatnonzero(~mdp.absorbing)
    sets, owners = [np.ones((1, alive.size), dtype=bool)], [np.full((1, 3), -1)]  # first: everything is handed over
    for row, rows in enumerate(candidates):
        for column, share in enumerate(config.shares):
            for side, sign in enumerate((1.0, -1.0)):
                for values in rows:
                    drawn = top_sets(sign * values, top_count(alive.size, share), config.draws, rng)
                    sets.append(drawn)
                    owners.append(np.tile([row, column, side], (len(drawn), 1)))
    members = np.zeros((sum(map(len, sets)), mdp.n_states), dtype=bool)
    members[:, alive] = np.concatenate(sets)
    losses = removal_loss_of_sets(mdp, best.policy, best.default_policy, members)
    shape = (len(candidates), len(config.shares), 2)
    flat = np.ravel_multi_index(np.concatenate(owners)[1:].T, shape)
    counts = np.bincount(flat, minlength=int(np.prod(shape)))
    return (np.bincount(flat, losses[1:] / losses[0], int(np.prod(shape))) / counts).reshape(shape)


def _judge_random_models(
    config: Config, rng: np.random.Generator, tell: Any
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    found: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {"own": [], "everywhere": []}
    once = replace(config, draws=1)
    making = np.random.default_rng([config.seed, 1])  # its own generator: the models do not depend on other settings
    for _ in range(config.models):
        mdp = fidelity_worlds.random_model(making, config.n_states, config.n_actions, config.successors, config.gamma)
        for start, started, best in _with_starts(mdp):
            found[start].append(_judge(started, best, once, rng)[:2])
        tell()
    return [(start, np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])) for start, pairs in found.items()]


def _agreement_rows(world: str, start: str, found: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return one row per measure from `[N, M, 3]`; the interval is over models, and a point for a single one.

    The columns with `lead` are the number of the lazy-gap, the first measure, minus that of the measure.
    """
    columns: dict[str, Any] = {"world": world, "start": start, "measure": measures_of(world)}
    for index, name in enumerate(("correlation", "correlation_visited", "overlap")):
        interval = mean_interval(found[:, :, index])
        columns |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        lead = mean_interval(found[:, :1, index] - found[:, :, index])  # of the lazy-gap, paired by model
        columns |= {f"{name}_lead{end}": getattr(lead, part) for end, part in _ENDS}
    return table(**columns)


def _set_rows(
    world: str, start: str, shares: tuple[float, ...], losses: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Return one row per measure and share from `[N, M, K, 2]`."""
    names = measures_of(world)
    columns: dict[str, Any] = {
        "world": world,
        "start": start,
        "measure": np.repeat(names, len(shares)),
        "share": np.tile(shares, len(names)),
    }
    for side, name in enumerate(("top", "bottom")):
        interval = mean_interval(losses[:, :, :, side])
        columns |= {f"{name}{end}": getattr(interval, part).ravel() for end, part in _ENDS}
    return table(**columns)


_ENDS = (("", "mean"), ("_low", "low"), ("_high", "high"))


# -- played episodes -------------------------------------------------------------------------------------------------


def _played(config: Config, tell: Any) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Play episodes with steps handed over: curves and areas, with intervals over seeds."""
    curves, areas = [], []
    names = [name for name in OF_VALUES if name not in ("negative_entropy", "value")]
    for world, gamma in _PLAYED.items():
        best = fidelity_worlds.optimum(fidelity_worlds.model(world))
        action = best.policy.argmax(axis=1)
        for mode in MODES:
            loss = np.empty((config.seeds, len(names), len(KINDS), len(SHARES)))
            area, handed = np.empty((config.seeds, len(names))), np.empty_like(loss)
            for seed in range(config.seeds):
                for row, name in enumerate(names):
                    found = fidelity(
                        action.__getitem__,
                        WORLDS[world],
                        best.measures[name].__getitem__,
                        mode=mode,
                        episodes=config.episodes,
                        gamma=gamma,
                        max_steps=_MOST_STEPS,
                        seed=seed,
                    )
                    loss[seed, row] = [found.loss(kind).mean for kind in KINDS]
                    handed[seed, row] = [found.handed[kind] for kind in KINDS]
                    area[seed, row] = found.area().mean
                tell()
            about = {"world": world, "mode": mode}
            curves.append(
                table(
                    **about,
                    measure=np.repeat(names, len(KINDS) * len(SHARES)),
                    kind=np.tile(np.repeat(KINDS, len(SHARES)), len(names)),
                    share=np.tile(SHARES, len(names) * len(KINDS)),
                    handed=handed.mean(axis=0).ravel(),
                    **{f"loss{end}": getattr(mean_interval(loss), part).ravel() for end, part in _ENDS},
                )
            )
            areas.append(
                table(**about, measure=names, **{f"area{e}": getattr(mean_interval(area), p) for e, p in _ENDS})
            )
    return stacked(curves), stacked(areas)


def _scores(config: Config, tell: Any) -> dict[str, NDArray[Any]]:
    """Return the named scores, and Replace with two shares, of the lazy-gap of a regulator of CartPole."""
    agent, episodes = CartPoleRegulator(), max(1, config.episodes // 2)
    rows: list[list[tuple[float, ...]]] = []
    for seed in range(config.seeds):
        of_seed = []
        for protocol in PROTOCOLS:
            options: dict[str, Any] = {"protocol": protocol, "scale": 500.0, "episodes": episodes, "seed": seed}
            found = fidelity_score(agent, "CartPole-v1", agent.lazy_gap, **options)
            means = (found.score, found.random, found.change, found.random_change)
            of_seed.append((*(float(interval.mean) for interval in means), found.share))
        curve = fidelity(agent, "CartPole-v1", agent.lazy_gap, shares=(0.1, 0.3), episodes=episodes, seed=seed)
        changes = [-curve.loss(kind).mean for kind in ("top", "random")]
        of_seed += [
            (np.nan, np.nan, float(changes[0][column]), float(changes[1][column]), float(curve.handed["top"][column]))
            for column in (0, 1)
        ]
        rows.append(of_seed)
        tell()
    values = np.array(rows)  # [seeds, protocols, 5]
    change, random_change = (mean_interval(values[:, :, index]) for index in (2, 3))
    return table(
        protocol=[*PROTOCOLS, "replace 10%", "replace 30%"],
        score=values[:, :, 0].mean(axis=0),
        random_score=values[:, :, 1].mean(axis=0),
        **{f"change{end}": getattr(change, part) for end, part in _ENDS},
        **{f"random_change{end}": getattr(random_change, part) for end, part in _ENDS},
        share=values[:, :, 4].mean(axis=0),
    )
