"""Study files: a TOML file that names environments, algorithms, prices, default policies, seeds and what to measure.

A study is the product of its lists. Methods are named variants of it: each `[methods.NAME]` inherits everything from
the top of the file and replaces some of it. Everything is checked here, before anything starts; an error names the
file, the key, the value and the remedy.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from lazymdp.learn.deep.config import ALGORITHMS, is_control
from lazymdp.learn.deep.config_checks import is_a
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.sweep.canonical import canonical_config, canonical_policy, number_text
from lazymdp.sweep.run_inputs import Inputs
from lazymdp.sweep.run_spec import Evaluation, RunSpec, reference

_LISTS = ("environments", "algorithms", "prices", "default_policies", "seeds")
_TABLES = ("settings", "settings_by_algorithm", "settings_by_environment", "env_kwargs", "evaluation")
_KEYS = (*_LISTS, *_TABLES, "steps", "warm_start", "pack")
_EVALUATION = ("prices", *(field.name for field in fields(Evaluation) if field.name != "etas"))
_OWN_SETTINGS = {"eta": "prices", "control_budget": "prices", "steps": "steps", "warm_start": "warm_start"}
"""Settings of an algorithm that have a key of their own in a study."""
_MOST_SEEDS = 10_000
METHOD, HALF = "method:", "half:"
"""Prefixes of a default policy, or of a `warm_start`, that is the agent of another method of the study: as it is at the
end, or as it was when it had half of its final score."""


class StudyError(ValueError):
    """A study file has an error. The message names the file, the key, the value and the remedy."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a study, and how the tables name it."""

    method: str
    """Name of its method; the name of its algorithm if the study names no methods."""
    price: str
    """Its price as text: `0.05`, `0.005 to 0.5` for a dial, `budget 0.1`."""
    default_policy: str
    """Its default policy as the study names it."""
    spec: RunSpec
    """The run itself."""


