"""Recordings: whole episodes of an agent on disk, in files that need neither this library nor a pickle to be read.

A recording is a folder:

* `recording.json` describes the agent and the environment, and counts the whole episodes.
* `episode-00000.parquet` has one row per step; `COLUMNS` lists the columns. Its key-value metadata hold the `seed` of
  the reset, `terminated`, `truncated`, `return` (the sum of the rewards) and `length`.
* `episode-00000.zip` holds the frames as PNG images, `000000.png` and so on. Frame `t` is what was seen before step
  `t`. There is no such file if the environment cannot be rendered.

Every file is written under a temporary name and renamed, and an episode counts only once `recording.json` counts it. If
the process is killed, the recording is therefore whole up to the last episode that ended; temporary files that are left
are removed when the folder is next written to. Rows and frames are written as they come, so memory does not grow with
the length of an episode.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_integer, check_path, check_type
from lazymdp._files import remove_orphans, replacing, write_text
from lazymdp._provenance import versions
from lazymdp.explain.extra import extra

FORMAT = 1
"""Version of the format on disk."""
LONGEST = 27_000
"""Longest episode in steps, unless `max_steps` is given: the 30 minutes that Atari games are played."""

COLUMNS = {
    "step": "int64",  # number of the step in its episode, from 0
    "action": "int64",  # executed action, numbered from 0
    "choice": "int64",  # chosen action, numbered from 0; A is lazy
    "control": "bool_",  # whether the agent took control
    "reward": "float64",  # reward of the environment, without the price
    "price": "float64",  # eta if the agent took control, otherwise 0
    "value": "float64",  # value of the state, price included; NaN if unknown
    "lazy_gap": "float64",  # NaN if unknown
    "critical_eta": "float64",  # largest price at which the agent takes control; null if unknown
    "q": "list",  # [A] values of taking control with each action; NaN if unknown
    "default_probability": "list",  # [A] probabilities of the default policy; NaN if unknown
    "mask": "float64",  # probability that a learned mask keeps the agent's action; not every recording has this column
    "observation": "list",  # the observation, flattened; not every recording has this column
}
"""Columns of an episode and their types. Columns of type `list` hold doubles."""

_OPTIONAL = ("mask", "observation")
_ABOUT: dict[str, type | tuple[type, ...]] = {
    "agent": str, "env": str, "eta": (int, float, type(None)), "default_policy": str, "action_names": list,
    "n_actions": int, "frames_per_second": (int, float), "frame_shape": (list, type(None)), "episodes": int,
    "seed": int, "versions": dict,
}  # fmt: skip
_SUMMARY = ("seed", "terminated", "truncated", "return", "length")


class Recording:
    """Whole episodes of an agent, read from a folder.

    Opening a recording checks that every file is there and was written to its end. The content is checked when it is
    read. A damaged file raises a ValueError that names it.

    Args:
        folder: Folder that `lz.explain.record` has written.

    Attributes:
        folder: The folder.
        about: The content of `recording.json`: `agent`, `env`, `eta`, `default_policy`, `action_names`, `n_actions`,
            `frames_per_second`, `frame_shape`, `episodes`, `seed` and `versions`; and `state_names`, if the states
            have names.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_path(folder, "folder")
        self.about = _read_about(self.folder / "recording.json")
        self._summaries = [self._read_summary(episode) for episode in range(self.episodes)]
        self._frames: tuple[int, zipfile.ZipFile] | None = None  # the frames of the episode last read
        if self.has_frames:
            for episode in range(self.episodes):
                self._check_frames(episode)

    @property
    def episodes(self) -> int:
        """Number of whole episodes."""
        return int(self.about["episodes"])

    @property
    def has_frames(self) -> bool:
        """Whether the recording has images."""
        return self.about["frame_shape"] is not None

    def summary(self, episode: int) -> dict[str, Any]:
        """Returns `seed`, `terminated`, `truncated`, `return` and `length` of an episode."""
        return dict(self._summaries[self._checked(episode)])

    def steps(self, episode: int) -> dict[str, NDArray[Any]]:
        """Returns the columns of an episode as arrays `[T]`.

        `q` and `default_probability` are `[T, A]`. `observation`, `[T, D]`, and `mask` are in some recordings only.
        """
        path = self._path(self._checked(episode), "parquet")
        with _reading(path):
            table = extra("pyarrow.parquet").read_table(path, page_checksum_verification=True)
            columns = {name: _array(table[name], kind) for name, kind in COLUMNS.items() if name in table.column_names}
        length = self._summaries[episode]["length"]
        if missing := [name for name in COLUMNS if name not in columns and name not in _OPTIONAL]:
            raise ValueError(f"{path} is damaged: it has no column {missing[0]!r}.")
        if wrong := [name for name, column in columns.items() if len(column) != length]:
            raise ValueError(f"{path} is damaged: {len(columns[wrong[0]])} rows of {wrong[0]}, expected {length}.")
        return columns

    def frame(self, episode: int, step: int) -> NDArray[np.uint8]:
        """Returns the image `[h, w, 3]` that was seen before a step."""
        path = self._path(self._checked(episode), "zip")
        length = self._summaries[episode]["length"]
        place = check_integer(step, "step", 0, length - 1, f"a step of episode {episode}, from 0 to {length - 1}")
        if not self.has_frames:
            raise ValueError(f"{self.folder} has no frames: the environment could not be rendered.")
        with _reading(path):
            if self._frames is None or self._frames[0] != episode:
                self.close()
                self._frames = (episode, zipfile.ZipFile(path))
            image = extra("PIL.Image").open(io.BytesIO(self._frames[1].read(frame_name(place))))
            return np.asarray(image.convert("RGB"))

    def annotate(self, **facts: Any) -> None:
        """Adds facts to `recording.json`, such as `frontier`, `counterfactuals` and `fidelity`, which reports show."""
        if wrong := sorted(set(facts) & {"format", *_ABOUT}):
            raise ValueError(f"{wrong[0]} describes the recording itself and cannot be changed.")
        about = {**self.about, **facts}
        remove_orphans(self.folder)  # of episodes during which the recording was killed
        write_text(self.folder / "recording.json", json.dumps(about, indent=1, allow_nan=False) + "\n")
        self.about = about

    def close(self) -> None:
        """Closes the file of frames that is kept open between calls of `frame`."""
        if self._frames is not None:
            self._frames[1].close()
            self._frames = None

    def __repr__(self) -> str:
        steps = sum(summary["length"] for summary in self._summaries)
        frames = "with frames" if self.has_frames else "without frames"
        agent, env = self.about["agent"], self.about["env"]
        episodes = f"{self.episodes} episode{'s' * (self.episodes != 1)}"
        return f"Recording({agent} in {env}, {episodes}, {steps:,} steps, {frames})"

    def _checked(self, episode: int) -> int:
        last = self.episodes - 1
        return check_integer(episode, "episode", 0, last, f"an episode of {self.folder}, from 0 to {last}")

    def _path(self, episode: int, suffix: str) -> Path:
        return self.folder / f"{episode_name(episode)}.{suffix}"

    def _read_summary(self, episode: int) -> dict[str, Any]:
        path = self._path(episode, "parquet")
        with _reading(path):
            metadata = extra("pyarrow.parquet").read_metadata(path)
            found = {name: json.loads(metadata.metadata[name.encode()]) for name in _SUMMARY}
            if metadata.num_rows != found["length"] or metadata.num_rows < 1:
                raise ValueError(f"it has {metadata.num_rows} rows, expected {found['length']}")
        return found

    def _check_frames(self, episode: int) -> None:
        path = self._path(episode, "zip")
        with _reading(path), zipfile.ZipFile(path) as archive:
            count, length = len(archive.namelist()), self._summaries[episode]["length"]
            if count != length:
                raise ValueError(f"it has {count} frames, expected {length}")


