"""Film strips: a few frames of an episode that show when an agent takes control (Figs. 4-6 of the paper)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_count, check_integer, check_path
from lazymdp._colors import FAINT, INK
from lazymdp._files import replacing
from lazymdp.explain.drawing import canvas, choice_words, number, resized, shown, write_fitted
from lazymdp.explain.extra import extra
from lazymdp.explain.rank import rank
from lazymdp.explain.recording import Recording, check_recording

_HEIGHT = 220  # of a frame, in pixels
_BORDER = 6
_GAP = 16  # between frames
_MARGIN = 24
_CAPTION = 62  # height of the caption below a frame
_TITLE = 62
_NARROWEST = 140  # width of a frame below which captions would not fit
_LAZY_SHARE = 1 / 3
"""Share of the frames that show lazy steps, for contrast."""
_DIVERSITY = 0.5
"""Weight of the difference between frames, compared with the rank of the gap."""


def strip(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    steps: Sequence[int] | None = None,
    episode: int | None = None,
    frames: int = 8,
    columns: int | None = None,
    by: str = "lazy_gap",
    title: str | None = None,
) -> list[tuple[int, int]]:
    """Draws frames of an episode side by side: control in color with an orange border, lazy steps in gray.

    Unless `steps` are given, `choose_steps` chooses them. The caption of a frame is the action and the lazy-gap.

    Args:
        recording: A recording with frames.
        path: PNG file to write.
        steps: Steps to show, in this order.
        episode: The episode; by default the one with the highest score, or the first if `steps` are given.
        frames: Number of frames, if no steps are given.
        columns: Frames per row; by default as many as make the rows about equal, at most 8.
        by: Measure by which moments are chosen; see `lz.explain.rank`.
        title: Title; by default the environment, the agent and the price.

    Returns:
        The moments shown, as (episode, step).
    """
    target = check_picture(recording, path, ".png")
    check_count(frames, "frames", "the number of frames")
    if columns is not None:
        check_count(columns, "columns", "the number of frames in a row")
    if recording.episodes == 0:
        raise ValueError(f"{recording.folder} has no whole episode.")
    scores = _scores(recording, by)
    if episode is None:
        episode = 0 if steps is not None else int(np.argmax([score.max() for score in scores]))
    length = recording.summary(episode)["length"]
    if steps is None:
        chosen = choose_steps(recording, episode, scores[episode], frames)
    else:
        expected = f"a step of episode {episode}, from 0 to {length - 1}"
        chosen = [check_integer(step, "step", 0, length - 1, expected) for step in steps]
        if not chosen:
            raise ValueError("steps is empty, expected at least one step.")
    image = _draw(recording, episode, chosen, columns, title)
    with replacing(target) as temporary:
        image.save(temporary, "PNG")
    return [(episode, step) for step in chosen]


def choose_steps(recording: Recording, episode: int, score: NDArray[np.float64], count: int) -> list[int]:
    """Chooses steps that represent an episode, in the order of time.

    Two thirds are moments with high scores, no two of them close together: each in turn has the best sum of the rank of
    its score and the difference of its frame from the frames chosen before. The others are lazy steps as far as
    possible from those, for contrast, if there are any.

    Args:
        recording: The recording.
        episode: The episode.
        score: `[T]` importance of the steps.
        count: Number of steps.
    """
    control = recording.steps(episode)["control"]
    distance = max(2, len(score) // (2 * count))
    n_lazy = min(int(_LAZY_SHARE * count), int((~control).sum())) if control.any() else 0
    peaks = _apart(np.argsort(-score, kind="stable"), distance, 4 * count)
    chosen = _diverse(recording, episode, peaks, count - n_lazy)
    lazy = np.flatnonzero(~control)
    for _ in range(n_lazy):
        near = np.abs(lazy[:, None] - np.array(chosen)[None, :]).min(axis=1)
        if near.max() < 2:
            break
        chosen.append(int(lazy[near.argmax()]))
    return sorted(chosen)


def _apart(order: NDArray[np.int64], distance: int, most: int) -> list[int]:
    """Returns the first steps of an order that keep a distance from each other."""
    kept: list[int] = []
    for step in order:
        if len(kept) == most:
            break
        if all(abs(int(step) - other) >= distance for other in kept):
            kept.append(int(step))
    return kept


def _diverse(recording: Recording, episode: int, candidates: list[int], count: int) -> list[int]:
    """Chooses from candidates, the best first, those whose frames differ."""
    small = np.array([_thumbnail(recording.frame(episode, step)) for step in candidates])
    rank_score = np.linspace(1.0, 0.0, len(candidates))
    apart = np.abs(small[:, None] - small[None, :]).mean(axis=-1)  # [C, C]
    apart /= apart.max() or 1.0
    chosen = [0]
    while len(chosen) < min(count, len(candidates)):
        worth = rank_score + _DIVERSITY * apart[:, chosen].min(axis=1)
        worth[chosen] = -np.inf
        chosen.append(int(worth.argmax()))
    return [candidates[place] for place in chosen]


def _thumbnail(frame: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns the gray values of about 32 x 32 evenly spaced blocks of a frame, as one row."""
    small = resized(frame, 32) if frame.shape[0] > 48 else frame
    return np.asarray(small.mean(axis=-1), dtype=np.float64).ravel()