@dataclass(frozen=True)
class Study:
    """A study: its runs in the order in which they are started, and the files that they read."""

    path: Path
    runs: tuple[PlannedRun, ...]
    inputs: Inputs

    @property
    def specs(self) -> dict[str, RunSpec]:
        """The runs by id, in their order. A run that several methods share occurs once."""
        return {run.spec.id: run.spec for run in self.runs}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Reads and checks a study file.

    The order of the runs is seed first: all runs of the first seed come before those of the second, so that partial
    results already show every curve. A run that another run needs comes before it.
    """
    file = Path(path)
    try:
        with open(file, "rb") as opened:
            given = tomllib.load(opened)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no study file {file}.") from error
    except OSError as error:
        raise OSError(f"the study file {file} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{file} is not a TOML file: {error}.") from error
    return _Reader(file, given).study()


class _Reader:
    """Turns the content of a study file into runs."""

    def __init__(self, file: Path, given: dict[str, Any]) -> None:
        self.file, self.given = file, given
        self.inputs = Inputs(file.parent)
        self._environments: set[str] = set()  # of all methods
        self._scales: dict[str, float] = {}
        self._made: dict[tuple[str, str, int], list[RunSpec]] = {}  # by method, environment and seed

    def study(self) -> Study:
        methods = self.given.get("methods", {})
        if not isinstance(methods, dict) or not all(isinstance(one, dict) for one in methods.values()):
            raise self.error("methods", methods, "tables such as [methods.dial]")
        self._check_keys("", self.given, (*_KEYS, "methods"))
        for name, method in methods.items():
            self._check_keys(f"methods.{name}.", method, _KEYS)
        common = {key: value for key, value in self.given.items() if key != "methods"}
        whole = {name: _merged(common, method) for name, method in methods.items()} or {"": common}
        self._environments = {env for name, one in whole.items() for env in self._list(_at(name), "environments", one)}
        runs: list[tuple[int, PlannedRun]] = []
        for name in _in_order(whole, self):
            runs += self._method(name, whole[name])
        if not runs:
            raise self.error("seeds", [], "at least one run")
        runs.sort(key=lambda ranked: ranked[0])  # stable: a method stays behind the methods that it needs
        return Study(self.file, tuple(run for _, run in runs), self.inputs)

    def error(self, key: str, value: Any, expected: str) -> StudyError:
        return StudyError(f"{self.file}: {key} is {value!r}, expected {expected}.")

    def _check_keys(self, prefix: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                raise StudyError(f"{self.file}: there is no key {prefix}{key}; the keys are {', '.join(known)}.")

    def _method(self, name: str, given: dict[str, Any]) -> Iterator[tuple[int, PlannedRun]]:
        """Yields the runs of a method, each with the position of its seed."""
        at = _at(name)
        lists = {key: self._list(at, key, given) for key in _LISTS if key != "seeds"}
        seeds = self._seeds(at, given)
        for key in _TABLES:
            if not isinstance(given.get(key, {}), dict):
                raise self.error(f"{at}{key}", given[key], f"a table, [{at}{key}]")
        self._check_names(at, given, lists)
        chosen = product(enumerate(seeds), lists["prices"], lists["environments"], lists["algorithms"],
                         lists["default_policies"])  # fmt: skip
        for (place, seed), price, env, algorithm, default_policy in chosen:
            spec = self._spec(at, given, env, algorithm, price, default_policy, seed, lists["prices"])
            self._made.setdefault((name, env, seed), []).append(spec)
            yield place, PlannedRun(name or algorithm, _price_text(price), str(default_policy), spec)

    def _list(self, at: str, key: str, given: dict[str, Any]) -> list[Any]:
        default = {"default_policies": ["uniform"]}.get(key)
        found = given.get(key, default)
        if found is None:
            raise StudyError(f"{self.file}: {at}{key} is missing, expected a list such as {_EXAMPLES[key]}.")
        if not isinstance(found, list) or not found:
            raise self.error(f"{at}{key}", found, f"a list such as {_EXAMPLES[key]}")
        for entry in found:
            action = key == "default_policies" and is_a(entry, int)
            if key != "prices" and not (isinstance(entry, str) or action):
                raise self.error(f"{at}{key}", found, f"a list such as {_EXAMPLES[key]}")
            same = [
                other for other in found if other == entry or (key == "default_policies" and f"{other}" == f"{entry}")
            ]
            if len(same) > 1:
                raise self.error(f"{at}{key}", found, f"each entry once, but {entry!r} occurs twice")
        return found

    def _seeds(self, at: str, given: dict[str, Any]) -> list[int]:
        found = given.get("seeds", 1)
        seeds = list(range(found)) if is_a(found, int) and found <= _MOST_SEEDS else found
        if not isinstance(seeds, list) or not seeds or not all(is_a(seed, int) and seed >= 0 for seed in seeds):
            raise self.error(f"{at}seeds", found, f"a number of seeds from 1 to {_MOST_SEEDS:,}, or a list of seeds")
        if len(set(seeds)) < len(seeds):
            raise self.error(f"{at}seeds", found, "each seed once")
        return seeds

    def _check_names(self, at: str, given: dict[str, Any], lists: dict[str, list[Any]]) -> None:
        for key, known in (
            ("settings_by_algorithm", set(ALGORITHMS)),
            ("settings_by_environment", self._environments),
            ("env_kwargs", self._environments),
        ):
            for name, table in given.get(key, {}).items():
                if name not in known or not isinstance(table, dict):
                    raise self.error(f"{at}{key}.{name}", table, f"a table for one of {', '.join(sorted(known))}")
        for algorithm in lists["algorithms"]:
            if algorithm not in ALGORITHMS:
                raise self.error(f"{at}algorithms", lists["algorithms"], f"a list of {' and '.join(ALGORITHMS)}")

    def _spec(
        self, at: str, given: dict[str, Any], env: str, algorithm: str, price: Any, default_policy: Any, seed: int,
        prices: list[Any],
    ) -> RunSpec:  # fmt: skip
        settings, packed, member = self._settings(at, given, env, algorithm), given.get("pack", False), None
        if not isinstance(packed, bool):
            raise self.error(f"{at}pack", packed, "true or false")
        settings |= self._price(at, price)
        if packed:
            settings, member = self._packed(at, env, algorithm, price, prices, settings)
        env_kwargs = given.get("env_kwargs", {}).get(env, {})
        policy = canonical_policy(self._policy(f"{at}default_policies", str(default_policy), env, seed))
        if "warm_start" in given:
            start = settings["warm_start"] = self._policy(f"{at}warm_start", given["warm_start"], env, seed)
            if (found := reference(start)) is None or found[2]:
                raise self.error(f"{at}warm_start", given["warm_start"], "the folder of a dqn run, or method:NAME")
        if is_control(env) and "reward_scale" not in settings:
            settings["reward_scale"] = self._reward_scale(at, env, env_kwargs)
        try:
            made = canonical_config(env, algorithm, settings, env_kwargs, {"zero_share"} if packed else set())
            config = TrainConfig(env, made, policy, seed, env_kwargs)
        except (ValueError, TypeError) as error:
            raise StudyError(f"{self.file}: {at or 'runs of '}{algorithm} on {env}: {error}") from error
        evaluation = self._evaluation(at, given.get("evaluation", {}), price, config)
        return RunSpec(config, evaluation, member, self.inputs.code_of(env, policy))

    def _settings(self, at: str, given: dict[str, Any], env: str, algorithm: str) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for key, table in (
            ("settings", given.get("settings", {})),
            (f"settings_by_algorithm.{algorithm}", given.get("settings_by_algorithm", {}).get(algorithm, {})),
            (f"settings_by_environment.{env}", given.get("settings_by_environment", {}).get(env, {})),
        ):
            for name in table:
                if name in _OWN_SETTINGS:
                    raise self.error(f"{at}{key}.{name}", table[name], f"the key {_OWN_SETTINGS[name]} instead")
            settings |= table
        if "steps" in given:
            settings["steps"] = given["steps"]
        return settings

    def _price(self, at: str, price: Any) -> dict[str, Any]:
        if isinstance(price, dict) and set(price) == {"control_budget"}:
            return dict(price)
        if isinstance(price, list) and len(price) == 2 and all(is_a(one, float) for one in price):
            return {"eta": (float(price[0]), float(price[1]))}
        if is_a(price, float):
            return {"eta": float(price)}
        raise self.error(f"{at}prices", price, "a price, a range [low, high], or {control_budget = SHARE}")

    def _packed(
        self, at: str, env: str, algorithm: str, price: Any, prices: list[Any], settings: dict[str, Any]
    ) -> tuple[dict[str, Any], tuple[float, float, float]]:
        """Returns the settings of a member of a population, and its own prices."""
        if algorithm != "pqn" or not env.startswith("minatar/") or isinstance(price, dict):
            raise self.error(f"{at}pack", True, f"pack = false: only pqn on MinAtar at a price or a range is packed, "
                             f"not {algorithm} on {env} at {price!r}")  # fmt: skip
        if settings.get("zero_fraction"):  # it would replace the members' own shares of episodes at price 0
            raise self.error(f"{at}settings.zero_fraction", settings["zero_fraction"], "0 for pack = true")
        ends = [one for given in prices for one in (given if isinstance(given, list) else [given])]
        positive = sorted({one for one in ends if one != 0})
        if not positive or positive[0] < 0.0:
            raise self.error(f"{at}prices", prices, "at least one price above 0, and none below, for pack = true")
        low, high = float(positive[0]), float(positive[-1])
        share = float(settings.get("zero_share", ALGORITHMS[algorithm].zero_share))
        member = (float(price[0]), float(price[1]), share) if isinstance(price, list) else (
            max(float(price), low), max(float(price), low), float(price == 0)
        )  # fmt: skip
        return settings | {"eta": (low, high) if low < high else (0.5 * low, high)}, member

    def _policy(self, key: str, text: Any, env: str, seed: int) -> str:
        """Returns a default policy or a run to start from, with a reference in place of a path or another method."""
        method = isinstance(text, str) and text.startswith((METHOD, HALF))
        if not isinstance(text, str) or (not method and reference(text) is not None):  # references are ours
            raise self.error(key, text, "a default policy, the folder of a run, or method:NAME")
        if not method:
            return self.inputs.named(text)
        kind, name, *manner = text.split(":", 2)
        found, at_price_0 = self._made.get((name, env, seed), []), ""
        if kind == "half":
            found, at_price_0 = [spec for spec in found if spec.leaves_half], " at price 0 that is not packed"
        if len(found) != 1:
            wanted = f"a method with one run{at_price_0} on {env} for seed {seed}; {name} has {len(found)}"
            raise self.error(key, text, wanted)
        return ":".join(["half" if kind == "half" else "run", found[0].id, *manner])

    def _reward_scale(self, at: str, env: str, env_kwargs: dict[str, Any]) -> float:
        from lazymdp.sweep.extras import deep

        key = f"{env} {sorted(env_kwargs.items())}"
        if key not in self._scales:
            try:
                self._scales[key] = deep("gymnasium_env").measure_reward_scale(env, env_kwargs)
            except (ValueError, TypeError, RuntimeError) as error:
                raise StudyError(f"{self.file}: {at}environments has {env!r}: {error}") from error
        return self._scales[key]

    def _evaluation(self, at: str, given: dict[str, Any], price: Any, config: TrainConfig) -> Evaluation:
        self._check_keys(f"{at}evaluation.", given, _EVALUATION)
        prices = given.get("prices")
        if prices is not None:
            if not (isinstance(prices, list) and prices and all(map(_is_price, prices))):
                raise self.error(f"{at}evaluation.prices", prices, "a list of prices of at least 0, such as [0, 0.1]")
            if len(set(prices)) < len(prices):
                raise self.error(f"{at}evaluation.prices", prices, "each price once")
        etas: tuple[float, ...] | None = None
        if isinstance(price, list):
            etas = tuple(float(one) + 0.0 for one in prices) if prices is not None else config.settings.reported_etas
        elif not isinstance(price, dict):
            etas = (float(price) + 0.0,)  # -0.0 is 0
        for name, low, kind in (("episodes", 1, int), ("seed", 0, int), ("max_steps", 1, int), ("epsilon", 0, float)):
            if name in given and not (is_a(given[name], kind) and low <= given[name] < 2**31):
                raise self.error(f"{at}evaluation.{name}", given[name], f"a number of at least {low}, and below 2**31")
        if given.get("epsilon", 0.0) > 1.0:
            raise self.error(f"{at}evaluation.epsilon", given["epsilon"], "a probability between 0 and 1")
        rest = {name: value for name, value in given.items() if name != "prices"}
        return Evaluation(etas, **(rest | {"epsilon": float(rest.get("epsilon", 0.0)) + 0.0}))


_EXAMPLES = {
    "environments": '["CartPole-v1", "minatar/breakout"]',
    "algorithms": '["dqn", "pqn"]',
    "prices": "[0.05, [0.005, 0.5], {control_budget = 0.1}]",
    "default_policies": '["uniform", "noop"]',
}


def _at(method: str) -> str:
    """Returns where the keys of a method are in a study file, for messages."""
    return f"methods.{method}." if method else ""


def _is_price(value: Any) -> bool:
    return is_a(value, float) and 0.0 <= value < float("inf")


def _merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys of a method: its own replace the common ones, and tables are merged."""
    tables = {key: {**common[key], **own[key]} for key in _TABLES
              if isinstance(common.get(key), dict) and isinstance(own.get(key), dict)}  # fmt: skip
    return {**common, **own, **tables}


