"""Small recordings: Key-Door-Treasure played by the exact solution, and a synthetic task without frames."""

import json

import gymnasium as gym
import numpy as np

import lazymdp as lz
from lazymdp.explain.recording import Recording, RecordingWriter

EXTRAS = {
    "frontier": [
        {"eta": 0.005, "return": 1.0, "low": 0.99, "high": 1.0, "control_rate": 0.85},
        {"eta": 0.02, "return": 0.97, "low": 0.93, "high": 1.0, "control_rate": 0.38},
        {"eta": 0.05, "return": 0.71, "low": 0.62, "high": 0.8, "control_rate": 0.17},
        {"eta": None, "return": 0.02, "low": 0.0, "high": 0.05, "control_rate": 0.0},
    ],
    "fidelity": [
        {"measure": "lazy_gap", "replace_area": 0.31, "low": 0.24, "high": 0.38},
        {"measure": "random", "replace_area": 0.0, "low": -0.05, "high": 0.05},
        {"measure": "action_gap", "replace_area": 0.22, "low": 0.17, "high": 0.28},
    ],
    "critic": {"td_error": 0.0123, "correlation": 0.93},
    "counterfactuals": [
        {
            "episode": 0, "step": 3, "return_agent": 1.0, "return_default": 0.4, "low": 0.5, "high": 0.7,
            "note": "100 replays",
        },
    ],
}  # fmt: skip


def describe(folder, **entries):
    """Adds entries to the description of a recording, and opens it."""
    path = folder / "recording.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return Recording(folder)


def about(**entries):
    base = {
        "agent": "exact agent", "env": "lazymdp/KeyDoorTreasure-v0", "eta": 0.02, "default_policy": "uniform",
        "action_names": ["up", "right", "down", "left"], "n_actions": 4, "frames_per_second": 8.0, "frame_shape": None,
        "seed": 0,
    }  # fmt: skip
    return base | entries


def key_door(folder, *, episodes=1, eta=0.03, **entries):
    """Records the exact solution of Key-Door-Treasure, with frames."""
    env = gym.make("lazymdp/KeyDoorTreasure-v0", render_mode="rgb_array")
    mdp = lz.MDP.from_gymnasium(env, 0.97)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta)
    lz.explain.record(lazy, env, folder=folder, episodes=episodes, max_steps=400)
    env.close()
    return describe(folder, **{"agent": "exact agent", **entries})


def synthetic(folder, *, lengths=(60,), control=None, gaps=None, probability=(0.5, 0.5), **entries):
    """Records made-up numbers for two actions, without frames.

    `control` and `gaps` are arrays `[T]` that replace the made-up ones.
    """
    cart = {"agent": "cart", "env": "CartPole-v1", "eta": 0.3, "action_names": ["left", "right"], "n_actions": 2}
    entries = about(**cart) | entries
    writer = RecordingWriter(folder, entries)
    for seed, length in enumerate(lengths):
        steps = np.arange(length)
        gap = np.abs(np.sin(0.2 * steps + seed)) ** 4 if gaps is None else np.asarray(gaps, dtype=float)
        took = gap > 0.3 if control is None else np.asarray(control, dtype=bool)
        with writer.episode(seed) as episode:
            for _ in steps if entries["frame_shape"] else ():
                episode.add_frame(np.full(entries["frame_shape"], 90, dtype=np.uint8))
            episode.add_steps(
                {
                    "action": steps % 2, "choice": np.where(took, steps % 2, 2), "control": took,
                    "reward": np.ones(length), "price": np.where(took, 0.3, 0.0), "value": 10 + np.cos(0.1 * steps),
                    "lazy_gap": gap, "critical_eta": np.full(length, np.nan), "q": np.ones((length, 2)),
                    "default_probability": np.tile(probability, (length, 1)),
                }
            )  # fmt: skip
            episode.end(False, True)
    return Recording(folder)
