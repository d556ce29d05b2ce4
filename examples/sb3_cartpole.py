"""Trains Stable-Baselines3 agents that learn when to take control of CartPole.

There are two default policies (a random one and a half-trained PPO agent), two learners (DQN and PPO) and two prices.
For each combination, the script prints the return (the number of steps that the pole stands, at most 500) and the
control rate (the share of steps in which the agent takes control).

Install Stable-Baselines3 with `pip install "lazymdp[sb3]"`, then run `python examples/sb3_cartpole.py` (a few minutes).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env

from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

WORLD = "CartPole-v1"
ETAS = (0.01, 0.3)
LAZY = 2
EPISODES = 40
ENVS = 8
HALF_TRAINED = 50
STEPS = {"DQN": 25_000, "PPO": 40_000}

PPO_SETTINGS: dict[str, Any] = dict(
    n_steps=32,
    batch_size=256,
    n_epochs=20,
    gamma=0.98,
    gae_lambda=0.8,
    learning_rate=1e-3,
    policy_kwargs={"net_arch": [64]},
)
DQN_SETTINGS = dict(
    gamma=0.98,
    learning_rate=lambda remaining: 2e-3 * remaining + 1e-5,
    learning_starts=1000,
    train_freq=32,
    gradient_steps=128,
    target_update_interval=64,
    exploration_fraction=0.2,
    exploration_final_eps=0.04,
    policy_kwargs={"net_arch": [128, 128]},
)


@dataclass(frozen=True)
class Play:
    """Results of some episodes.

    Attributes:
        base_return: Mean return of the episodes, without the price.
        control_rate: Mean over the episodes of the share of steps in which the agent took control.
    """

    base_return: float
    control_rate: float


def half_trained(seed: int = 0) -> Any:
    """Trains PPO on the environment without the lazy action until its mean return is at least `HALF_TRAINED`.

    A number of steps would not do: after 6,000 steps the return is between 60 and 150, depending on the seed. Over a
    good default policy, being lazy in every step is a local optimum at the higher price.
    """
    model = PPO("MlpPolicy", make_vec_env(WORLD, ENVS, seed=seed), seed=seed, device="cpu", **PPO_SETTINGS)
    while play(lazy_always, model).base_return < HALF_TRAINED:
        model.learn(ENVS * PPO_SETTINGS["n_steps"], reset_num_timesteps=False)
    return model


def train(algorithm: str, default_policy: Any, eta: float, seed: int = 0) -> Any:
    """Trains a Stable-Baselines3 learner on the lazy environment, which to the learner only has one more action."""
    venv = make_vec_env(
        lambda: LazyAction(gym.make(WORLD), default_policy, eta),
        ENVS,
        seed=seed,
        monitor_kwargs={"info_keywords": ("control_rate", "base_return")},
    )
    learner, settings = {"DQN": (DQN, DQN_SETTINGS), "PPO": (PPO, PPO_SETTINGS)}[algorithm]
    return learner("MlpPolicy", venv, seed=seed, device="cpu", **settings).learn(STEPS[algorithm])


def play(choose: Callable[[NDArray[Any]], NDArray[Any]], default_policy: Any, seed: int = 1) -> Play:
    """Plays one episode in each of `EPISODES` environments.

    Args:
        choose: Maps observations `[N, 4]` to choices `[N]`: 0, 1 or lazy.
        default_policy: The policy that acts when the choice is lazy.
        seed: Random seed of the environments and of the default policy.
    """
    venv = LazyVectorAction(gym.make_vec(WORLD, num_envs=EPISODES, vectorization_mode="sync"), default_policy)
    observations, _ = venv.reset(seed=seed)
    returns, rates = np.full(EPISODES, np.nan), np.full(EPISODES, np.nan)
    while np.isnan(returns).any():
        observations, _, _, _, infos = venv.step(choose(observations))
        first_end = infos.get("_base_return", np.zeros(EPISODES, dtype=bool)) & np.isnan(returns)
        if first_end.any():
            returns[first_end] = infos["base_return"][first_end]
            rates[first_end] = infos["control_rate"][first_end]
    venv.close()
    return Play(float(returns.mean()), float(rates.mean()))


def lazy_always(observations: NDArray[Any]) -> NDArray[np.int64]:
    """Never takes control, so that the default policy always acts."""
    return np.full(len(observations), LAZY)


def greedy(model: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Returns a function that makes the greedy choices of a trained model."""
    return lambda observations: model.predict(observations, deterministic=True)[0]


def main() -> None:
    """Trains an agent for every combination and prints the results."""
    for name, default_policy in (("uniform", "uniform"), ("half-trained PPO", half_trained())):
        print(f"default policy {name}: return {play(lazy_always, default_policy).base_return:.0f} without control")
        for algorithm in ("DQN", "PPO"):
            for eta in ETAS:
                found = play(greedy(train(algorithm, default_policy, eta)), default_policy)
                print(
                    f"  {algorithm}, eta {eta:<4}: return {found.base_return:3.0f}, "
                    f"takes control in {found.control_rate:4.0%} of the steps"
                )


if __name__ == "__main__":
    torch.set_num_threads(1)  # for networks this small, more threads are slower
    main()
