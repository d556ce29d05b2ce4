"""Frames for the report: in color with an orange border in control, gray otherwise; as thumbnails and as a video.

The video is H.264 in an MP4 file with 4:2:0 colors, which every browser plays. Frame `t` is on screen from `t / fps` to
`(t + 1) / fps` seconds, so the page can translate between steps and seconds.
"""

from __future__ import annotations

import base64
import io
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, LAZY, rgb
from lazymdp.explain.extra import extra

_SIDE = 400
"""Smaller frames are enlarged by a whole factor to about this many pixels on the longer side."""
_LARGEST_SIDE = 640
"""Larger frames are reduced by a whole factor."""
_CRF = range(24, 37, 6)
"""Constant rate factors of x264, by decreasing quality; six more halve the size of the file, roughly."""
_KEYFRAME_EVERY = 30
"""Frames between keyframes: few, so that a browser seeks quickly."""


def marked(frame: NDArray[np.uint8], control: bool) -> NDArray[np.uint8]:
    """Returns a frame `[h, w, 3]` at the size of the page, with a border; sizes are even, as H.264 requires."""
    longest = max(frame.shape[:2])
    if longest > _LARGEST_SIDE:
        frame = np.asarray(extra("PIL.Image").fromarray(frame).reduce(math.ceil(longest / _LARGEST_SIDE)))
    else:
        factor = max(round(_SIDE / longest), 1)
        frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    if not control:
        frame = np.asarray(extra("PIL.Image").fromarray(frame).convert("L").convert("RGB"))
    height, width = frame.shape[:2]
    border = max(max(height, width) // 50, 3)
    shape = (height + 2 * border + height % 2, width + 2 * border + width % 2, 3)
    framed = np.empty(shape, dtype=np.uint8)
    framed[:] = rgb(CONTROL if control else LAZY)
    framed[border : border + height, border : border + width] = frame
    return framed


def thumbnail(frame: NDArray[np.uint8], control: bool) -> str:
    """Returns a frame as the data URI of a small PNG."""
    image = extra("PIL.Image").fromarray(marked(frame, control))
    image.thumbnail((320, 320))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def clip(
    frame: Callable[[int], NDArray[np.uint8]],
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
        if len(video) > most_bytes * 2 ** ((_CRF[-1] - crf) / 6 + 1):
            break  # the lowest quality would not fit either
    if whole:
        return b"", 0
    while count >= fps and len(video) > most_bytes:
        count = int(0.9 * count * most_bytes / len(video))
        if count >= fps:
            video = _encoded((marked(frame(step), bool(control[step])) for step in range(count)), fps, _CRF[-1])
    return (video, count) if count >= fps else (b"", 0)


def _encoded(frames: Iterator[NDArray[np.uint8]], fps: float, crf: int) -> bytes:
    """Returns an MP4 file of frames that have one shape; the same frames give the same bytes."""
    first = next(frames)
    options = ["-crf", str(crf), "-preset", "medium", "-g", str(_KEYFRAME_EVERY), "-threads", "1", "-an"]
    options += ["-movflags", "+faststart", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        writer = extra("imageio_ffmpeg").write_frames(
            str(path),
            (first.shape[1], first.shape[0]),
            fps=fps,
            quality=None,
            macro_block_size=2,
            output_params=options,
        )
        writer.send(None)
        try:
            writer.send(np.ascontiguousarray(first))
            for frame in frames:
                writer.send(np.ascontiguousarray(frame))
        finally:
            writer.close()
        return path.read_bytes()
