"""Our own: do importance measures find the steps of a trained agent at which control is worth most?

For every environment and seed, a dial is trained with the library's defaults (`pqn` on MinAtar, `dqn` on control
problems), and plays at price 0 without ever being lazy. In Pong, one dial, that of the study `dqn-dopamine`, plays with
several seeds. Steps are handed over to random actions by each measure:
*Replace* hands over the most important share of the steps, *Keep* all others, and the protocols `statemask-code`,
`rice-spec` and `scattered` are those of `lz.measure.fidelity_score`. A mask is trained for every agent, too
(`lazymdp.explain.mask`). On Atari, it sees images of a quarter of the height and width, since its network is small.

The area between the curve of a measure and that of random steps, as a share of the agent's gain over random actions,
with 95 % bootstrap intervals over seeds: above 0 is better than random, and larger is better. Left: Replace. Right:
Keep.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.experiments.experiment import Progress, Table, Tables, table
from lazymdp.experiments.fidelity_agents_figure import claims as claims
from lazymdp.experiments.fidelity_agents_figure import plot as plot
from lazymdp.experiments.fidelity_agents_figure import summary
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import COMMITTED, Parts
from lazymdp.explain.mask import MaskedEpisode, MaskLearner, train_mask
from lazymdp.measure.fidelity import handover_rule
from lazymdp.measure.fidelity_score import PROTOCOLS, changes_of_return, chosen_steps, random_steps, score_of
from lazymdp.measure.handover import AGENT, DEFAULT, Episode, Player, episode_seeds
from lazymdp.measure.importance import action_gap, importance_advice

NAME = "fidelity"
TITLE = "Fidelity, played: which importance measure finds the steps of trained agents where control is worth most"
NEEDS_GPU = True
GAMES = (
    "CartPole-v1", "LunarLander-v3", "minatar/breakout", "minatar/asterix", "minatar/freeway",
    "minatar/space_invaders", "minatar/seaquest", "ALE/Pong-v5",
)  # fmt: skip
"""Environments that can be measured."""
MEASURES = ("none", "lazy_gap", "critical_eta", "action_gap", "importance_advice", "entropy", "mask", "random")
"""Measures; `none` are random steps, with which all others are compared."""
_POOL = 4
"""Pixels of an Atari image, per side, that are averaged for the mask."""
_POINTS = 9
"""Prices at which a dial is asked for its critical price."""
_MASK_EPISODES = 4
"""Episodes between updates of the mask."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = GAMES
    """Environments; each can be run separately into the same folder."""
    seeds: int = 5
    """Number of agents per environment; in Pong, of repetitions with one agent."""
    control_steps: int = 100_000
    """Training steps on CartPole; four times as many on LunarLander."""
    minatar_steps: int = 5_000_000
    """Training steps on MinAtar."""
    mask_steps: int = 30_000
    """Steps that are played to train a mask."""
    episodes: int = 10
    """Episodes per agent, measure and share of the steps."""
    max_steps: int = 500
    """Number of steps after which an episode is truncated."""
    shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """Shares of the steps that are handed over with Replace, or kept with Keep."""


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and measure every agent; finished agents are saved in `parts`."""
    unknown = [game for game in config.games if game not in GAMES]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(GAMES)}.")
    rows = run_jobs(jobs(config), functools.partial(make_job, config), progress, parts)
    return {"runs": rows, **summary({"runs": rows})}


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs of the study: an environment, a seed and, on Atari, a measure."""
    return list(_makers(config))


def make_job(config: Config, job: str) -> Table:
    """Do one job of the study."""
    return _makers(config)[job]()


def _makers(config: Config) -> dict[str, Callable[[], Table]]:
    """Return the functions that make the parts of the study, by name."""
    found: dict[str, Callable[[], Table]] = {}
    for game in config.games:
        for seed in range(config.seeds):
            name = f"{game.replace('/', '-')}_{seed}"
            if game.startswith("ALE/"):  # playing takes long, and no agent is trained: one part for each measure
                for measure in MEASURES:
                    found[f"{name}_{measure}"] = functools.partial(part, config, game, seed, (measure,))
            else:
                found[name] = functools.partial(part, config, game, seed)
    return found


def part(config: Config, game: str, seed: int, measures: tuple[str, ...] = MEASURES) -> Table:
    """Train an agent and a mask for it, and measure the fidelity of some measures."""
    agent = _agent(config, game, seed)
    judge = Judge(agent, config.episodes)
    player = _player(judge, game, config.max_steps)
    try:
        if "mask" in measures:
            judge.mask = _mask(judge, player, config, seed)
        return _measured(config, game, seed, judge, player, measures)
    finally:
        player.close()


