"""The control sets that DQN learns on the chain and on Key-Door-Treasure, against the exact ones.

The optimizer is the one that users get: no test changes `adam_epsilon`.
"""

from dataclasses import replace

import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import (
    chain,
    check_control_sets,
    exact_solution,
    key_door_treasure,
    outputs_at,
    trained,
    trained_at,
)

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402

CHAIN = DQNConfig(
    eta=0.1, gamma=0.95, steps=20_000, n_envs=8, rollout=250, buffer_size=40_000, batch_size=64, learning_starts=500,
    target_update_interval=200, exploration_fraction=0.25, final_epsilon=0.3, learning_rate=1e-3, hidden=(64, 64),
    clip_rewards=True,
)  # fmt: skip


def chain_prices():
    """Three prices of the chain, each between two changes of its control set."""
    points = lz.eta_path(chain(), lz.policies.uniform(chain())).breakpoints
    return np.sqrt(points[1:] * points[:-1])[1:4]


def in_stages(dqn, plan):
    """Returns algorithms that continue one another, one for each (iterations, learning rate) of the plan."""
    config = dqn.config
    return [
        DQN(dqn.env, replace(config, steps=count * config.steps_per_iteration, learning_rate=rate), dqn.default_policy)
        for count, rate in plan
    ]


@pytest.mark.learning
@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_on_a_chain_it_finds_the_exact_control_set(form, seed):
    env, config = from_mdp(chain(), max_steps=20), replace(CHAIN, form=form)
    # The augmented form's lazy output is a mean over what the default policy happened to do: it needs many steps at a
    # low learning rate.
    plan = ((10, 1e-3),) if form == "structured" else ((10, 1e-3), (20, 2e-4), (20, 4e-5))
    stages = in_stages(DQN(env, config, uniform(2)), plan)
    etas = chain_prices()
    outputs = outputs_at(etas, chain(), stages[0], trained_at(etas, *stages, seed=seed).learner.parameters)
    check_control_sets(chain(), etas, outputs)
    assert outputs.shape == (3, 7, 2 if form == "structured" else 3)


@pytest.mark.learning
def test_one_network_for_a_range_of_prices_finds_the_exact_control_sets(seed):
    dqn = DQN(from_mdp(chain(), max_steps=20), replace(CHAIN, eta=(0.02, 0.5)), uniform(2))
    etas = (0.05, 0.1, 0.2)
    outputs = outputs_at(etas, chain(), dqn, trained(dqn, seed=seed).learner.parameters, shared=True)
    check_control_sets(chain(), etas, outputs, margin=0.1)
    assert [int(exact_solution(chain(), eta).control.sum()) for eta in etas] == [5, 4, 2]


@pytest.mark.learning
@pytest.mark.long  # one network for three prices is always tested
def test_on_key_door_treasure_the_structured_form_finds_the_exact_control_set(seed):
    mdp = key_door_treasure(0.99)
    config = DQNConfig(
        eta=0.1, n_envs=64, update_interval=16, rollout=250, buffer_size=144_000, batch_size=64,
        learning_starts=10_000, target_update_interval=800, final_epsilon=1.0, learning_rate=1e-3,
        hidden=(128,), clip_rewards=True,
    )  # fmt: skip
    stages = in_stages(DQN(from_mdp(mdp, max_steps=20), config, uniform(4)), ((6, 1e-3), (3, 1e-4)))
    etas = (0.149, 0.196, 0.24)
    assert [exact_solution(mdp, eta).control.sum() for eta in etas] == [8, 5, 3]
    parameters = trained_at(etas, *stages, seed=seed).learner.parameters
    check_control_sets(mdp, etas, outputs_at(etas, mdp, stages[0], parameters))


@pytest.mark.learning
def test_on_key_door_treasure_one_network_finds_the_exact_control_sets_of_three_prices(seed):
    mdp = key_door_treasure(0.99)
    config = DQNConfig(
        eta=(0.1, 0.3), steps=240_000, n_envs=64, update_interval=16, rollout=250, buffer_size=240_000, batch_size=64,
        learning_starts=10_000, target_update_interval=800, final_epsilon=1.0, learning_rate=1e-3,
        final_learning_rate=1e-5, decay_fraction=0.7, hidden=(128, 128), clip_rewards=True,
    )  # fmt: skip
    dqn, etas = DQN(from_mdp(mdp, max_steps=20), config, uniform(4)), (0.149, 0.196, 0.24)
    outputs = outputs_at(etas, mdp, dqn, trained(dqn, seed=seed).learner.parameters, shared=True)
    check_control_sets(mdp, etas, outputs, margin=0.1)


@pytest.mark.learning
@pytest.mark.long  # on the chain, the augmented form is always tested
def test_on_key_door_treasure_the_augmented_form_finds_the_exact_control_set(seed):
    """The lazy output is a mean over what the default policy happened to do, which takes many steps to be exact.

    Hence prices in the middle of where the set stays the same, a learning rate that falls in stages, and a discount of
    0.9: at 0.99, where the structured form is tested, a state near a tie is still missed now and then.
    """
    mdp = key_door_treasure(0.9)
    config = DQNConfig(
        form="augmented", eta=0.1, gamma=0.9, n_envs=512, update_interval=512, rollout=125, buffer_size=51_200,
        batch_size=512, learning_starts=10_240, target_update_interval=5120, final_epsilon=1.0,
        hidden=(64,), clip_rewards=True,
    )  # fmt: skip
    env = from_mdp(mdp, max_steps=4)  # short episodes, because some states occur only as starts
    stages = in_stages(DQN(env, config, uniform(4)), ((40, 1e-3), (25, 1e-4), (30, 1e-5)))
    etas = (0.126, 0.245, 0.41)
    assert [exact_solution(mdp, eta).control.sum() for eta in etas] == [27, 10, 4]
    parameters = trained_at(etas, *stages, seed=seed).learner.parameters
    check_control_sets(mdp, etas, outputs_at(etas, mdp, stages[0], parameters))


@pytest.mark.learning
@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_on_the_host_it_finds_the_exact_control_set(form, seed):
    agent = train(
        "lazymdp-tests/Chain-v0", algorithm="dqn", seed=seed, eta=0.1, gamma=0.95, steps=20_000, form=form, n_envs=8,
        rollout=50, buffer_size=10_000, batch_size=64, learning_starts=500, target_update_interval=200,
        final_epsilon=1.0, learning_rate=1e-3, hidden=(32,),
    )  # fmt: skip
    found = agent.lazy_gap(np.eye(7, dtype=np.float32), 0.1) > 0.1
    np.testing.assert_array_equal(found & ~chain().absorbing, exact_solution(chain(), 0.1).control)