def _in_order(methods: dict[str, dict[str, Any]], reader: _Reader) -> list[str]:
    """Returns the names of the methods, each after those whose agents it uses."""
    needs = {}
    for name, method in methods.items():
        policies = reader._list(_at(name), "default_policies", method)
        texts = [("default_policies", policy) for policy in policies] + [("warm_start", method.get("warm_start"))]
        named = {text.split(":")[1]: (key, text) for key, text in texts if str(text).startswith((METHOD, HALF))}
        needs[name] = set(named)
        for other in sorted(needs[name] - set(methods)):
            known = ", ".join(filter(None, methods))
            expected = f"one of the methods {known}" if known else "a method of the study, which has none"
            raise reader.error(f"{_at(name)}{named[other][0]}", named[other][1], expected)
    order: list[str] = []
    while len(order) < len(methods):
        ready = [name for name in methods if name not in order and needs[name] <= set(order)]
        if not ready:
            rest = ", ".join(name for name in methods if name not in order)
            raise reader.error("methods", rest, "methods that do not need each other's agents in a circle")
        order.append(ready[0])
    return order


def _price_text(price: Any) -> str:
    if isinstance(price, dict):
        return f"budget {number_text(price['control_budget'])}"
    return " to ".join(map(number_text, price)) if isinstance(price, list) else number_text(price)
