"""The folder of a run, from which training is resumed and agents are loaded. Only this module reads and writes it.

* `config.json`: environment, settings, default policy, seed and extensions of the run, and package versions.
* `metrics.csv`: one row per report and price, appended during training.
* `last.safetensors`, `best.safetensors`: the state of the run at the last checkpoint, and at the end of the window of
  episodes with the highest mean return after the price (see `Training.quality`). For each, a `.json` file holds the
  step and that mean return for the user; nothing reads it.
* `replay-FIRST-LAST.safetensors`: the replay buffer of DQN, in parts. Each checkpoint adds a part, because writing the
  whole buffer every time would take longer than learning.
* `default/`, `warm_start/`: copies of the default policy and of the run to start from, if these are runs (config and
  network) or saved models, so that the run does not depend on the originals.
* `events/`: TensorBoard events, whose format has checksums of its own. Nothing reads them here.

Files are written under a temporary name and then renamed, so a run killed at any moment leaves a complete checkpoint.
`config.json` and the safetensors files contain checksums of themselves. `config.json` also has those of the copies.
`last.safetensors` names the parts of the replay buffer that belong to it, and has the length and the checksum of
`metrics.csv`; what was appended after that checkpoint is deleted when the run continues. Nothing is changed or deleted
before everything that the run needs has been read and verified.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lazymdp._arguments import check_path
from lazymdp._files import locked, remove_orphans, replacing, write_text
from lazymdp._provenance import versions
from lazymdp.defaults.sb3 import model_file
from lazymdp.learn.deep import metrics_file
from lazymdp.learn.deep.checked_files import (
    Damaged,
    file_checksum,
    read_about,
    read_arrays,
    sealed,
    unsealed,
    write_arrays,
)
from lazymdp.learn.deep.config import ALGORITHMS
from lazymdp.learn.deep.metrics_file import Metrics
from lazymdp.learn.deep.train_config import WORDS, TrainConfig
from lazymdp.learn.deep.trust import CONFIG, COPIES, FUNCTION, find_run, inside, is_known

METRICS, LOCK, (DEFAULT, WARM_START) = "metrics.csv", ".lock", COPIES
CHECKPOINTS = ("last", "best")
_COPIED = (CONFIG, "last.safetensors")  # of a run that is a default policy or is started from
_BACKUP = "restore it from a backup"
_PART = re.compile(r"replay-(\d+)-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot of a run.

    Attributes:
        arrays: The state of the run, by name.
        step: Agent steps so far.
        quality: Mean return after the price, if this is a candidate for the best checkpoint.
    """

    arrays: dict[str, NDArray[Any]]
    step: int
    quality: float | None = None


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
        self.path, self._held = check_path(path, "folder"), False

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run, possibly without a checkpoint."""
        return (self.path / CONFIG).is_file()

    # -- reading -----------------------------------------------------------------------------------------------------

    def config(self) -> TrainConfig:
        """Returns the config; raises an error if it is damaged or was written by another version."""
        path, read = self.path / CONFIG, self._read_config()
        try:
            env, default_policy, seed = str(read["env"]), str(read["default_policy"]), int(read["seed"])
            settings, kind = dict(read["settings"]), ALGORITHMS[read["algorithm"]]
            env_kwargs, extended_to = dict(read.get("env_kwargs", {})), tuple(map(int, read.get("extended_to", ())))
        except KeyError as error:
            raise ValueError(f"{path} is damaged: {error} is missing or unknown.") from error
        except (ValueError, TypeError) as error:
            raise Damaged(path, error) from error
        # A setting that did not exist yet gets its default, which keeps the old behavior: see `AlgorithmConfig`.
        unknown = sorted(set(settings) - {field.name for field in fields(kind)})
        if unknown:
            raise ValueError(f"{path} was written by another version of lazymdp: this one has no setting {unknown[0]}.")
        if settings.get("warm_start"):
            settings["warm_start"] = inside(self.path, str(settings["warm_start"]))
        try:
            return TrainConfig(env, kind(**settings), self._resolved(default_policy), seed, env_kwargs, extended_to)
        except (ValueError, TypeError) as error:
            raise Damaged(path, error) from error

    def read(self, which: str = "last") -> Checkpoint | None:
        """Returns the `last` or `best` checkpoint, or None if there is none yet."""
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            return None
        try:
            arrays, about = read_arrays(path)
            _check_kind(path, which, about)
            quality = about["quality"]
            return Checkpoint(arrays, int(about["step"]), None if quality is None else float(quality))
        except Damaged as error:
            raise Damaged(path, error.damage, self._remedy(which)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(path, error, self._remedy(which)) from error

    def replay(self) -> list[ReplayPart]:
        """Returns the parts of the replay buffer of the last checkpoint, oldest first."""
        return [self._read_part(name, of) for name, of in sorted(self._parts().items())]

    @property
    def last_replay_step(self) -> int:
        """Last per-environment step in the replay buffer of the last checkpoint."""
        return max((_steps(name)[1] for name in self._parts()), default=0)

    def step(self, which: str = "last") -> int | None:
        """Returns the agent steps at the `last` or `best` checkpoint, or None if there is none."""
        try:
            about = self._about(which)
            return None if about is None else int(about["step"])
        except Damaged as error:
            raise Damaged(self.path / f"{which}.safetensors", error.damage, self._remedy(which)) from error

    @property
    def best_quality(self) -> float:
        """Quality of the best checkpoint, or minus infinity if there is none."""
        about = self._about("best")
        return -math.inf if about is None else float(about["quality"])

    def check_same(self, config: TrainConfig) -> TrainConfig:
        """Returns the config of the run; raises an error if it differs from `config` by more than an extension."""
        here = self.config()
        found, wanted = _flat(here), _flat(replace(config, extended_to=here.extended_to))
        copies: dict[str, Path] = {}
        if wanted["default_policy"] != found["default_policy"]:  # the original may have moved
            named, copies = self._copied(config.default_policy)
            wanted["default_policy"] = self._resolved(named) if copies else named
        if wanted.get("warm_start") and found.get("warm_start"):
            wanted["warm_start"] = found["warm_start"]
        for name in wanted:
            if found.get(name) != wanted[name]:
                remedy = ", or extend the run: lz.learn.resume(folder, steps=...)." if name == "steps" else "."
                raise ValueError(
                    f"{self.path} holds another run: its {name} is {found.get(name)}, not {wanted[name]}. Give another "
                    f"folder{remedy}"
                )
        for file, source in copies.items():  # the pickle that will be read must be the one that was given
            if len(copies) == 1 and file_checksum(self.path / file) != file_checksum(source):
                raise ValueError(f"{self.path} holds another run: its default_policy is another model than {source}.")
        return here

    def check_copies(self) -> None:
        """Raises an error if a copy in the folder is damaged, or is a link to a file outside it."""
        for file, of in self._read_config().get("copies", {}).items():
            path = Path(inside(self.path, f"./{file}"))
            if not path.is_file() or file_checksum(path) != of:
                raise Damaged(path, "its checksum does not match" if path.is_file() else "it is missing", _BACKUP)
        for path in (entry for name in (DEFAULT, WARM_START) for entry in (self.path / name).glob("*")):
            inside(self.path, f"./{path.relative_to(self.path).as_posix()}")

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, config: TrainConfig) -> None:
        """Starts a run; raises an error if the folder holds a run that has a checkpoint."""
        default_policy, copies = self._copied(config.default_policy)
        about: dict[str, Any] = {"algorithm": config.algorithm, **asdict(config), "versions": versions()}
        about["default_policy"] = default_policy
        if about["settings"].get("warm_start"):
            first = RunFolder(about["settings"]["warm_start"])
            first.config()
            copies |= {f"{WARM_START}/{file}": first.path / file for file in _COPIED}
            about["settings"]["warm_start"] = f"./{WARM_START}"
        with self.claimed():
            if any((self.path / f"{which}.safetensors").exists() for which in CHECKPOINTS):
                raise FileExistsError(
                    f"{self.path} holds a run already: continue it with `lazymdp resume {self.path}`, or give another "
                    "folder."
                )
            for file, source in copies.items():
                (self.path / file).parent.mkdir(exist_ok=True)
                with replacing(self.path / file) as temporary:
                    shutil.copyfile(source, temporary)
            about["copies"] = {file: file_checksum(self.path / file) for file in copies}
            metrics_file.cut(self.path / METRICS, None)
            write_text(self.path / CONFIG, sealed(about, indent=2) + "\n")

    def extend(self, config: TrainConfig) -> None:
        """Notes in the config on disk that the run has been extended, as `config` says; the rest remains as it is."""
        with self.claimed():
            about = self._read_config() | {"extended_to": config.extended_to}
            write_text(self.path / CONFIG, sealed(about, indent=2) + "\n")

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

    def resume(self, which: str = "last") -> tuple[Checkpoint | None, list[ReplayPart]]:
        """Reads and verifies everything that is needed to continue the run; changes nothing.

        Args:
            which: The `last` or the `best` checkpoint. The replay buffer of the best one is not on disk.

        Returns:
            The checkpoint, or None if the run has none yet, and the parts of its replay buffer.
        """
        checkpoint = self.read(which)
        if checkpoint is None:
            # last.json is written after last.safetensors: it shows that there was a checkpoint.
            signs = [f"{one}.{kind}" for one in CHECKPOINTS for kind in ("safetensors", "json")]
            there = [name for name in signs if (self.path / name).exists()]
            if which == "best" or there:
                sign = f" although there is {there[0]}" if there else ""
                raise FileNotFoundError(
                    f"{self.path} has no {which}.safetensors{sign}: {self._remedy(which)}. Nothing was changed."
                )
            return None, []
        if (self._about(which) or {}).get("exported"):
            raise ValueError(
                f"{self.path} holds an exported agent, without the state of its training: it can be loaded and "
                "evaluated, but not resumed."
            )
        if which == "last":
            self.read("best")  # a damaged one would be replaced by one that may be worse
        self._check_metrics()
        return checkpoint, self.replay() if which == "last" else []

    def rewind(self) -> None:
        """Deletes what was written after the last checkpoint, and temporary files of processes that were killed."""
        last = self._about("last")
        metrics_file.cut(self.path / METRICS, None if last is None else last["metrics"][0])
        self._delete_parts_except({} if last is None else last["replay"])
        remove_orphans(self.path)

    def append(self, metrics: Iterable[Metrics]) -> None:
        """Appends rows to the metrics."""
        metrics_file.append(self.path / METRICS, metrics)

    def save(
        self,
        checkpoint: Checkpoint,
        replay: ReplayPart | None = None,
        keep: int = 0,
        best: Checkpoint | None = None,
    ) -> None:
        """Writes the last checkpoint, and the best one if it is given.

        Args:
            checkpoint: The current state of the run.
            replay: Steps of the replay buffer since `last_replay_step`, or all of them if the run continued from the
                best checkpoint.
            keep: Number of per-environment steps that the buffer holds; older parts are deleted.
            best: A state at least as good as the best checkpoint, with its quality.
        """
        try:
            parts = self._parts() if replay is not None else {}
        except Damaged:  # the run continued from the best checkpoint
            parts = {}
        if replay is not None:
            parts = {name: of for name, of in parts.items() if replay.last - keep <= _steps(name)[1] <= replay.first}
            name = f"replay-{replay.first:012d}-{replay.last:012d}.safetensors"
            write_arrays(self.path / name, replay.arrays, {"first": replay.first, "last": replay.last})
            parts[name] = read_about(self.path / name)["arrays"]
        # First the best checkpoint: if the process is killed before the last one is written, it is found once more.
        if best is not None:
            self._write("best", best)
        metrics = metrics_file.mark(self.path / METRICS, checkpoint.step)
        self._write("last", checkpoint, {"metrics": metrics, "replay": parts})
        self._delete_parts_except(parts)

    def save_agent(self, agent: Checkpoint) -> None:
        """Writes a checkpoint that holds an agent without the state of its training; it cannot be resumed."""
        metrics = metrics_file.mark(self.path / METRICS, agent.step)
        self._write("last", agent, {"metrics": metrics, "replay": {}, "exported": True})

    # -- details -----------------------------------------------------------------------------------------------------

    def _read_config(self) -> dict[str, Any]:
        path = self.path / CONFIG
        try:
            return unsealed(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"{self.path} is not the folder of a run: it has no {CONFIG}.") from error
        except ValueError as error:
            raise Damaged(path, error, _BACKUP) from error

    def _resolved(self, default_policy: str) -> str:
        """Returns a default policy of the config, with the path of the run's own copy if it is one."""
        if is_known(default_policy) or FUNCTION.fullmatch(default_policy):
            return default_policy
        return inside(self.path, default_policy)

    def _copied(self, default_policy: str) -> tuple[str, dict[str, Path]]:
        """Returns the name of a default policy in the config, and the files to copy if it is a run or a file."""
        named = None if default_policy in WORDS else find_run(default_policy)
        if named is not None:
            folder, manner = named
            copies = {f"{DEFAULT}/{file}": folder / file for file in _COPIED}
            return f"./{DEFAULT}:{manner}" if manner else f"./{DEFAULT}", copies
        file = None if default_policy in WORDS else model_file(default_policy)
        if file is not None:
            return f"./{DEFAULT}/{file.name}", {f"{DEFAULT}/{file.name}": file}
        return default_policy, {}

    def _about(self, which: str) -> dict[str, Any] | None:
        """Returns the description of a checkpoint, or None if there is none."""
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            return None
        about = read_about(path)
        _check_kind(path, which, about)
        return about

    def _parts(self) -> dict[str, str]:
        """Returns the names and checksums of the parts of the replay buffer of the last checkpoint."""
        about = self._about("last")
        return {} if about is None else dict(about["replay"])

    def _read_part(self, name: str, of: str) -> ReplayPart:
        path, (first, last) = self.path / name, _steps(name)
        remedy = f"the run cannot continue with it; {self._remedy('replay')}"
        try:
            if read_about(path).get("arrays") != of:
                raise Damaged(path, "it does not belong to last.safetensors")
            return ReplayPart(first, last, read_arrays(path)[0])
        except Damaged as error:
            raise Damaged(path, error.damage, remedy) from error
        except FileNotFoundError as error:
            raise Damaged(path, "it is missing", remedy) from error

    def _delete_parts_except(self, parts: dict[str, str]) -> None:
        for path in self.path.glob("replay-*.safetensors"):
            if _PART.fullmatch(path.name) and path.name not in parts:
                path.unlink()

    def _check_metrics(self) -> None:
        """Raises an error if rows from before the last checkpoint have changed, or the file is outside the folder."""
        path = self.path / METRICS
        if not path.resolve().is_relative_to(self.path.resolve()):  # it is the only file that is changed in place
            raise ValueError(f"{path} is a link to a file outside the folder, which the run would change: remove it.")
        try:
            about = self._about("last")
        except Damaged:  # the run continues from the best checkpoint
            return
        if about is not None and path.exists() and file_checksum(path, about["metrics"][0]) != about["metrics"][1]:
            raise Damaged(
                path,
                "its checksum does not match that in last.safetensors",
                "restore it from a backup, or move it away to continue with a new file",
            )

    def _remedy(self, lost: str) -> str:
        """Returns what to do if a part of the run is lost: `last`, `best` or `replay`."""
        if lost == "best":
            return (
                "use the last checkpoint, without --best or --from best; to continue the run, move best.safetensors "
                "and best.json away"
            )
        if not (self.path / "best.safetensors").exists():
            return _BACKUP
        use = "" if lost == "replay" else f", or evaluate it with `lazymdp evaluate {self.path} --best`"
        return f"continue from the best checkpoint with `lazymdp resume {self.path} --from best`{use}"

    def _write(self, which: str, checkpoint: Checkpoint, more: dict[str, Any] | None = None) -> None:
        about = {"step": checkpoint.step, "quality": checkpoint.quality}
        write_arrays(self.path / f"{which}.safetensors", checkpoint.arrays, {**about, **(more or {})})
        write_text(self.path / f"{which}.json", json.dumps(about) + "\n")


def _check_kind(path: Path, which: str, about: dict[str, Any]) -> None:
    """Raises an error if a checkpoint has the name of the other kind: only the last one describes the metrics."""
    if ("metrics" in about) != (which == "last"):
        raise Damaged(path, "it is a copy of another checkpoint")


def _steps(name: str) -> tuple[int, int]:
    """Returns the first and the last step of a part of the replay buffer, given the name of its file."""
    found = _PART.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2])


def _flat(config: TrainConfig) -> dict[str, Any]:
    """Returns all settings of a run by name."""
    about = {"algorithm": config.algorithm, **asdict(config)}
    return about | about.pop("settings")
