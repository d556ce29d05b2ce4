"""The folder of a run, from which training is resumed and agents are loaded. Only this module reads and writes it.

* `config.json`: environment, settings, default policy, seed and extensions of the run, and package versions.
* `metrics.csv`: one row per report and price, appended during training.
* `last.safetensors`, `best.safetensors`: the state of the run at the last checkpoint, and at the checkpoint with the
  highest mean return after the price. For each, a `.json` file holds the step and that mean return.
* `replay-FIRST-LAST.safetensors`: the replay buffer of DQN, in parts. Each checkpoint adds a part, because writing the
  whole buffer every time would take longer than learning.
* `default/`: a copy of the default policy, if that is a run (its config and network) or a saved model, so that the run
  does not depend on the original.

Files are written under a temporary name and then renamed, so a run killed at any moment leaves a complete checkpoint.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._files import locked, replacing, write_text
from lazymdp._provenance import versions
from lazymdp.defaults.sb3 import model_file
from lazymdp.learn.deep.config import ALGORITHMS
from lazymdp.learn.deep.train_config import WORDS, TrainConfig

CONFIG, METRICS, LOCK, DEFAULT = "config.json", "metrics.csv", ".lock", "default"
OWN_DEFAULT = f"./{DEFAULT}"
_OTHER_CHECKPOINT = "; `lazymdp evaluate`, with or without --best, can use the other checkpoint"


@dataclass(frozen=True)
class Metrics:
    """Statistics of the episodes that ended since the last report.

    The episodes of a dial are grouped by the nearest of its reported prices.

    Attributes:
        step: Agent steps so far.
        eta: Price; for a single price, the mean over these episodes.
        episodes: Number of episodes.
        mean_return: Mean return, price excluded.
        length: Mean length in steps.
        control_rate: Share of steps in control, exploration included.
    """

    step: int
    eta: float
    episodes: int
    mean_return: float
    length: float
    control_rate: float


COLUMNS = tuple(field.name for field in fields(Metrics))


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot of a run.

    Attributes:
        arrays: The state of the run, by name.
        step: Agent steps so far.
        quality: Mean return after the price, which decides the best checkpoint; None if too few episodes have ended.
    """

    arrays: dict[str, NDArray[Any]]
    step: int
    quality: float | None


@dataclass(frozen=True)
class ReplayPart:
    """Part of a replay buffer: steps `first` to `last` of every environment, `[last - first + 1, N, ...]` arrays."""

    first: int
    last: int
    arrays: dict[str, NDArray[Any]]


