"""Many runs of tabular learning, spread over the _cores."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp import _cores
from lazymdp.learn.tabular import kernel
from lazymdp.learn.tabular.kernel_data import (
    MAX,
    Lane,
    Plan,
    Rule,
    World,
    at_places,
    columns,
    greedy_choices,
    new_table,
    visits,
)
from lazymdp.learn.tabular.sampling import check_event, play, sizes, world_of
from lazymdp.mdp import MDP

Progress = Callable[[int, int], None]
"""Called with the episodes done and the episodes in all, over all runs."""


class Schedule(NamedTuple):
    """How long a run is and how its exploration falls."""

    episodes: int
    max_steps: int
    epsilon: float
    final_epsilon: float
    points: int

    @property
    def edges(self) -> NDArray[np.int64]:
        """`[P+1]` episodes at which the points of the curves begin and end."""
        return np.linspace(0, self.episodes, self.points + 1).astype(np.int64)

    @property
    def epsilon_step(self) -> float:
        """By how much epsilon falls from one episode to the next."""
        return (self.epsilon - self.final_epsilon) / max(1, self.episodes - 1)


class Run(NamedTuple):
    """One run: what it has learned, its curves `[P]`, and where it was at the end `[S]`."""

    q: NDArray[np.float64]  # [S, C]
    visits: NDArray[np.int64]  # [S, C]
    steps_to_end: NDArray[np.float64]  # [S, C] or [0, C]: Z
    action: NDArray[np.int64]  # [S]
    score: NDArray[np.float64]
    controls: NDArray[np.int64]
    steps: NDArray[np.int64]
    occupancy: NDArray[np.int64]
    before: NDArray[np.int64]


def train_runs(
    model: MDP | gym.Env[Any, Any], rules: Sequence[Rule], seeds: NDArray[np.int64], schedule: Schedule,
    event: ArrayLike | None, workers: int | None, progress: Progress | None, with_steps: bool = False,
) -> list[list[Run]]:  # fmt: skip
    """Every rule with every seed, spread over the cores; the result does not depend on how many there are."""
    n_states, _ = sizes(model)
    mask = check_event(event, n_states)
    world = world_of(model, mask, int(rules[0].width)) if isinstance(model, MDP) else None
    absorbing = model.absorbing if isinstance(model, MDP) else np.zeros(n_states, dtype=bool)
    edges, lock, done = schedule.edges, threading.Lock(), 0
    total, stopped = len(rules) * seeds.size * schedule.episodes, threading.Event()
    parts = schedule.points if world is None else 10  # to call the compiled loop for each point would be felt
    stops = np.unique([*np.linspace(0, schedule.points - 1, parts).astype(int), schedule.points]).tolist()

    def run(wanted: Sequence[tuple[Rule, int]]) -> list[Run]:
        """One run, or two in turns."""
        nonlocal done
        lanes = [_new_lane(rule, seed, absorbing, schedule.points, with_steps) for rule, seed in wanted]
        env = model if isinstance(model, MDP) else copy.deepcopy(model)  # runs side by side need envs of their own
        until_last = [visits(lane.table, lane.rule).copy() for lane in lanes]
        for first, last in pairwise(stops):
            if stopped.is_set():
                break
            if last == schedule.points:
                until_last = [visits(lane.table, lane.rule).copy() for lane in lanes]
                counted = n_states * int(rules[0].width) if mask.size else 0
                lanes = [lane._replace(before=np.zeros(counted, dtype=np.int64)) for lane in lanes]
            plan = Plan(edges, first, last, schedule.max_steps, schedule.epsilon, schedule.epsilon_step)
            if world is not None:
                _kernel(world, lanes[0])(world, lanes[0], lanes[-1], len(lanes) > 1, plan)
            elif not isinstance(env, MDP):
                play(env, lanes[0], plan, mask, wanted[0][1])
            with lock:
                done += int(edges[last] - edges[first]) * len(lanes)
                if progress is not None:
                    progress(done, total)
        return [_result(lane, stops, before) for lane, before in zip(lanes, until_last, strict=True)]

    wanted = [(rule, int(seed)) for rule in rules for seed in seeds]
    at_once = workers or _cores.available()
    # Two in turns take less time than one after the other, but more than each on a core of its own.
    pairs = max(0, len(wanted) - max(at_once, -(-len(wanted) // 2))) if world is not None else 0
    groups = [wanted[2 * k : 2 * k + 2] for k in range(pairs)] + [[each] for each in wanted[2 * pairs :]]
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(run, group) for group in groups]
        try:
            runs = [each for future in futures for each in future.result()]
        except BaseException:
            stopped.set()  # an error or Ctrl-C: let the others end at their next stop
            for future in futures:
                future.cancel()
            raise
    return [runs[k * seeds.size : (k + 1) * seeds.size] for k in range(len(rules))]


def _new_lane(rule: Rule, seed: int, absorbing: NDArray[np.bool_], points: int, with_steps: bool) -> Lane:
    """A run that has not begun."""
    table = new_table(absorbing, rule, seed, with_steps)
    return Lane(rule, table, np.zeros(0, dtype=np.int64), np.zeros((points, 3)))


def _kernel(world: World, lane: Lane) -> Callable[[World, Lane, Lane, bool, Plan], None]:
    """What plays the episodes: compiled for the usual case, or able to do anything. The results are the same."""
    rule, special = lane.rule, lane.table.steps.size + lane.before.size > 0
    if special or not (world.plain and rule.uniform) or rule.target != MAX or rule.alpha_power != 0.0:
        return kernel.play_any
    shape = (int(rule.n_actions), int(rule.n_choices), int(rule.n_columns))
    compiled_for = {(4, 5, 4): kernel.play_structured, (4, 5, 5): kernel.play_augmented, (4, 4, 4): kernel.play_unlazy}
    return compiled_for.get(shape, kernel.play_any)


def _result(lane: Lane, stops: Sequence[int], until_last: NDArray[np.int64]) -> Run:
    """What is left of a run. A step is a visit, so that the visits say where it was."""
    rule, table = lane.rule, lane.table
    curves = np.diff(lane.seen, axis=0, prepend=0.0)
    curves[stops[:-1]] = lane.seen[stops[:-1]]  # where it was counted anew
    score, controls, length = curves.T
    return Run(
        columns(table.rows, rule),
        visits(table, rule),
        columns(table.steps, rule),
        greedy_choices(table, rule),
        score,
        controls.astype(np.int64),
        length.astype(np.int64),
        (visits(table, rule) - until_last).sum(axis=1),
        at_places(lane.before, rule),
    )
