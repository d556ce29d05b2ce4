"""Annotated videos: the frames of a recording above a moving timeline, in a file that every browser plays.

Control is in color with an orange border, lazy steps are gray. Below the frame stand the action, the return so far and
the number of steps in control, and a timeline of the lazy-gap against the price. The video has one frame per step, so
that frame `t` of an episode shows step `t`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_number
from lazymdp._colors import CONTROL, FAINT, INK, LAZY, LIGHT_THEME
from lazymdp._files import replacing
from lazymdp.explain.drawing import RULE, Pixels, canvas, choice_words, number, shown, write_fitted
from lazymdp.explain.extra import extra
from lazymdp.explain.recording import Recording
from lazymdp.explain.strip import check_picture

_HEIGHT = 480  # of a frame, in pixels
_NARROWEST = 480  # width of the video
_BORDER = 8
_MARGIN = 16
_PANEL = 172  # height of everything below the frame
_PLOT_TOP, _PLOT_HEIGHT = 84, 66  # place of the timeline in the panel
_WINDOW = 200
"""Number of steps that the timeline shows at once."""


def video(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    episode: int | None = None,
    frames_per_second: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Makes an annotated video (H.264, yuv420p) with one frame per step.

    Args:
        recording: A recording with frames.
        path: MP4 file to write.
        episode: The episode; by default all episodes, one after the other.
        frames_per_second: Speed; by default that of the environment.
        progress: Called with the number of frames made and their total number.
    """
    target = check_picture(recording, path, ".mp4")
    speed = recording.about["frames_per_second"] if frames_per_second is None else frames_per_second
    expected = "a number of frames per second, above 0 and at most 240"
    speed = check_number(speed, "frames_per_second", 0.0, 240.0, expected, above=True)
    episodes = range(recording.episodes) if episode is None else [episode]
    total = sum(recording.summary(one)["length"] for one in episodes)
    if not total:
        raise ValueError(f"{recording.folder} has no whole episode.")
    images = (image for one in episodes for image in annotated(recording, one))
    first = next(images)
    with replacing(target) as temporary, Encoder(temporary, first.shape, speed) as encoder:
        for made, image in enumerate(itertools.chain([first], images), start=1):
            encoder.add(image)
            if progress is not None:
                progress(made, total)