class RunFolder:
    """The folder of a run.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"folder is {path!r}, expected a path.")
        self.path, self._held = Path(path), False

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run, possibly without a checkpoint."""
        return (self.path / CONFIG).is_file()

    # -- reading -----------------------------------------------------------------------------------------------------

    def config(self) -> TrainConfig:
        """Returns the config; raises an error if it is damaged or was written by another version."""
        path = self.path / CONFIG
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            env, default_policy, seed = str(read["env"]), str(read["default_policy"]), int(read["seed"])
            settings, kind = dict(read["settings"]), ALGORITHMS[read["algorithm"]]
            env_kwargs, extended_to = dict(read.get("env_kwargs", {})), tuple(map(int, read.get("extended_to", ())))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"{self.path} is not the folder of a run: it has no {CONFIG}.") from error
        except KeyError as error:
            raise ValueError(f"{path} is damaged: {error} is missing or unknown.") from error
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}).") from error
        known = {field.name for field in fields(kind)}
        if set(settings) != known:
            odd = ", ".join(sorted(set(settings) ^ known))
            raise ValueError(f"{path} was written by another version of lazymdp; the settings {odd} differ.")
        try:
            return TrainConfig(env, kind(**settings), self._resolved(default_policy), seed, env_kwargs, extended_to)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}).") from error

    def read(self, which: str = "last") -> Checkpoint | None:
        """Returns the `last` or `best` checkpoint, or None if there is none yet."""
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            return None
        arrays, metadata = _read(path, _OTHER_CHECKPOINT)
        try:
            about = json.loads(metadata["about"])
            quality = about["quality"]
            return Checkpoint(arrays, int(about["step"]), None if quality is None else float(quality))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}){_OTHER_CHECKPOINT}.") from error

    def replay(self) -> list[ReplayPart]:
        """Returns the parts of the replay buffer, oldest first."""
        return [ReplayPart(*steps, _read(path, "; the run cannot continue")[0]) for path, steps in self._replay_files()]

    @property
    def last_replay_step(self) -> int:
        """Last per-environment step whose replay data is on disk."""
        return max((last for _, (_, last) in self._replay_files()), default=0)

    def check_same(self, config: TrainConfig) -> TrainConfig:
        """Returns the config of the run; raises an error if it differs from `config` by more than an extension."""
        here = self.config()
        found, wanted = _flat(here), _flat(replace(config, extended_to=here.extended_to))
        if wanted["default_policy"] != found["default_policy"]:  # the original may have moved
            wanted["default_policy"] = self._resolved(self._copied(config.default_policy)[0])
        for name in wanted:
            if found.get(name) != wanted[name]:
                remedy = ", or extend the run: lz.learn.resume(folder, steps=...)." if name == "steps" else "."
                raise ValueError(
                    f"{self.path} holds another run: its {name} is {found.get(name)}, not {wanted[name]}. Give another "
                    f"folder{remedy}"
                )
        return here

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, config: TrainConfig) -> None:
        """Starts a run; raises an error if the folder holds a run that has a checkpoint."""
        default_policy, copies = self._copied(config.default_policy)
        about = {
            "algorithm": config.algorithm, **asdict(config), "default_policy": default_policy, "versions": versions(),
        }  # fmt: skip
        with self.claimed():
            if (self.path / "last.safetensors").exists():
                raise FileExistsError(
                    f"{self.path} holds a run already: continue it with `lazymdp resume {self.path}`, or give another "
                    "folder."
                )
            for file, source in copies.items():
                (self.path / DEFAULT).mkdir(exist_ok=True)
                with replacing(self.path / DEFAULT / file) as temporary:
                    shutil.copyfile(source, temporary)
            write_text(self.path / METRICS, ",".join(COLUMNS) + "\n")
            write_text(self.path / CONFIG, json.dumps(about, indent=2) + "\n")

    def extend(self, config: TrainConfig) -> None:
        """Notes in the config on disk that the run has been extended, as `config` says; the rest remains as it is."""
        path = self.path / CONFIG
        with self.claimed():
            about = json.loads(path.read_text(encoding="utf-8"))
            write_text(path, json.dumps(about | {"extended_to": config.extended_to}, indent=2) + "\n")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Locks the folder against other processes; the lock is released even if the process is killed."""
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} is a file: give a folder for the run.")
        if self._held:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path / LOCK, wait=False))
            except BlockingIOError as error:
                raise ValueError(f"another process is training in {self.path}: stop it first.") from error
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def resume(self) -> tuple[Checkpoint | None, list[ReplayPart]]:
        """Returns the checkpoint and replay buffer to continue from; deletes data from after that checkpoint."""
        checkpoint = self.read("last")
        step = 0 if checkpoint is None else checkpoint.step
        self.rewind(step, step // self.config().settings.n_envs)
        return checkpoint, [] if checkpoint is None else self.replay()

    def append(self, metrics: Iterable[Metrics]) -> None:
        """Appends rows to the metrics."""
        with open(self.path / METRICS, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([getattr(row, name) for name in COLUMNS] for row in metrics)

    def save(self, checkpoint: Checkpoint, replay: ReplayPart | None = None, keep: int = 0) -> None:
        """Writes the last checkpoint, and also the best one if this one is at least as good.

        Args:
            checkpoint: The current state of the run.
            replay: Steps of the replay buffer since `last_replay_step`.
            keep: Number of per-environment steps that the buffer holds; older parts are deleted.
        """
        best = self._best_quality()
        if replay is not None:
            _save(self.path / f"replay-{replay.first:012d}-{replay.last:012d}.safetensors", replay.arrays)
        self._write("last", checkpoint)
        if checkpoint.quality is not None and (best is None or checkpoint.quality >= best):
            self._write("best", checkpoint)
        if replay is not None:
            for path, (_, last) in self._replay_files():
                if last < replay.last - keep:
                    path.unlink()

    def rewind(self, step: int, environment_step: int) -> None:
        """Deletes metrics and parts of the replay buffer from after a checkpoint, incomplete rows and temporary files.

        Args:
            step: Agent steps at the checkpoint from which the run continues.
            environment_step: Per-environment steps at that checkpoint.
        """
        path = self.path / METRICS
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[1:] if path.exists() else []
        rows = [line for line in lines if line.count(",") == len(COLUMNS) - 1]
        kept = [line for line in rows if (first := line.split(",")[0]).isdecimal() and int(first) <= step]
        write_text(path, "\n".join([",".join(COLUMNS), *kept]) + "\n")
        for path, (_, last) in self._replay_files():
            if last > environment_step:
                path.unlink()
        for path in self.path.glob(".*.part*"):  # left behind when the run was killed
            path.unlink()

    # -- details -----------------------------------------------------------------------------------------------------

    def _resolved(self, default_policy: str) -> str:
        """Returns the path of a default policy. The config names the run's own copy relative to the folder."""
        if not default_policy.startswith(OWN_DEFAULT):
            return default_policy
        return default_policy.replace(OWN_DEFAULT, str(self.path / DEFAULT), 1)

    def _copied(self, default_policy: str) -> tuple[str, dict[str, Path]]:
        """Returns the name of a default policy in the config, and the files to copy if it is a run or a file."""
        named = None if default_policy in WORDS else find_run(default_policy)
        if named is not None:
            folder, manner = named
            copies = {file: folder / file for file in (CONFIG, "last.safetensors")}
            return f"{OWN_DEFAULT}:{manner}" if manner else OWN_DEFAULT, copies
        file = None if default_policy in WORDS else model_file(default_policy)
        if file is not None:
            return f"{OWN_DEFAULT}/{file.name}", {file.name: file}
        return default_policy, {}

    def _replay_files(self) -> list[tuple[Path, tuple[int, int]]]:
        """Returns the files of the replay buffer with their first and last step, oldest first."""
        named = ((path, re.fullmatch(r"replay-(\d+)-(\d+)", path.stem)) for path in self.path.glob("replay-*"))
        found = [(path, (int(name[1]), int(name[2]))) for path, name in named if name and path.suffix == ".safetensors"]
        return sorted(found, key=lambda entry: entry[1])

    def _best_quality(self) -> float | None:
        path = self.path / "best.safetensors"
        if not path.exists():
            return None
        try:
            with _safetensors().safe_open(path, framework="numpy") as file:
                return json.loads(file.metadata()["about"])["quality"]
        except (ValueError, KeyError, TypeError, _safetensors().SafetensorError):
            return None  # the file is damaged: let the next checkpoint replace it

    def _write(self, which: str, checkpoint: Checkpoint) -> None:
        about = json.dumps({"step": checkpoint.step, "quality": checkpoint.quality})
        _save(self.path / f"{which}.safetensors", checkpoint.arrays, {"about": about})
        write_text(self.path / f"{which}.json", about + "\n")


