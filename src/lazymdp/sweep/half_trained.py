"""The agent of a run when it had half of its final score: the default policy of Sec. 6.5 of the paper.

Which step that is differs between games and is known only at the end. A run at price 0 therefore keeps a snapshot of
its network at the end of each of the 50 windows of episodes into which `Training` divides it, together with the mean
return in that window. At the end, the snapshot is chosen whose score is closest to

    random + (final - random) / 2,

where `final` is the score of the last window and `random` the mean return of random choices. The paper says "at 50% of
its asymptotical performance". Counting from the score of random choices, as human-normalized scores do, gives this a
meaning in games whose scores are negative, too; where random choices score 0, it is half of the final score.

Windows end after a number of iterations, so the choice does not depend on the clock or on interruptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazymdp.learn.deep.checked_files import read_about, read_arrays, write_arrays
from lazymdp.sweep.extras import deep

FOLDER = "snapshots"
"""Folder of the snapshots, in the folder of the run's checkpoints."""


class Snapshots:
    """The snapshots of a run.

    Args:
        training: Folder of the run's checkpoints.
        step: Step of the last checkpoint, from which the run continues: later snapshots are deleted.
    """

    def __init__(self, training: Path, step: int) -> None:
        self._folder = training / FOLDER
        for path in self._paths():
            if int(path.stem) > step:
                path.unlink()

    def keep(self, run: Any) -> None:
        """Writes a snapshot of a run, a `Training` in which a window of episodes has just ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        arrays = deep("export").agent_arrays(run.arrays())
        write_arrays(self._folder / f"{run.step:015d}.safetensors", arrays, {"step": run.step, "score": run.quality})

    def choose(self, random_score: float) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Returns the arrays of the agent at half of its final score, and its step and scores.

        Args:
            random_score: Mean return of random choices.

        Returns:
            None if there is no snapshot, because too few episodes ended.
        """
        paths = self._paths()
        if not paths:
            return None
        scores = [float(read_about(path)["score"]) for path in paths]
        arrays, about = read_arrays(paths[closest_to_half(scores, random_score)])
        return arrays, {**about, "random_score": random_score, "final_score": scores[-1]}

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))


def closest_to_half(scores: Sequence[float], random_score: float) -> int:
    """Returns the position of the first score that is closest to half of the last one, counted from `random_score`."""
    goal = 0.5 * (random_score + scores[-1])
    return int(np.abs(np.asarray(scores) - goal).argmin())
