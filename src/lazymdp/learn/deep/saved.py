"""Reading what training left on disk: settings, a moment of a run, what it remembers. `run_folder` writes it.

* `config.json`: what is trained on what;
* `last.safetensors`, `best.safetensors`: everything the run is at its last checkpoint, and at the one whose episodes
  returned most after the price; each with a `.json` that says when;
* `default/`: what acts when this one is lazy, if that is a run of ours (its settings and network) or a saved model: a
  copy, so that nothing that happens to the original changes this run;
* `memory-FIRST-LAST.safetensors`: what DQN remembers, in parts, as it grows: writing all of it every time would take
  longer than learning.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.config import DialConfig, DQNConfig, TrainConfig, check_settings

CONFIG = "config.json"
DEFAULT = "default"
OWN_DEFAULT = f"./{DEFAULT}"
_OTHER = "; `lazymdp evaluate`, with or without --best, can play the other checkpoint"
LEARNERS: dict[str, type[DialConfig] | type[DQNConfig]] = {"dial": DialConfig, "dqn": DQNConfig}


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run: its arrays, the agent steps made, and how good its episodes were, None if none had ended."""

    arrays: dict[str, NDArray[Any]]
    step: int
    quality: float | None


@dataclass(frozen=True)
class Memory:
    """A part of what a run remembers: from the step `first` to `last`, both included, of every environment."""

    first: int
    last: int
    arrays: dict[str, NDArray[Any]]


def read_config(folder: Path) -> TrainConfig:
    """What is trained; settings of other versions are named."""
    path = folder / CONFIG
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        env, default, seed = str(read["env"]), str(read["default"]), int(read["seed"])
        settings, kind = dict(read["settings"]), LEARNERS[read["learner"]]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{folder} holds no run: there is no {CONFIG} in it.") from error
    except KeyError as error:
        raise ValueError(f"{path} is damaged: it lacks {error}, or that is unknown.") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from error
    known = {field.name for field in fields(kind)}
    if set(settings) != known:
        odd = ", ".join(sorted(set(settings) ^ known))
        raise ValueError(f"{path} is of another version of lazymdp: {odd}.")
    try:
        config = TrainConfig(env, own_default(folder, default), seed, kind(**settings))
        check_settings(config.settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from error
    return config


def own_default(folder: Path, default: str) -> str:
    """Where a default is that the config of a run names: if it is the run's own copy, in its folder."""
    return default.replace(OWN_DEFAULT, str(folder / DEFAULT), 1) if default.startswith(OWN_DEFAULT) else default


def named_run(default: str) -> tuple[Path, str] | None:
    """The folder of the run that a default policy names and, behind a colon, how it acts; None if it names no run."""
    folder, _, manner = default.rpartition(":")
    for path, how in ((default, ""), (folder, manner)):  # a folder's name may hold a colon itself
        if path and (Path(path) / CONFIG).is_file():
            return Path(path), how
    return None


def read_checkpoint(folder: Path, which: str = "last") -> Checkpoint | None:
    """A checkpoint, `last` or `best`; None where none has been written."""
    path = folder / f"{which}.safetensors"
    if not path.exists():
        return None
    arrays, metadata = _read(path, _OTHER)
    try:
        about = json.loads(metadata["about"])
        quality = about["quality"]
        return Checkpoint(arrays, int(about["step"]), None if quality is None else float(quality))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}){_OTHER}.") from error


def read_memory(folder: Path) -> list[Memory]:
    """The parts of what a run remembers, oldest first."""
    return [Memory(*bounds, _read(path, "; the run cannot go on")[0]) for path, bounds in memory_files(folder)]


def memory_files(folder: Path) -> list[tuple[Path, tuple[int, int]]]:
    """The files of the parts, with the first and last step of each, oldest first."""
    named = ((path, re.fullmatch(r"memory-(\d+)-(\d+)", path.stem)) for path in folder.glob("memory-*.safetensors"))
    found = [(path, (int(name[1]), int(name[2]))) for path, name in named if name]
    return sorted(found, key=lambda entry: entry[1])


def safetensors() -> Any:
    """The library, or how to get it."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("checkpoints need safetensors: pip install 'lazymdp[deep]'") from error
    return safetensors


def _read(path: Path, remedy: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    try:
        with safetensors().safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            return {name: np.asarray(file.get_tensor(name)) for name in names}, file.metadata() or {}
    except (ValueError, KeyError, TypeError, safetensors().SafetensorError) as error:
        raise ValueError(f"{path} is damaged ({error}){remedy}.") from error
