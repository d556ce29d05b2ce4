"""Many runs as one program: each is the run it would be alone, and the study plays them all."""

import numpy as np
import pytest
from small_runs import chain

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.experiments import minatar  # noqa: E402
from lazymdp.learn.deep.config import DialConfig  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.population import Population  # noqa: E402
from lazymdp.learn.deep.pqn import Dial  # noqa: E402


def test_every_run_is_what_it_would_be_alone():
    config = DialConfig(n_envs=8, rollout=8, hidden=(16,), minibatches=2)
    dial, prices = Dial(from_mdp(chain(), max_steps=20), config), [(0.01, 0.1, 0.5), (0.3, 0.3, 0.0)]
    population = Population(dial, chunk=5)
    learners, ended = population.advance(population.start(range(2), prices))
    assert (np.asarray(ended.episodes) > 0).all()
    alone = jax.jit(dial.iterate)
    for place, (price, seed) in enumerate((price, seed) for price in prices for seed in range(2)):
        learner, episodes = jax.jit(dial.init)(jax.random.key(seed), jnp.array(price)), 0
        for _ in range(5):
            learner, told = alone(learner)
            episodes += int(told.ended.sum())
        assert episodes == int(ended.episodes[place])
        for a, b in zip(jax.tree.leaves(learners.parameters), jax.tree.leaves(learner.parameters), strict=True):
            np.testing.assert_allclose(a[place], b, rtol=1e-4, atol=1e-5)
    seeds = [np.asarray(leaf) for leaf in jax.tree.leaves(learners.parameters)]
    assert not np.allclose(seeds[0][0], seeds[0][1])
    played = population.evaluate(learners, [[0.0, 0.05]] * 2 + [[0.3, 0.3]] * 2, episodes=6)
    assert played.score.shape == (4, 2, 6) and (played.steps > 0).all()


def test_a_part_of_the_study_has_a_row_for_every_price_and_seed():
    pytest.importorskip("pgx")
    config = minatar.Config(etas=(0.0, 0.1), seeds=2, steps=2048, episodes=2, max_steps=50, n_envs=16, chunk=2)
    words = []
    rows = minatar.part(config, "breakout", "dial", words.append)
    assert list(zip(rows["seed"].tolist(), rows["eta"].tolist(), strict=True)) == [(0, 0), (0, 0.1), (1, 0), (1, 0.1)]
    assert set(rows["method"]) == {"dial"} and (rows["length"] <= 50).all() and words
    rows = minatar.part(config, "breakout", "structured")
    assert list(zip(rows["eta"].tolist(), rows["seed"].tolist(), strict=True)) == [(0, 0), (0, 1), (0.1, 0), (0.1, 1)]
