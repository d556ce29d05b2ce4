"""The control sets that PQN learns on the chain and on Key-Door-Treasure, against the exact ones."""

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
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402

CHAIN = dict(gamma=0.95, steps=400_000, n_envs=32, hidden=(64, 64), learning_rate=2e-3, final_epsilon=0.3)


def chain_prices():
    """All prices in the middle between two changes of the chain's control set, and the three with the most room."""
    points = lz.eta_path(chain(), lz.policies.uniform(chain())).breakpoints
    middles = np.sqrt(points[1:] * points[:-1])
    return middles, middles[np.argsort(points[:-1] / points[1:])[:3]]


@pytest.mark.learning
@pytest.mark.parametrize("form, prices_per_step", [("structured", 1), ("structured", 4), ("augmented", 1)])
def test_on_a_chain_it_finds_the_exact_control_set(form, prices_per_step, seed):
    env, (middles, etas) = from_mdp(chain(), max_steps=20), chain_prices()
    if form == "structured":  # one dial for all prices
        given = dict(eta=(0.5 * middles.min(), 2.0 * middles.max()), prices_per_step=prices_per_step)
        config = PQNConfig(**CHAIN, **given)
        pqn = PQN(env, config, uniform(2))
        outputs = outputs_at(etas, chain(), pqn, trained(pqn, seed=seed).learner.parameters, shared=True)
    else:
        pqn = PQN(env, PQNConfig(**CHAIN, eta=0.1, form=form), uniform(2))
        outputs = outputs_at(etas, chain(), pqn, trained_at(etas, pqn, seed=seed).learner.parameters)
    check_control_sets(chain(), etas, outputs)
    assert len({int(exact_solution(chain(), eta).control.sum()) for eta in etas}) == 3


@pytest.mark.learning
@pytest.mark.long  # on the chain, dials are always tested
def test_on_key_door_treasure_one_dial_finds_the_exact_control_sets(seed):
    """A discount of 0.9: at 0.99, where DQN is tested, the gaps of some states are within 3% of every price."""
    mdp = key_door_treasure(0.9)
    config = PQNConfig(
        gamma=0.9, steps=1_600_000, hidden=(128, 128), eta=(0.1, 0.6), zero_share=0.02, final_epsilon=1.0, epochs=2,
        lambda_=0.3, learning_rate=2e-3, final_learning_rate=1e-6,
    )  # fmt: skip
    # Short episodes, because some states occur only as starts; prices in the middle between changes of the set.
    pqn, etas = PQN(from_mdp(mdp, max_steps=4), config, uniform(4)), (0.126, 0.192, 0.253, 0.44)
    assert [exact_solution(mdp, eta).control.sum() for eta in etas] == [27, 15, 10, 4]
    parameters = trained(pqn, seed=seed).learner.parameters
    check_control_sets(mdp, etas, outputs_at(etas, mdp, pqn, parameters, shared=True))


@pytest.mark.learning
@pytest.mark.parametrize("prices_per_step", [pytest.param(1, marks=pytest.mark.long), 4])
def test_on_the_host_it_finds_the_exact_control_sets(prices_per_step, seed):
    agent = train(
        "lazymdp-tests/Chain-v0", algorithm="pqn", seed=seed, gamma=0.95, steps=90_000, n_envs=16, rollout=16,
        minibatches=4, eta=(0.02, 0.5), hidden=(32, 32), final_epsilon=0.3, learning_rate=2e-3, epochs=2,
        prices_per_step=prices_per_step,
    )  # fmt: skip
    states, alive = np.eye(7, dtype=np.float32), ~chain().absorbing
    for eta in (0.05, 0.1, 0.2):
        exact = exact_solution(chain(), eta).control
        np.testing.assert_array_equal((agent.lazy_gap(states, eta) > eta) & alive, exact)
    played = agent.evaluate([0.02, 0.5], episodes=20)
    assert played.control_rate[0] > played.control_rate[1]