def find_run(default_policy: str) -> tuple[Path, str] | None:
    """Splits a default policy into the folder of a run and the text after the colon; returns None if it is no run."""
    folder, _, manner = default_policy.rpartition(":")
    for path, how in ((default_policy, ""), (folder, manner)):  # the name of the folder may contain a colon
        if path and (Path(path) / CONFIG).is_file():
            return Path(path), how
    return None


def _flat(config: TrainConfig) -> dict[str, Any]:
    """Returns all settings of a run by name."""
    about = {"algorithm": config.algorithm, **asdict(config)}
    return about | about.pop("settings")


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("checkpoints need safetensors: pip install 'lazymdp[deep]'") from error
    return safetensors


def _read(path: Path, remedy: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    try:
        with _safetensors().safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            return {name: np.asarray(file.get_tensor(name)) for name in names}, file.metadata() or {}
    except (ValueError, KeyError, TypeError, _safetensors().SafetensorError) as error:
        raise ValueError(f"{path} is damaged ({error}){remedy}.") from error


def _save(path: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    with replacing(path) as temporary:
        try:
            _safetensors().numpy.save_file(arrays, temporary, metadata=metadata)
        except _safetensors().SafetensorError as error:  # for example, a full disk
            raise OSError(f"{path} cannot be written ({error}); the previous file is unchanged.") from error