def _scores(recording: Recording, by: str) -> list[NDArray[np.float64]]:
    """Returns the scores of each episode; for an agent without values, they are all equal."""
    gaps = [recording.steps(episode)["lazy_gap"] for episode in range(recording.episodes)]
    if by == "lazy_gap" and not all(np.isfinite(gap).all() for gap in gaps):
        return [_spread(len(gap)) for gap in gaps]
    return rank(recording, by).score


def _spread(length: int) -> NDArray[np.float64]:
    """Returns scores under which the best k steps are spread over an episode: the van der Corput sequence."""
    steps = np.arange(length)
    bits = max(1, int(np.ceil(np.log2(max(length, 2)))))
    order = np.array([int(f"{step:0{bits}b}"[::-1], 2) for step in range(2**bits)])
    score = np.empty(length)
    score[order[order < length]] = -steps
    return score


def _draw(recording: Recording, episode: int, steps: list[int], columns: int | None, title: str | None) -> Any:
    about, rows = recording.about, recording.steps(episode)
    shots = [shown(recording.frame(episode, step), bool(rows["control"][step]), _HEIGHT, _BORDER) for step in steps]
    height, width = shots[0].shape[:2]
    cell = max(width, _NARROWEST)
    per_row = columns or -(-len(steps) // -(-len(steps) // _most_columns(cell)))
    n_rows = -(-len(steps) // per_row)
    image, draw = canvas(
        2 * _MARGIN + per_row * cell + (per_row - 1) * _GAP, _TITLE + _MARGIN + n_rows * (height + _CAPTION)
    )
    _write_title(draw, recording, episode, image.width - 2 * _MARGIN, title)
    for place, (step, shot) in enumerate(zip(steps, shots, strict=True)):
        row, column = divmod(place, per_row)
        left, top = _MARGIN + column * (cell + _GAP), _TITLE + row * (height + _CAPTION)
        image.paste(_image(shot), (left + (cell - width) // 2, top))
        words, color = choice_words(about["action_names"], int(rows["choice"][step]), int(rows["action"][step]))
        middle = left + cell / 2
        write_fitted(draw, (middle, top + height + 8), words, 17, cell, color=color, bold=True, anchor="ma")
        gap = rows["lazy_gap"][step]
        facts = f"gap {number(gap)} · step {step}" if np.isfinite(gap) else f"step {step}"
        write_fitted(draw, (middle, top + height + 31), facts, 14, cell, color=FAINT, anchor="ma")
    return image


def _most_columns(cell: int) -> int:
    """Returns how many frames fit beside each other in an image of a readable width."""
    return int(np.clip(1800 // (cell + _GAP), 2, 8))


def _write_title(draw: Any, recording: Recording, episode: int, width: float, title: str | None) -> None:
    about = recording.about
    price = "" if about["eta"] is None else f" at eta = {about['eta']:g}"
    write_fitted(draw, (_MARGIN, 14), title or f"{about['env']}{price}", 19, width, color=INK, bold=True)
    summary = recording.summary(episode)
    facts = f"episode {episode}: return {number(summary['return'])} in {summary['length']} steps"
    control = recording.steps(episode)["control"].mean()
    write_fitted(draw, (_MARGIN, 38), f"{facts}, control in {control:.0%}", 14, width, color=FAINT)


def _image(pixels: NDArray[np.uint8]) -> Any:
    return extra("PIL.Image").fromarray(pixels)


def check_picture(recording: Recording, path: str | os.PathLike[str], suffix: str) -> Path:
    """Returns the path of a picture, and raises an error if it cannot be made from a recording."""
    check_recording(recording)
    target = check_path(path)
    if target.suffix.lower() != suffix:
        raise ValueError(f"path is {target}, expected a file that ends in {suffix}.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}.")
    if not recording.has_frames:
        raise ValueError(f"{recording.folder} has no frames: its environment could not be rendered.")
    return target