def _agent(config: Config, game: str, seed: int) -> Any:
    """Train a dial, or load the one of Pong, which is kept in the repository."""
    from lazymdp import learn

    if game.startswith("ALE/"):
        return learn.load(COMMITTED / "dqn-dopamine" / "agents" / "Pong-dial-0")
    steps = config.minatar_steps if game.startswith("minatar/") else config.control_steps
    return learn.train(game, seed=seed, steps=steps * (4 if game.startswith("LunarLander") else 1))


def _player(judge: Judge, game: str, max_steps: int) -> Any:
    if game.startswith("minatar/"):
        from lazymdp.experiments.compiled_play import CompiledPlayer

        return CompiledPlayer(judge.agent.algorithm.env, judge, max_steps)
    if game.startswith("ALE/"):
        from lazymdp.learn.deep.single_env import make_atari

        return Player(judge, functools.partial(make_atari, game), "uniform", 1.0, max_steps)
    return Player(judge, game, "uniform", 1.0, max_steps)


class Judge:
    """A dial that acts at price 0 and is never lazy, and the importance measures of its states.

    Attributes:
        measures: Measures by name; each maps observations `[N, ...]` to `[N]` numbers.
        temperature: Temperature of the softmax of `entropy`: the standard deviation of the advantages.
        mask: The trained mask.
    """

    def __init__(self, agent: Any, rows: int) -> None:
        self.agent, self.temperature, self._rows = agent, 1.0, rows
        self.mask: MaskLearner | None = None
        self._rng = np.random.default_rng(0)
        self._last: tuple[Any, NDArray[np.float64]] | None = None
        self.measures: dict[str, Callable[[Any], NDArray[np.float64]]] = {
            "lazy_gap": lambda seen: self.q(seen).max(axis=1) - self.q(seen).mean(axis=1),
            "critical_eta": lambda seen: self.agent.critical_eta(self._padded(seen), points=_POINTS)[: len(seen)],
            "action_gap": lambda seen: action_gap(self.q(seen)),
            "importance_advice": lambda seen: importance_advice(self.q(seen)),
            "entropy": lambda seen: -_entropy(self.q(seen) / self.temperature),
            "mask": self.keep,
            "random": lambda seen: self._rng.random(len(seen)),
        }

    def __call__(self, seen: Any) -> NDArray[np.int64]:
        """Return `[N]` actions."""
        return np.asarray(self.q(seen).argmax(axis=1) + self.agent.algorithm.env.first_action)

    def q(self, seen: Any) -> NDArray[np.float64]:
        """Return `[N, A]` values at price 0; the last answer is remembered."""
        if self._last is None or self._last[0] is not seen:
            self._last = seen, np.asarray(self.agent.q(self._padded(seen), 0.0), dtype=float)[: len(seen)]
        return self._last[1]

    def keep(self, seen: Any) -> NDArray[np.float64]:
        """Return `[N]` probabilities that the mask keeps the agent's action."""
        if self.mask is None:
            raise ValueError("the mask has not been trained yet.")
        return self.mask.keep(_features(seen))

    def _padded(self, seen: Any) -> NDArray[Any]:
        """Return observations with rows added, so that the network is compiled for one size only."""
        missing = self._rows - len(seen)
        return np.concatenate([seen, np.repeat(seen[:1], missing, axis=0)]) if missing > 0 else np.asarray(seen)