def annotated(recording: Recording, episode: int) -> Iterator[Pixels]:
    """Yields the images of a video of one episode; their height and width are even, as H.264 requires."""
    line = _timeline(recording, episode)
    for step in range(len(line.control)):
        shot = shown(recording.frame(episode, step), bool(line.control[step]), _HEIGHT, _BORDER)
        width = max(shot.shape[1] + 2 * _MARGIN, _NARROWEST)
        width += width % 2
        height = shot.shape[0] + _MARGIN + _PANEL
        image, draw = canvas(width, height + height % 2)
        image.paste(extra("PIL.Image").fromarray(shot), ((width - shot.shape[1]) // 2, _MARGIN))
        _draw_panel(draw, line, step, shot.shape[0] + _MARGIN, width)
        yield np.asarray(image)


class _Timeline(NamedTuple):
    """What the panel of an episode of T steps shows."""

    names: list[str]
    choice: NDArray[np.int64]
    action: NDArray[np.int64]
    control: NDArray[np.bool_]
    returns: NDArray[np.float64]  # [T] sums of the rewards before each step
    height: NDArray[np.float64]  # [T] the curve: lazy-gaps, or returns for an agent without values
    label: str  # of the curve
    eta: float | None  # drawn as a line
    top: float  # of the vertical axis
    bottom: float
    prefix: str  # names the episode, if there are several


def _timeline(recording: Recording, episode: int) -> _Timeline:
    steps, about = recording.steps(episode), recording.about
    returns = np.append(0.0, np.cumsum(steps["reward"])[:-1])
    known = bool(np.isfinite(steps["lazy_gap"]).all())
    height = steps["lazy_gap"] if known else returns
    eta = about["eta"] if known else None
    prices = [0.0] if eta is None else [0.0, 1.5 * eta]
    top, bottom = max([float(height.max()), *prices]), min([float(height.min()), *prices])
    return _Timeline(
        about["action_names"], steps["choice"], steps["action"], steps["control"], returns, height,
        "lazy-gap" if known else "return", eta, top + 0.08 * ((top - bottom) or 1.0), bottom,
        f"episode {episode} · " if recording.episodes > 1 else "",
    )  # fmt: skip


def _draw_panel(draw: Any, line: _Timeline, step: int, top: int, width: int) -> None:
    """Draws what stands below the frame."""
    inner = width - 2 * _MARGIN
    words, color = choice_words(line.names, int(line.choice[step]), int(line.action[step]))
    write_fitted(draw, (_MARGIN, top + 14), words, 22, 0.55 * inner, color=color, bold=True)
    total = f"return {number(line.returns[step])}"
    write_fitted(draw, (width - _MARGIN, top + 14), total, 22, 0.43 * inner, color=INK, bold=True, anchor="ra")
    controls = int(line.control[: step + 1].sum())
    facts = f"{line.prefix}step {step} · control in {controls} of {step + 1} steps ({controls / (step + 1):.0%})"
    write_fitted(draw, (_MARGIN, top + 46), facts, 15, inner, color=FAINT)
    _draw_timeline(draw, line, step, top + _PLOT_TOP, width)


def _draw_timeline(draw: Any, line: _Timeline, step: int, top: int, width: int) -> None:
    """Draws the curve of the steps around the present one, the price and a mark at the present."""
    count, left, right = len(line.height), _MARGIN, width - _MARGIN
    first = int(np.clip(step - _WINDOW // 2, 0, max(count - _WINDOW, 0)))
    last = min(first + _WINDOW, count)
    wide = (right - left) / max(last - first, 1)
    foot = top + _PLOT_HEIGHT

    def y(value: float) -> float:
        return float(foot - _PLOT_HEIGHT * (value - line.bottom) / ((line.top - line.bottom) or 1.0))

    def x(place: float) -> float:
        return left + wide * (place - first)

    draw.rectangle((left, top, right, foot), fill=LIGHT_THEME["bg"])
    draw.line((left, y(0.0), right, y(0.0)), fill=RULE)
    space = 0.0 if wide < 3.0 else min(1.0, 0.1 * wide)
    for place in range(first, last):
        value = float(line.height[place])
        low, high = sorted((y(value), y(0.0)))
        color = CONTROL if line.control[place] else LAZY
        draw.rectangle((x(place), low, max(x(place + 1) - space, x(place)), high), fill=color)
    if line.eta is not None:
        for start in np.arange(left, right, 10.0):
            draw.line((start, y(line.eta), min(start + 5.0, right), y(line.eta)), fill=INK)
    middle = x(step + 0.5)
    draw.line((middle, top - 3, middle, foot + 3), fill=INK, width=2)
    draw.polygon([(middle - 6, top - 10), (middle + 6, top - 10), (middle, top - 2)], fill=INK)
    label = line.label if line.eta is None else f"{line.label} (dashed: eta = {number(line.eta)})"
    write_fitted(draw, (left, foot + 5), label, 13, 0.8 * (right - left), color=FAINT)
    write_fitted(
        draw, (right, foot + 5), f"steps {first}-{last - 1}", 13, 0.3 * (right - left), color=FAINT, anchor="ra"
    )


class Encoder:
    """An ffmpeg process that takes images of one size and writes a video.

    The process is started here and not by `imageio_ffmpeg.write_frames`, which forks; a process that has used JAX must
    not fork.

    Args:
        path: The file to write.
        shape: Shape `[h, w, 3]` of the images.
        speed: Frames per second.
        options: Options of x264 and of the file.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        speed: float,
        options: Sequence[str] = ("-crf", "20", "-preset", "veryfast"),
    ) -> None:
        command = [
            extra("imageio_ffmpeg").get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
            "-s", f"{shape[1]}x{shape[0]}", "-r", f"{speed:g}", "-i", "-", "-an", "-c:v", "libx264", *options,
            "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path),
        ]  # fmt: skip
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `__exit__`)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors
        )  # fmt: skip

    def add(self, image: Pixels) -> None:
        """Appends a frame."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # ffmpeg has ended: `__exit__` reports why
            self._process.stdin.write(np.ascontiguousarray(image).tobytes())

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait()
        self._errors.seek(0)
        words = " ".join(self._errors.read().decode(errors="replace").split())
        self._errors.close()
        if code and kind is None:
            raise RuntimeError(f"ffmpeg failed with exit code {code}: {words}")
