"""How frames look in film strips and videos: control in color with an orange border, lazy steps in gray."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK, LIGHT_THEME, rgb
from lazymdp.explain.extra import extra

PAPER = LIGHT_THEME["surface"]
RULE = LIGHT_THEME["rule"]
Pixels = NDArray[np.uint8]
"""An image `[h, w, 3]`."""


@functools.cache
def font(size: int, bold: bool = False) -> Any:
    """Returns a font of Pillow, of this height in pixels; matplotlib comes with the file."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return extra("PIL.ImageFont").truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


def resized(pixels: Pixels, height: int) -> Pixels:
    """Scales an image to about this height.

    Small images are enlarged by a whole number, so that every pixel stays a sharp square. Large images, of more than
    one and a half times this height, are reduced smoothly.
    """
    rows = pixels.shape[0]
    if rows > 1.5 * height:
        image, width = extra("PIL.Image").fromarray(pixels), max(1, round(pixels.shape[1] * height / rows))
        return np.asarray(image.resize((width, height), extra("PIL.Image").Resampling.LANCZOS))
    factor = max(1, round(height / rows))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def in_gray(pixels: Pixels) -> Pixels:
    """Removes the color of an image, and some of its contrast."""
    luminance = pixels @ np.array([0.299, 0.587, 0.114])
    pale = 0.8 * luminance + 0.2 * 128.0
    return np.repeat(np.rint(pale).astype(np.uint8)[..., None], 3, axis=2)


def shown(pixels: Pixels, control: bool, height: int, border: int) -> Pixels:
    """Returns a frame as strips and videos show it.

    Args:
        pixels: The frame.
        control: Whether the agent takes control: in color with an orange border, otherwise gray with a pale one.
        height: Height of the frame in pixels, about.
        border: Width of the border in pixels.
    """
    frame = resized(pixels if control else in_gray(pixels), height)
    framed = np.empty((frame.shape[0] + 2 * border, frame.shape[1] + 2 * border, 3), dtype=np.uint8)
    framed[:] = rgb(CONTROL if control else RULE)
    framed[border:-border, border:-border] = frame
    return framed


def canvas(width: int, height: int) -> tuple[Any, Any]:
    """Returns an empty image of Pillow and its drawing tool."""
    image = extra("PIL.Image").new("RGB", (width, height), PAPER)
    return image, extra("PIL.ImageDraw").Draw(image)


def write_fitted(
    draw: Any, place: tuple[float, float], text: str, size: int, width: float, *, color: str = INK, bold: bool = False,
    anchor: str = "la",
) -> None:  # fmt: skip
    """Writes one line of text; text that is wider than `width` is set smaller, and then shortened."""
    for smaller in range(size, max(size - 4, 9) - 1, -1):
        if draw.textlength(text, font(smaller, bold)) <= width:
            break
    used = font(smaller, bold)
    if draw.textlength(text, used) > width:
        while text and draw.textlength(f"{text}…", used) > width:
            text = text[:-1]
        text = f"{text.rstrip()}…"
    draw.text(place, text, color, used, anchor=anchor)


def choice_words(action_names: list[str], choice: int, action: int) -> tuple[str, str]:
    """Returns what the agent did in words, and the color for them.

    Args:
        action_names: `[A]` names of the actions.
        choice: What the agent chose; A is lazy.
        action: The executed action, numbered from 0.
    """
    if choice < len(action_names):
        return action_names[choice], CONTROL
    return f"lazy ({action_names[action]})", FAINT


def number(value: float) -> str:
    """Returns a number with three significant digits.

    >>> number(0.03217), number(12.0), number(float("nan"))
    ('0.0322', '12', 'unknown')
    """
    if not np.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