def check_recording(recording: Any, name: str = "recording") -> Recording:
    """Returns a recording, and raises an error if it is something else."""
    return check_type(recording, name, Recording, "a Recording: open one with `lz.explain.load(folder)`")


def load(folder: str | os.PathLike[str]) -> Recording:
    """Opens a recording.

    Args:
        folder: Folder that `lz.explain.record` has written.

    Raises:
        FileNotFoundError: The folder holds no recording.
        ValueError: A file is missing, truncated or damaged; the message names it.
    """
    return Recording(folder)


def episode_name(episode: int) -> str:
    """Returns the name of the files of an episode, without the suffix."""
    return f"episode-{episode:05d}"


def frame_name(step: int) -> str:
    """Returns the name of an image in the file of frames."""
    return f"{step:06d}.png"


# -- writing ---------------------------------------------------------------------------------------------------------


class RecordingWriter:
    """Writes a recording, one episode after the other.

    Args:
        folder: The folder, which is created. It must not hold a recording already.
        about: Content of `recording.json`, without `format`, `episodes` and `versions`.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
        extra("pyarrow.parquet")
        self.folder, self._about, self._episodes = Path(folder), about, 0
        check_free(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count(0)

    @contextmanager
    def episode(self, seed: int) -> Iterator[EpisodeWriter]:
        """Yields a writer for the next episode, which counts once the block has ended without an error.

        Args:
            seed: Seed of the reset.
        """
        name = self.folder / episode_name(self._episodes)
        with ExitStack() as files:
            table = files.enter_context(replacing(name.with_suffix(".parquet")))
            frames = None
            if self._about["frame_shape"] is not None:
                frames = files.enter_context(replacing(name.with_suffix(".zip")))
            with EpisodeWriter(table, frames, seed) as writer:
                yield writer
        self._count(self._episodes + 1)

    def _count(self, episodes: int) -> None:
        self._episodes = episodes
        about = {"format": FORMAT, **self._about, "episodes": episodes, "versions": versions()}
        write_text(self.folder / "recording.json", json.dumps(about, indent=1, allow_nan=False) + "\n")


class EpisodeWriter:
    """Writes the rows and the frames of one episode as they come.

    Args:
        table: Path of the Parquet file.
        frames: Path of the zip file, or None if there are no frames.
        seed: Seed of the reset.
    """

    def __init__(self, table: Path, frames: Path | None, seed: int) -> None:
        self._path, self._n_frames = table, 0
        self._writer: Any = None  # made with the first rows
        self._frames = None if frames is None else zipfile.ZipFile(frames, "w", zipfile.ZIP_STORED)
        self._summary = {"seed": seed, "terminated": False, "truncated": False, "return": 0.0, "length": 0}

    def add_frame(self, pixels: NDArray[np.uint8]) -> None:
        """Appends the image `[h, w, 3]` that was seen before the next step; does nothing without a file of frames."""
        if self._frames is not None:
            png = io.BytesIO()
            extra("PIL.Image").fromarray(pixels).save(png, "PNG", compress_level=1)  # four times as fast as the default
            self._frames.writestr(frame_name(self._n_frames), png.getvalue())
            self._n_frames += 1

    def add_steps(self, columns: Mapping[str, ArrayLike]) -> None:
        """Appends rows; `columns` has an array `[T]` or `[T, ...]` for every column but `step`."""
        arrow, first = extra("pyarrow"), int(self._summary["length"])
        count = len(np.asarray(columns["action"]))
        given = {"step": np.arange(first, first + count), **columns}
        kinds = {name: kind for name, kind in COLUMNS.items() if name in given}
        doubles = arrow.list_(arrow.float64())
        schema = arrow.schema(
            [(name, doubles if kind == "list" else getattr(arrow, kind)()) for name, kind in kinds.items()]
        )
        if self._writer is None:
            self._writer = extra("pyarrow.parquet").ParquetWriter(self._path, schema, write_page_checksum=True)
        arrays = [arrow.array(np.asarray(given[name]).tolist(), schema.field(name).type) for name in kinds]
        unknown = np.isnan(np.asarray(given["critical_eta"], dtype=float))
        arrays[list(kinds).index("critical_eta")] = arrow.array(given["critical_eta"], arrow.float64(), mask=unknown)
        self._writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
        self._summary["length"] = first + count
        self._summary["return"] += float(np.sum(np.asarray(columns["reward"])))

    def end(self, terminated: bool, truncated: bool) -> None:
        """Notes how the episode has ended."""
        self._summary |= {"terminated": bool(terminated), "truncated": bool(truncated)}

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._frames is not None:
            self._frames.close()
        if self._writer is not None:
            self._writer.add_key_value_metadata({name: json.dumps(fact) for name, fact in self._summary.items()})
            self._writer.close()
        elif kind is None:
            raise ValueError("the episode has no steps.")


def check_free(folder: Path) -> None:
    """Raises an error if a recording cannot be written to a folder; removes what a killed process has left there."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"folder is {folder}, which is a file.")
    if folder.is_dir():
        remove_orphans(folder)
    if (folder / "recording.json").exists():
        raise FileExistsError(f"{folder} holds a recording already: choose another folder, or delete this one.")


# -- reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns every error about the content of a file into a ValueError that names the file."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: the recording is damaged. Record the agent again.")
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # pyarrow, zipfile, zlib and Pillow raise errors of many kinds
        reason = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
        raise ValueError(f"{path} is damaged: {reason}. Record the agent again.") from error


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no recording in {path.parent}: {path.name} is missing.")
    with _reading(path):
        about = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            found = about.get("format") if isinstance(about, dict) else None
            raise ValueError(f"its format is {found!r}, expected {FORMAT}")
        for name, kind in _ABOUT.items():
            if name not in about or not isinstance(about[name], kind) or isinstance(about[name], bool):
                raise ValueError(f"{name} is {about.get(name)!r}")
        if about["episodes"] < 0 or len(about["action_names"]) != about["n_actions"]:
            raise ValueError("its entries contradict each other")
    return about


def _array(column: Any, kind: str) -> NDArray[Any]:
    """Returns a column as an array `[T]`, or `[T, D]` for a column of lists; null becomes NaN."""
    if kind == "list":
        joined = column.combine_chunks()
        return np.asarray(joined.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(column), -1)
    return np.asarray(column.to_numpy())
