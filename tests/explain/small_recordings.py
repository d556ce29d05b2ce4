"""Small recordings that several tests of the explanations share."""

import numpy as np

import lazymdp as lz
from lazymdp.explain.recording import RecordingWriter

ABOUT = {
    "agent": "nobody",
    "env": "nowhere",
    "eta": 0.25,
    "default_policy": "uniform",
    "action_names": ["left", "stay", "right"],
    "n_actions": 3,
    "frames_per_second": 10.0,
    "frame_shape": [8, 12, 3],
    "seed": 5,
}


def columns(gaps, seed=0):
    """The columns of an episode with these lazy-gaps, at the price 0.25 over a uniform default policy."""
    gaps = np.asarray(gaps, dtype=float)
    rng, count = np.random.default_rng(seed), len(gaps)
    control = gaps > 0.25
    action = rng.integers(3, size=count)
    q = rng.normal(size=(count, 3))
    return {
        "action": action,
        "choice": np.where(control, action, 3),
        "control": control,
        "reward": rng.normal(size=count),
        "price": np.where(control, 0.25, 0.0),
        "value": q.max(axis=1),
        "lazy_gap": gaps,
        "critical_eta": np.where(np.arange(count) % 2, gaps, np.nan),
        "q": q,
        "default_probability": np.full((count, 3), 1 / 3),
        "observation": rng.normal(size=(count, 4)),
    }


def frame(episode, step):
    """A frame that differs from step to step."""
    pixels = np.random.default_rng([episode, step]).integers(256, size=(8, 12, 3))
    return pixels.astype(np.uint8)


def write(folder, gaps, frames=True, **about):
    """Writes a recording with an episode for each list of lazy-gaps."""
    writer = RecordingWriter(folder, {**ABOUT, **({} if frames else {"frame_shape": None}), **about})
    for episode, row in enumerate(gaps):
        with writer.episode(5 + episode) as file:
            for step in range(len(row)):
                file.add_frame(frame(episode, step))
            half = len(row) // 2
            whole = columns(row, episode)
            for part in (slice(half), slice(half, None)):
                file.add_steps({name: column[part] for name, column in whole.items()})
            file.end(terminated=True, truncated=False)
    return lz.explain.load(folder)
