"""What DQN learns, against exact solutions: control sets of the chain and of Key-Door-Treasure, control budgets."""

from dataclasses import replace

import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import (
    chain,
    check_control_sets,
    compiled,
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
    target_update_interval=200, exploration_fraction=0.25, final_epsilon=0.3, learning_rate=1e-3, adam_epsilon=1e-8,
    hidden=(64, 64), clip_rewards=True,
)  # fmt: skip


def chain_prices():
    """Three prices of the chain, each between two changes of its control set."""
    points = lz.eta_path(chain(), lz.policies.uniform(chain())).breakpoints
    return np.sqrt(points[1:] * points[:-1])[1:4]


@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_on_a_chain_it_finds_the_exact_control_set(form, seed=0):
    first = DQN(from_mdp(chain(), max_steps=20), replace(CHAIN, form=form), uniform(2))
    stages = [first]
    if form == "augmented":
        # Its lazy output is a mean over what the default policy happened to do: many steps at a low learning rate.
        stages.append(DQN(first.env, replace(first.config, steps=40_000, learning_rate=1e-4), uniform(2)))
    etas = chain_prices()
    outputs = outputs_at(etas, chain(), first, trained_at(etas, *stages, seed=seed).learner.parameters)
    check_control_sets(chain(), etas, outputs)
    assert outputs.shape == (3, 7, 2 if form == "structured" else 3)


def test_one_network_for_a_range_of_prices_finds_the_exact_control_sets(seed=0):
    dqn = DQN(from_mdp(chain(), max_steps=20), replace(CHAIN, eta=(0.02, 0.5)), uniform(2))
    etas = (0.05, 0.1, 0.2)
    outputs = outputs_at(etas, chain(), dqn, trained(dqn, seed=seed).learner.parameters, shared=True)
    check_control_sets(chain(), etas, outputs, margin=0.1)
    assert [int(exact_solution(chain(), eta).control.sum()) for eta in etas] == [5, 4, 2]


def test_on_key_door_treasure_the_structured_form_finds_the_exact_control_set(seed=0):
    mdp = key_door_treasure(0.99)
    config = DQNConfig(
        eta=0.1, steps=96_000, n_envs=64, update_interval=16, rollout=250, buffer_size=144_000, batch_size=64,
        learning_starts=10_000, target_update_interval=800, final_epsilon=1.0, learning_rate=1e-3, adam_epsilon=1e-8,
        hidden=(128,), clip_rewards=True,
    )  # fmt: skip
    first = DQN(from_mdp(mdp, max_steps=20), config, uniform(4))
    second = DQN(first.env, replace(config, steps=48_000, learning_rate=1e-4), uniform(4))
    etas = (0.149, 0.196, 0.24)
    assert [exact_solution(mdp, eta).control.sum() for eta in etas] == [8, 5, 3]
    parameters = trained_at(etas, first, second, seed=seed).learner.parameters
    check_control_sets(mdp, etas, outputs_at(etas, mdp, first, parameters))


def test_on_key_door_treasure_the_augmented_form_finds_the_exact_control_set(seed=0):
    """The lazy output is a mean over what the default policy happened to do, which takes many steps to be exact.

    Hence prices in the middle of where the set stays the same, a learning rate that falls in stages, and a discount of
    0.9: at 0.99, where the structured form is tested, a state near a tie is still missed now and then.
    """
    mdp = key_door_treasure(0.9)
    config = DQNConfig(
        form="augmented", eta=0.1, gamma=0.9, n_envs=512, update_interval=512, rollout=125, buffer_size=51_200,
        batch_size=512, learning_starts=10_240, target_update_interval=5120, final_epsilon=1.0, adam_epsilon=1e-8,
        hidden=(64,), clip_rewards=True,
    )  # fmt: skip
    env = from_mdp(mdp, max_steps=4)  # short episodes, because some states occur only as starts
    stages = [
        DQN(env, replace(config, steps=iterations * config.steps_per_iteration, learning_rate=rate), uniform(4))
        for iterations, rate in ((40, 1e-3), (25, 1e-4), (15, 1e-5))
    ]
    etas = (0.063, 0.245, 0.41)
    assert [exact_solution(mdp, eta).control.sum() for eta in etas] == [54, 10, 4]
    parameters = trained_at(etas, *stages, seed=seed).learner.parameters
    check_control_sets(mdp, etas, outputs_at(etas, mdp, stages[0], parameters))


@pytest.mark.parametrize(("form", "budget"), [("structured", 0.2), ("augmented", 0.5)])
def test_the_price_is_steered_to_the_control_budget(form, budget, seed=0):
    config = replace(
        CHAIN, form=form, steps=40_000, rollout=50, buffer_size=10_000, batch_size=32, eta=0.03, final_epsilon=0.02,
        exploration_fraction=0.125, hidden=(64,), control_budget=budget, budget_step=0.4,
    )  # fmt: skip
    start, iterate = compiled(DQN(from_mdp(chain(), max_steps=20), config, uniform(2)))
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


@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_on_the_host_it_finds_the_exact_control_set(form, seed=0):
    agent = train(
        "lazymdp-tests/Chain-v0", algorithm="dqn", seed=seed, eta=0.1, gamma=0.95, steps=20_000, form=form, n_envs=8,
        rollout=50, buffer_size=10_000, batch_size=64, learning_starts=500, target_update_interval=200,
        final_epsilon=1.0, learning_rate=1e-3, hidden=(32,),
    )  # fmt: skip
    found = agent.lazy_gap(np.eye(7, dtype=np.float32), 0.1) > 0.1
    np.testing.assert_array_equal(found & ~chain().absorbing, exact_solution(chain(), 0.1).control)
