"""An environment without a model: CartPole, with a crude controller of one's own as default policy.

The controller pushes to the side to which the pole leans. That makes the pole swing more and more, until it falls. The
agent knows a better controller and takes control while the pole swings fast. How fast is worth it depends on the price.

Run it with `python examples/own_environment.py`.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import lazymdp as lz

EPISODES = 20
THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0, np.inf)  # of the pole's speed, in radians a second
Observation = NDArray[Any]  # cart: position, speed; pole: angle, speed


def leaning(observation: Observation) -> int:
    """The default policy: left or right, as the pole leans."""
    return int(observation[2] > 0.0)


def balancing(observation: Observation) -> int:
    """A controller that also looks at the speeds, and at where the cart is."""
    return int(observation @ [0.1, 0.3, 3.0, 1.0] > 0.0)


def play(env: lz.LazyAction[Observation], threshold: float) -> tuple[float, float, float]:
    """Mean return, controls and control frequency of the agent that acts where the pole is faster than `threshold`."""
    episodes = []
    for seed in range(EPISODES):
        observation, info = env.reset(seed=seed)
        controls, done = 0, False
        while not done:
            choice = balancing(observation) if abs(observation[3]) > threshold else env.lazy_action
            observation, _, terminated, truncated, info = env.step(choice)
            controls, done = controls + info["took_control"], terminated or truncated
        episodes.append((info["base_return"], controls, info["control_rate"]))
    return tuple(np.mean(episodes, axis=0).tolist())


if __name__ == "__main__":
    lazy_env = lz.LazyAction(gym.make("CartPole-v1"), default_policy=leaning, eta=0.0)
    found = {threshold: play(lazy_env, threshold) for threshold in THRESHOLDS}
    for threshold, (returned, _, frequency) in found.items():
        words = f"control above {threshold}:" if np.isfinite(threshold) else "the default alone:"
        print(f"{words:20} return {returned:3.0f}, in control of {frequency:4.0%} of the steps")
    for eta in (0.1, 2.0, 20.0):
        best = max(THRESHOLDS, key=lambda threshold: found[threshold][0] - eta * found[threshold][1])
        print(f"price {eta:4}: best is {'never to act' if best == np.inf else f'to act above {best}'}")
