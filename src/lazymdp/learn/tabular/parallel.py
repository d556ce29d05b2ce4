"""Many runs of tabular learning, spread over the cores."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp import _cores
from lazymdp.learn.tabular import kernel
from lazymdp.learn.tabular.kernel_data import Plan, Rule, Tables, new_tables
from lazymdp.learn.tabular.sampling import play_environment, sizes, world_of
from lazymdp.mdp import MDP

Progress = Callable[[int, int], None]
"""A function that is called with the number of episodes played and the total, over all runs."""


class Run(NamedTuple):
    """The results of one run."""

    tables: Tables
    curves: NDArray[np.float64]  # [P, 3] rewards without prices, steps in control and steps, summed at each point
    occupancy: NDArray[np.int64]  # [S] steps from each state, at the last point


def train_runs(
    model: MDP | gym.Env[Any, Any], rules: Sequence[Rule], seeds: NDArray[np.int64], plan: Plan,
    workers: int | None, progress: Progress | None,
) -> list[list[Run]]:  # fmt: skip
    """Trains one run per rule and seed, and returns them as `[rule][seed]`.

    The results do not depend on the number of workers: each run has its own tables and random numbers.
    """
    world = world_of(model) if isinstance(model, MDP) else None
    absorbing = np.zeros(sizes(model)[0], dtype=bool) if world is None else world.absorbing
    n_points, total = plan.edges.size - 1, len(rules) * seeds.size * int(plan.edges[-1])
    # The last point is played alone, to count its steps. Calls of the compiled loop take time: few for the rest.
    parts = n_points if world is None else 10
    stops = np.unique([*np.linspace(0, n_points - 1, parts).astype(int), n_points]).tolist()
    lock, stopped, done = threading.Lock(), threading.Event(), 0

    def train(rule: Rule, seed: int) -> Run:
        nonlocal done
        tables, curves = new_tables(absorbing, rule, seed), np.zeros((n_points, 3))
        env = None if isinstance(model, MDP) else copy.deepcopy(model)  # environments cannot be shared by threads
        earlier = tables.visits.copy()
        for points in pairwise(stops):
            if stopped.is_set():
                break
            earlier = tables.visits.copy()
            if world is not None:
                kernel.play(world, rule, tables, plan, points, curves)
            elif env is not None:
                play_environment(env, rule, tables, plan, points, curves, seed)
            with lock:
                done += int(plan.edges[points[1]] - plan.edges[points[0]])
                if progress is not None:
                    progress(done, total)
        return Run(tables, curves, (tables.visits - earlier).sum(axis=1))  # every step updates one entry of its state

    with ThreadPoolExecutor(workers or _cores.available()) as pool:
        futures = [pool.submit(train, rule, int(seed)) for rule in rules for seed in seeds]
        try:
            runs = [future.result() for future in futures]
        except BaseException:
            stopped.set()  # after an error or Ctrl-C, the other runs stop at their next call
            for future in futures:
                future.cancel()
            raise
    return [runs[k * seeds.size : (k + 1) * seeds.size] for k in range(len(rules))]
