"""What training leaves on disk: a folder with settings, metrics and checkpoints, from which it can go on.

* `config.json`: what is trained on what;
* `metrics.csv`: a row per report and price, appended as they come;
* `last.safetensors`, `best.safetensors`: everything the run is at its last checkpoint, and at the one whose episodes
  returned most after the price; each with a `.json` that says when.

Checkpoints are written under another name and renamed, so that a run killed at any moment has a whole one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lazymdp.files import replacing, write_text
from lazymdp.learn.settings import DialConfig, TrainConfig
from lazymdp.runs import versions

CONFIG, METRICS = "config.json", "metrics.csv"
COLUMNS = ("step", "eta", "episodes", "score", "length", "control")


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run: its arrays, the agent steps made, and how good its episodes were."""

    arrays: dict[str, NDArray[Any]]
    step: int
    quality: float


class RunFolder:
    """A run on disk.

    Args:
        path: Its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: TrainConfig) -> None:
        """Begins a run; refuses a folder that holds one."""
        if (self.path / CONFIG).exists():
            raise FileExistsError(
                f"{self.path} holds a run already: go on with `lazymdp resume {self.path}`, or give another folder."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / METRICS, ",".join(COLUMNS) + "\n")
        write_text(self.path / CONFIG, json.dumps({**asdict(config), "versions": versions()}, indent=2) + "\n")

    def config(self) -> TrainConfig:
        """What is trained; settings of other versions are named."""
        try:
            read = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
            settings = dict(read["settings"])
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.path} holds no run: there is no {CONFIG} in it.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path / CONFIG} is damaged ({error}).") from error
        known = {field.name for field in fields(DialConfig)}
        if set(settings) != known:
            odd = ", ".join(sorted(set(settings) ^ known))
            raise ValueError(f"{self.path / CONFIG} is of another version of lazymdp: {odd}.")
        settings["hidden"] = tuple(settings["hidden"])
        return TrainConfig(read["env"], read["default"], read["seed"], DialConfig(**settings))

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes the last checkpoint, and the best if it is that."""
        best = self._about("best")
        self._write("last", checkpoint)
        if best is None or checkpoint.quality >= best["quality"]:
            self._write("best", checkpoint)

    def load(self, which: str = "last") -> Checkpoint | None:
        """A checkpoint, `last` or `best`; None where none has been written."""
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            return None
        try:
            with _safetensors().safe_open(path, framework="numpy") as file:
                about = json.loads(file.metadata()["about"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (ValueError, KeyError, TypeError, _safetensors().SafetensorError) as error:
            raise ValueError(f"{path} is damaged ({error}); the other checkpoint may be whole.") from error
        return Checkpoint(arrays, int(about["step"]), float(about["quality"]))

    def append(self, metrics: Iterable[Any]) -> None:
        """Adds rows to the metrics."""
        with open(self.path / METRICS, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([getattr(row, name) for name in COLUMNS] for row in metrics)

    def rewind(self, step: int) -> None:
        """Drops rows of the metrics after `step`, and a last row that was torn: the run makes them again."""
        lines = (self.path / METRICS).read_text(encoding="utf-8").splitlines()[1:]
        kept = [line for line in lines if line.count(",") == len(COLUMNS) - 1 and int(line.split(",")[0]) <= step]
        write_text(self.path / METRICS, "\n".join([",".join(COLUMNS), *kept]) + "\n")

    def _about(self, which: str) -> Mapping[str, Any] | None:
        try:
            return json.loads((self.path / f"{which}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def _write(self, which: str, checkpoint: Checkpoint) -> None:
        about = json.dumps({"step": checkpoint.step, "quality": checkpoint.quality})
        with replacing(self.path / f"{which}.safetensors") as temporary:
            _safetensors().numpy.save_file(checkpoint.arrays, temporary, metadata={"about": about})
        write_text(self.path / f"{which}.json", about + "\n")


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("checkpoints need safetensors: pip install 'lazymdp[deep]'") from error
    return safetensors
