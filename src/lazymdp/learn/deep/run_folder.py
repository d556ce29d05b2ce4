"""What training leaves on disk: a folder with settings, metrics and checkpoints, from which it can go on.

Beside the files that `saved` lists and reads there is `metrics.csv`, a row per report and price, appended
as they come. Everything else is written under another name and renamed, so that a run killed at any moment has a whole
checkpoint.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lazymdp._files import locked, replacing, write_text
from lazymdp._provenance import versions
from lazymdp.learn.deep.config import TrainConfig
from lazymdp.learn.deep.saved import (
    CONFIG,
    DEFAULT,
    LEARNERS,
    OWN_DEFAULT,
    Checkpoint,
    Memory,
    memory_files,
    named_run,
    own_default,
    read_checkpoint,
    read_config,
    read_memory,
    safetensors,
)

METRICS = "metrics.csv"
LOCK = ".lock"
COLUMNS = ("step", "eta", "episodes", "score", "length", "control")


class RunFolder:
    """A run on disk, for `lz.learn.train(config, folder=lz.RunFolder("runs/one"))`: begun there, or gone on with.

    Args:
        path: Its folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._held = Path(path), False

    def create(self, config: TrainConfig) -> None:
        """Begins a run; refuses a folder that holds one, unless it never came to a checkpoint."""
        default, copies = self._kept(config.default)
        about = {"learner": _learner(config), **asdict(config), "default": default, "versions": versions()}
        with self.claimed():
            if (self.path / "last.safetensors").exists():
                raise FileExistsError(
                    f"{self.path} holds a run already: go on with `lazymdp resume {self.path}`, or give another folder."
                )
            for file, source in copies.items():
                (self.path / DEFAULT).mkdir(exist_ok=True)
                with replacing(self.path / DEFAULT / file) as temporary:
                    shutil.copyfile(source, temporary)
            write_text(self.path / METRICS, ",".join(COLUMNS) + "\n")
            write_text(self.path / CONFIG, json.dumps(about, indent=2) + "\n")

    @property
    def begun(self) -> bool:
        """Whether there is a run, though perhaps without a checkpoint yet."""
        return (self.path / CONFIG).is_file()

    def same(self, config: TrainConfig) -> TrainConfig:
        """The config of the run here; refuses another than that asked for."""
        here = self.config()
        found, wanted = _named(here), _named(config)
        if wanted["default"] != found["default"]:  # where the original of a copy was does not matter
            wanted["default"] = own_default(self.path, self._kept(config.default)[0])
        for name in wanted:
            if found.get(name) != wanted[name]:
                raise ValueError(
                    f"{self.path} holds another run: its {name} is {found.get(name)}, not {wanted[name]}. Give another "
                    "folder."
                )
        return here

    def picked_up(self) -> tuple[Checkpoint | None, list[Memory]]:
        """What the run goes on from; what was told of steps that it makes again is dropped."""
        checkpoint = self.load("last")
        step = 0 if checkpoint is None else checkpoint.step
        self.rewind(step, step // self.config().settings.n_envs)
        return checkpoint, [] if checkpoint is None else self.memory()

    def keep(self, run: Any) -> None:
        """Writes a checkpoint of a `Training`."""
        memory = run.memory(self.remembered)
        self.save(Checkpoint(run.arrays(), run.step, run.quality()), memory, run.remembers)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else may train here meanwhile; the claim ends with the process, however it ends."""
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
                raise ValueError(f"{self.path} is being trained by another process: stop that one first.") from error
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _kept(self, default: str) -> tuple[str, dict[str, Path]]:
        """The default's name, and, of a run of ours and of a file, what is copied of it to here."""
        named = named_run(default)
        if named is not None:
            folder, manner = named
            copies = {file: folder / file for file in (CONFIG, "last.safetensors")}
            return f"{OWN_DEFAULT}:{manner}" if manner else OWN_DEFAULT, copies
        if Path(default).is_file():
            return f"{OWN_DEFAULT}/{Path(default).name}", {Path(default).name: Path(default)}
        return default, {}

    def config(self) -> TrainConfig:
        """What is trained; settings of other versions are named."""
        return read_config(self.path)

    def load(self, which: str = "last") -> Checkpoint | None:
        """A checkpoint, `last` or `best`; None where none has been written."""
        return read_checkpoint(self.path, which)

    def memory(self) -> list[Memory]:
        """What the run remembers, oldest first."""
        return read_memory(self.path)

    @property
    def remembered(self) -> int:
        """The last step of every environment of which is on disk what the run remembers."""
        return max((last for _, (_, last) in memory_files(self.path)), default=0)

    def save(self, checkpoint: Checkpoint, memory: Memory | None = None, keep: int = 0) -> None:
        """Writes the last checkpoint, and the best if it is that.

        Args:
            checkpoint: The run now.
            memory: What it remembers since `remembered`.
            keep: Steps of every environment it remembers in all; what is older is dropped.
        """
        best = self._best_quality()
        if memory is not None:
            name = f"memory-{memory.first:012d}-{memory.last:012d}.safetensors"
            _save(self.path / name, memory.arrays)
        self._write("last", checkpoint)
        if checkpoint.quality is not None and (best is None or checkpoint.quality >= best):
            self._write("best", checkpoint)
        if memory is not None:
            for path, (_, last) in memory_files(self.path):
                if last < memory.last - keep:
                    path.unlink()

    def append(self, metrics: Iterable[Any]) -> None:
        """Adds rows to the metrics."""
        with open(self.path / METRICS, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([getattr(row, name) for name in COLUMNS] for row in metrics)

    def rewind(self, step: int, environment_step: int) -> None:
        """Drops rows of the metrics after `step`, a last row that was torn, and later parts of the memory.

        Args:
            step: Agent steps at the checkpoint from which the run goes on and makes them again.
            environment_step: The same for one environment.
        """
        path = self.path / METRICS
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[1:] if path.exists() else []
        rows = [line for line in lines if line.count(",") == len(COLUMNS) - 1]
        kept = [line for line in rows if (told := line.split(",")[0]).isdecimal() and int(told) <= step]
        write_text(self.path / METRICS, "\n".join([",".join(COLUMNS), *kept]) + "\n")
        for path, (_, last) in memory_files(self.path):
            if last > environment_step:
                path.unlink()
        for path in self.path.glob(".*.part*"):  # half written when the run was killed
            path.unlink()

    def _best_quality(self) -> float | None:
        path = self.path / "best.safetensors"
        if not path.exists():
            return None
        try:
            with safetensors().safe_open(path, framework="numpy") as file:
                return json.loads(file.metadata()["about"])["quality"]
        except (ValueError, KeyError, TypeError, safetensors().SafetensorError):
            return None  # damaged: the next one is better

    def _write(self, which: str, checkpoint: Checkpoint) -> None:
        about = json.dumps({"step": checkpoint.step, "quality": checkpoint.quality})
        _save(self.path / f"{which}.safetensors", checkpoint.arrays, {"about": about})
        write_text(self.path / f"{which}.json", about + "\n")


def _save(path: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    with replacing(path) as temporary:
        try:
            safetensors().numpy.save_file(arrays, temporary, metadata=metadata)
        except safetensors().SafetensorError as error:  # a full disk, for one
            raise OSError(f"{path} cannot be written ({error}): what was there before is still there.") from error


def _learner(config: TrainConfig) -> str:
    return next(name for name, kind in LEARNERS.items() if isinstance(config.settings, kind))


def _named(config: TrainConfig) -> dict[str, Any]:
    """Everything that is set, by name."""
    about = {"learner": _learner(config), **asdict(config)}
    return about | about.pop("settings")
