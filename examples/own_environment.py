"""Uses an environment without a model: CartPole, with a crude hand-written controller as the default policy.

The default policy pushes toward the side to which the pole leans. This makes the pole swing more and more until it
falls. The agent has a better controller and takes control while the pole swings faster than a threshold. The best
threshold depends on the price.

Run it with `python examples/own_environment.py`.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import lazymdp as lz

EPISODES = 20
THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0, np.inf)  # angular speed of the pole, in radians per second
Observation = NDArray[Any]  # [4]: cart position, cart velocity, pole angle, pole angular velocity


def leaning(observation: Observation) -> int:
    """The default policy: pushes left or right, toward the side to which the pole leans."""
    return int(observation[2] > 0.0)


def balancing(observation: Observation) -> int:
    """A better controller, which also uses both velocities and the position of the cart."""
    return int(observation @ [0.1, 0.3, 3.0, 1.0] > 0.0)


def play(env: lz.LazyAction[Observation], threshold: float) -> tuple[float, float, float]:
    """Plays some episodes, taking control where the pole is faster than `threshold`.

    Returns:
        Means over the episodes of the return, the number of controls and the control rate.
    """
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
    for threshold, (mean_return, _, control_rate) in found.items():
        words = f"control above {threshold}:" if np.isfinite(threshold) else "the default alone:"
        print(f"{words:20} return {mean_return:3.0f}, takes control in {control_rate:4.0%} of the steps")
    for eta in (0.1, 2.0, 20.0):
        best = max(THRESHOLDS, key=lambda threshold: found[threshold][0] - eta * found[threshold][1])
        print(f"price {eta:4}: best is {'always to be lazy' if best == np.inf else f'to take control above {best}'}")
