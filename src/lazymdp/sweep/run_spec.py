"""A run of a study: what is trained and how it is evaluated. Its id is a hash of exactly this, and of nothing else.

Two studies that contain the same run therefore share its result, and a run with any other setting never continues from
a checkpoint that does not belong to it. The id depends on the content of the files that the run reads (a trained run or
a saved model as the default policy, the module of a function), but not on their paths.

A text in a spec can refer to files in the folder of the sweep:

* `input:HASH` is a run or a file that the sweep has copied to `inputs/HASH`;
* `run:ID` is the trained agent of another run of the same sweep, which therefore has to be finished first;
* `half:ID` is the agent of that run when it had half of its final score (see `half_trained`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from lazymdp.learn.deep.config import ALGORITHMS
from lazymdp.learn.deep.train_config import TrainConfig

ALGORITHM_VERSION = 2
"""Version of the training and evaluation code. Increase it with every change after which the same run would give other
results: all runs are then made again."""
_REFERENCE = re.compile(r"(input|run|half):([0-9a-f]+)(?::(.*))?")


@dataclass(frozen=True)
class Evaluation:
    """How a trained agent is evaluated."""

    etas: tuple[float, ...] | None
    """Prices; None for the price that a control budget has found."""
    episodes: int = 100
    """Episodes per price."""
    seed: int = 0
    """Random seed."""
    epsilon: float = 0.0
    """Probability of a random choice."""
    max_steps: int | None = None
    """Time limit of an episode in steps; by default the environment's own, or 10,000."""


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the result of a run."""

    config: TrainConfig
    """What is trained. Its default policy and its `warm_start` may be references, as the module describes."""
    evaluation: Evaluation
    """How it is evaluated."""
    member_price: tuple[float, float, float] | None = None
    """For a run that is trained as a member of a population: the lowest and the highest positive price that it draws,
    and its share of episodes at price 0. The price of `config` is then the range that the network can represent."""
    code: tuple[str, ...] = ()
    """Checksums of the files of the modules that the run imports by name."""

    @cached_property
    def id(self) -> str:
        """The name of the run: 16 hexadecimal digits."""
        return _hashed({**self.to_json(), "algorithm_version": ALGORITHM_VERSION})

    @cached_property
    def group(self) -> str:
        """A hash that all runs share that can be trained together as one population; empty if it is trained alone."""
        if self.member_price is None:
            return ""
        counted = len(self.evaluation.etas or ())  # the runs of a population are evaluated at equally many prices
        alike = replace(self, config=replace(self.config, seed=0), member_price=(0.0, 0.0, 0.0))
        return _hashed({**replace(alike, evaluation=replace(self.evaluation, etas=None)).to_json(), "etas": counted})

    @cached_property
    def needed_runs(self) -> tuple[str, ...]:
        """Ids of the runs of the same sweep that have to be finished first."""
        texts = (self.config.default_policy, getattr(self.config.settings, "warm_start", None) or "")
        found = (reference(text) for text in texts)
        return tuple(sorted({name for kind, name, _ in filter(None, found) if kind != "input"}))

    @property
    def leaves_half(self) -> bool:
        """Whether the run also leaves its agent at half of its final score: plain learning, at price 0, does."""
        settings = self.config.settings
        return self.member_price is None and settings.eta == 0.0 and settings.control_budget is None

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as an object that JSON can hold."""
        about = asdict(self)
        about["config"]["algorithm"] = self.config.algorithm
        if about["config"]["settings"].get("warm_start"):
            about["config"]["settings"]["warm_start"] = plain_reference(self.config.settings.warm_start)  # type: ignore[union-attr]
        return json.loads(json.dumps(about))

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> RunSpec:
        """Returns the spec that `to_json` was called on."""
        config, evaluation, member = dict(about["config"]), dict(about["evaluation"]), about["member_price"]
        config["settings"] = ALGORITHMS[config.pop("algorithm")](**config["settings"])
        if evaluation["etas"] is not None:
            evaluation["etas"] = tuple(evaluation["etas"])
        member_price = None if member is None else (float(member[0]), float(member[1]), float(member[2]))
        return cls(TrainConfig(**config), Evaluation(**evaluation), member_price, tuple(about["code"]))


def reference(text: str) -> tuple[str, str, str] | None:
    """Splits `input:HASH:manner`, `run:ID:manner` or `half:ID:manner` into its parts; returns None for other texts."""
    found = _REFERENCE.fullmatch(plain_reference(text))
    return None if found is None else (found[1], found[2], found[3] or "")


def plain_reference(text: str | None) -> str:
    """Returns a reference without the folder that `DQNConfig` puts before its `warm_start`; other texts unchanged."""
    last = (text or "").replace("\\", "/").rpartition("/")[2]
    return last if _REFERENCE.fullmatch(last) else text or ""


def _hashed(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