def _entropy(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    off = logits - logits.max(axis=1, keepdims=True)
    log_p = off - np.log(np.exp(off).sum(axis=1, keepdims=True))
    return np.asarray(-(np.exp(log_p) * log_p).sum(axis=1))


def _features(seen: Any) -> NDArray[np.float64]:
    """Return observations as `[N, F]` numbers; of Atari images, averages over squares of pixels."""
    rows = np.asarray(seen)
    if rows.shape[1:3] == (84, 84):
        blocks = rows.reshape(len(rows), 84 // _POOL, _POOL, 84 // _POOL, _POOL, 4)
        rows = blocks.mean(axis=(2, 4), dtype=np.float32)
    return rows.reshape(len(rows), -1).astype(float)


def _mask(judge: Judge, player: Any, config: Config, seed: int) -> MaskLearner:
    """Train a mask with a few episodes at a time."""
    rng = np.random.default_rng([seed, 2])

    def play(budget: int, keep: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> list[MaskedEpisode]:
        episodes: list[MaskedEpisode] = []
        while not episodes or sum(len(episode.kept) for episode in episodes) < budget:
            episodes += _masked(player, rng, keep, config.max_steps)
        return episodes

    return train_mask(play, rng, config.mask_steps)[0]


def _masked(
    player: Any, rng: np.random.Generator, keep: Callable[[NDArray[np.float64]], NDArray[np.float64]], max_steps: int
) -> list[MaskedEpisode]:
    """Play episodes with a mask; the features of the last observation, which nobody measured, are repeated."""
    seen: list[list[NDArray[np.float64]]] = [[] for _ in range(_MASK_EPISODES)]
    batch: list[NDArray[np.float64]] = []

    def importance(observations: Any) -> NDArray[np.float64]:
        batch[:] = [_features(observations)]
        return keep(batch[0])

    def rule(step: int, episodes: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
        rows = batch[0] if len(batch[0]) == episodes.size else batch[0][episodes]
        for episode, row in zip(episodes.tolist(), rows, strict=True):
            seen[episode].append(row)
        return np.where(rng.random(episodes.size) < scores, AGENT, DEFAULT)

    played = player.play([int(one) for one in rng.integers(2**31, size=_MASK_EPISODES)], rule, importance)
    return [
        MaskedEpisode(np.array([*rows, rows[-1]]), ~one.handed, one.rewards, len(one.rewards) < max_steps)
        for rows, one in zip(seen, played, strict=True)
    ]


def _measured(
    config: Config, game: str, seed: int, judge: Judge, player: Any, measures: tuple[str, ...] = MEASURES
) -> Table:
    """Hand steps over by every measure and protocol: one row each, with the mean loss of return over episodes."""
    seeds, count = episode_seeds(seed, config.episodes), config.episodes
    rows: list[tuple[Any, ...]] = []
    advantages: list[NDArray[np.float64]] = []

    def collect(seen: Any) -> NDArray[np.float64]:
        advantages.append(judge.q(seen) - judge.q(seen).max(axis=1, keepdims=True))
        return np.zeros(len(seen))

    alone = player.play(seeds, None, collect)
    judge.temperature = float(np.concatenate(advantages).std()) or 1.0
    lazy = player.play(seeds, lambda step, episodes, scores: np.full(episodes.size, DEFAULT))
    baseline, default = (np.array([one.total for one in played]) for played in (alone, lazy))

    def curve(mode: str, measure: str, kind: str, scores: NDArray[np.float64]) -> None:
        for share in config.shares:
            rule = handover_rule(kind, mode == "keep", scores, share, seed, count)
            played = player.play(seeds, rule, None if kind == "random" else judge.measures[measure])
            handed = float(np.concatenate([one.handed for one in played]).mean())
            loss = float((baseline - [one.total for one in played]).mean())
            rows.append((mode, measure, kind, share, handed, loss, np.nan))

    for mode in ("replace", "keep") if "none" in measures else ():
        curve(mode, "none", "random", np.zeros(1))
    for measure in (measure for measure in _distinct(judge) if measure in measures):
        recorded = player.play(seeds, None, judge.measures[measure])
        scores = np.concatenate([one.importance for one in recorded])
        for mode in ("replace", "keep"):
            for kind in ("top", "bottom"):
                curve(mode, measure, kind, scores)
        rows += _protocols(player, measure, recorded, baseline.mean() - default.mean(), seed)
    rows += [(mode, other, *rest) for mode, measure, *rest in rows for other in _same(judge, measure)]
    columns = ("mode", "measure", "kind", "share", "handed", "loss", "score")
    named = dict(zip(columns, zip(*rows, strict=True), strict=True))
    return table(
        game=game, seed=seed, **named, agent_return=float(baseline.mean()), default_return=float(default.mean())
    )


def _protocols(
    player: Any, measure: str, recorded: list[Episode], gain: float, seed: int
) -> list[tuple[str, str, str, float, float, float, float]]:
    """Return rows of the named protocols; the scale of the scores is the agent's gain over random actions."""
    rows, rng = [], np.random.default_rng([seed, 1])
    for protocol in PROTOCOLS:
        chosen = [chosen_steps(protocol, one.importance, 0.1) for one in recorded]
        at_random = [random_steps(protocol, steps, rng) for steps in chosen]
        taken = np.array([steps.mean() for steps in chosen])
        for kind, steps in (("top", chosen), ("random", at_random)):
            changes = changes_of_return(player, recorded, steps)
            score = float(score_of(protocol, taken, np.abs(changes) / abs(gain), 0.95).mean)
            rows.append((protocol, measure, kind, 0.1, float(taken.mean()), float(-changes.mean()), score))
    return rows


def _distinct(judge: Judge) -> list[str]:
    """Return the measures that have to be played: with two actions, several order all states alike."""
    return [name for name in judge.measures if not any(name in _same(judge, other) for other in judge.measures)]


def _same(judge: Judge, measure: str) -> tuple[str, ...]:
    """Return the other measures that order all states as this one does, with two actions and a uniform default."""
    two = judge.agent.algorithm.env.n_actions == 2
    return ("action_gap", "importance_advice", "entropy") if two and measure == "lazy_gap" else ()
