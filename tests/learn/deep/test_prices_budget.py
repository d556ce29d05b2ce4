"""The price is steered until the agent takes control as often as its budget allows."""

from dataclasses import replace

import numpy as np
import pytest
from small_runs import chain, compiled

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig, PQNConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402

SHARED = dict(gamma=0.95, eta=0.03, final_epsilon=0.02, hidden=(64,))
ALGORITHMS = {
    "pqn": (PQN, PQNConfig(**SHARED, steps=400_000, n_envs=32, learning_rate=2e-3, budget_step=0.2)),
    "dqn": (
        DQN,
        DQNConfig(
            **SHARED, steps=40_000, n_envs=8, rollout=50, buffer_size=10_000, batch_size=32, learning_starts=500,
            target_update_interval=200, exploration_fraction=0.125, learning_rate=1e-3, clip_rewards=True,
            budget_step=0.4,
        ),
    ),
}  # fmt: skip


@pytest.mark.learning
@pytest.mark.parametrize(("form", "budget"), [("structured", 0.2), ("augmented", 0.5)])
@pytest.mark.parametrize(("kind", "config"), ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_price_is_steered_to_the_control_budget(kind, config, form, budget, seed):
    config = replace(config, form=form, control_budget=budget)
    start, iterate = compiled(kind(from_mdp(chain(), max_steps=20), config, uniform(2)))
    run = start(jax.random.key(seed))
    controls, steps = [], []
    for _ in range(config.iterations):
        run, episodes = iterate(run)
        ended = np.asarray(episodes.ended)
        controls.append(np.asarray(episodes.controls)[ended].sum())
        steps.append(np.asarray(episodes.steps)[ended].sum())
    half = config.iterations // 2
    assert abs(sum(controls[half:]) / sum(steps[half:]) - budget) < 0.02
    assert 0.05 < float(run.price.low) < 0.3
    assert abs(float(np.asarray(episodes.eta)[0, 0]) - config.eta) > 1e-3
