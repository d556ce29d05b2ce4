"""Frames for the report: in color with an orange border in control, gray otherwise; as thumbnails and as a video.

The video is H.264 in an MP4 file with 4:2:0 colors, which every browser plays. Frame `t` is on screen from `t / fps` to
`(t + 1) / fps` seconds, so the page can translate between steps and seconds.
"""

from __future__ import annotations

import base64
import io
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lazymdp.explain.drawing import Pixels, shown
from lazymdp.explain.extra import extra
from lazymdp.explain.video import Encoder

_HEIGHT = 400  # of a frame, in pixels, about
_BORDER = 8
_CRF = range(24, 37, 6)
"""Constant rate factors of x264, by decreasing quality; six more halve the size of the file, roughly."""
_KEYFRAME_EVERY = 30
"""Frames between keyframes: few, so that a browser seeks quickly."""


def marked(frame: Pixels, control: bool) -> Pixels:
    """Returns a frame as strips and videos show it; height and width are even, as H.264 requires."""
    framed = shown(frame, control, _HEIGHT, _BORDER)
    height, width = framed.shape[:2]
    return np.pad(framed, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def thumbnail(frame: Pixels, control: bool) -> str:
    """Returns a frame as the data URI of a small PNG."""
    image = extra("PIL.Image").fromarray(marked(frame, control))
    image.thumbnail((320, 320))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def clip(
    frame: Callable[[int], Pixels],
    control: NDArray[np.bool_],
    fps: float,
    most_bytes: float,
    *,
    whole: bool = False,
) -> tuple[bytes, int]:
    """Returns the video of an episode and the number of its steps that the video shows.

    A video that would be too large is encoded again at a lower quality; at the lowest quality, it is cut short.

    Args:
        frame: Returns the frame of a step.
        control: Whether each step is in control, `[T]`.
        fps: Frames per second.
        most_bytes: Largest size of the video.
        whole: Whether to give up, instead of cutting the video short.

    Returns:
        The MP4 file, and the number of steps it shows; nothing and 0 if it does not fit, or not even one second of it.
    """
    count = len(control)
    for crf in _CRF:
        video = _encoded((marked(frame(step), bool(control[step])) for step in range(count)), fps, crf)
        if len(video) <= most_bytes:
            return video, count
        size = len(video) / 2 ** ((_CRF[-1] - crf) / 6)  # at the lowest quality, roughly
        if size > 2 * most_bytes:
            break
    while not whole and (count := int(0.9 * count * most_bytes / size)) >= fps:
        video = _encoded((marked(frame(step), bool(control[step])) for step in range(count)), fps, _CRF[-1])
        size = len(video)
        if size <= most_bytes:
            return video, count
    return b"", 0


def _encoded(frames: Iterator[Pixels], fps: float, crf: int) -> bytes:
    """Returns an MP4 file of frames that have one shape; the same frames give the same bytes."""
    first = next(frames)
    options = ("-crf", str(crf), "-preset", "fast", "-g", str(_KEYFRAME_EVERY), "-threads", "1")
    same = ("-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact")  # no versions and no dates
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        with Encoder(path, first.shape, fps, (*options, *same)) as encoder:
            for frame in itertools.chain([first], frames):
                encoder.add(frame)
        return path.read_bytes()
