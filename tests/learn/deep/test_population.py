"""Many runs as one program: each is the run it would be alone, and the MinAtar study evaluates them all."""

import functools

import numpy as np
import pytest
from small_runs import chain, compiled

jax = pytest.importorskip("jax")

from lazymdp.experiments import minatar, minatar_pretrained  # noqa: E402
from lazymdp.learn.deep import config as deep_config  # noqa: E402
from lazymdp.learn.deep import prices  # noqa: E402
from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.population import Population  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402


def test_every_run_is_what_it_would_be_alone():
    config = PQNConfig(n_envs=8, rollout=8, hidden=(16,), minibatches=2)
    pqn, ranges = PQN(from_mdp(chain(), max_steps=20), config, uniform(2)), [(0.01, 0.1, 0.5), (0.3, 0.3, 0.0)]
    population = Population(pqn, chunk=5)
    runs, ended = population.advance(population.start(range(2), ranges))
    assert (np.asarray(ended.episodes) > 0).all()
    start, iterate = compiled(pqn)
    for place, (given, seed) in enumerate((given, seed) for given in ranges for seed in range(2)):
        run, episodes = start(jax.random.key(seed), prices.price(*given)), 0
        for _ in range(5):
            run, found = iterate(run)
            episodes += int(found.ended.sum())
        assert episodes == int(ended.episodes[place])
        leaves = (jax.tree.leaves(one.learner.parameters) for one in (runs, run))
        for a, b in zip(*leaves, strict=True):
            np.testing.assert_allclose(a[place], b, rtol=1e-4, atol=1e-5)
    seeds = [np.asarray(leaf) for leaf in jax.tree.leaves(runs.learner.parameters)]
    assert not np.allclose(seeds[0][0], seeds[0][1])
    played = population.evaluate(runs, [[0.0, 0.05]] * 2 + [[0.3, 0.3]] * 2, episodes=6)
    assert played.returns.shape == (4, 2, 6) and (played.steps > 0).all()
    assert played.etas.shape == played.control_rate.shape == (4, 2)


def test_runs_with_several_prices_need_a_network_that_sees_the_price():
    population = Population(PQN(from_mdp(chain()), PQNConfig(eta=0.1), uniform(2)))
    with pytest.raises(
        ValueError, match=r"ranges has \(0\.1, 0\.2, 0\.0\), but eta is 0\.1: .* the algorithm needs a range"
    ):
        population.start([0], [(0.1, 0.1, 0.0), (0.1, 0.2, 0.0)])


def test_a_part_of_the_study_has_a_row_for_every_price_and_seed():
    pytest.importorskip("pgx")
    config = minatar.Config(etas=(0.0, 0.1), seeds=2, steps=2048, episodes=2, max_steps=50, n_envs=16, chunk=2)
    words = []
    rows = minatar.part(config, "breakout", "dial", words.append)
    assert list(zip(rows["seed"].tolist(), rows["eta"].tolist(), strict=True)) == [(0, 0), (0, 0.1), (1, 0), (1, 0.1)]
    assert set(rows["method"]) == {"dial"} and (rows["mean_length"] <= 50).all() and words
    rows = minatar.part(config, "breakout", "structured", words.append)
    assert list(zip(rows["eta"].tolist(), rows["seed"].tolist(), strict=True)) == [(0, 0), (0, 1), (0.1, 0), (0.1, 1)]


def test_a_run_can_have_a_default_policy_of_its_own_and_start_from_given_parameters():
    config = PQNConfig(n_envs=8, rollout=8, hidden=(16,), minibatches=2)
    pqn = PQN(from_mdp(chain(), max_steps=20), config, uniform(2))
    population = Population(pqn, chunk=5)
    trained, _ = population.advance(population.start_members([0, 1], [(0.3, 0.3, 1.0)] * 2))
    defaults = jax.tree.map(np.asarray, trained.learner.parameters)
    alone = population.evaluate(trained, [[0.0]] * 2, episodes=6)
    on_top = Population(pqn, 5, defaults, pqn.network)
    runs = on_top.start_members([2, 3], [(0.3, 0.3, 0.0)] * 2)
    lazy = on_top.evaluate(runs, [[100.0]] * 2, episodes=6)  # control is too expensive: the default policy acts
    assert (lazy.controls == 0).all()
    np.testing.assert_allclose(lazy.returns, alone.returns)
    again = on_top.start_members([2, 3], [(0.3, 0.3, 0.0)] * 2, defaults)
    for given, found in zip(jax.tree.leaves(defaults), jax.tree.leaves(again.learner.parameters), strict=True):
        np.testing.assert_array_equal(given, found)
    _, ended = on_top.advance(runs)
    assert (np.asarray(ended.episodes) > 0).all()


def test_the_study_of_pretrained_agents_has_a_row_for_every_method_evaluation_and_seed(monkeypatch):
    pytest.importorskip("pgx")
    small = functools.partial(deep_config.default_config, hidden=(8,), batch_size=8)
    monkeypatch.setattr(deep_config, "default_config", small)
    config = minatar_pretrained.Config(
        seeds=2, dqn_steps=2048, points=2, etas=(0.0, 0.05, 0.5), episodes=2, max_steps=20
    )
    rows = minatar_pretrained.make_job(config, "dqn_breakout")
    counts = {method: int((rows["method"] == method).sum()) for method in set(rows["method"].tolist())}
    assert counts == {"random": 2, "default": 2, "scratch": 4, "restart": 4, "lazy": 4, "dial": 4, "prices": 6}
    assert set(rows["algorithm"]) == {"dqn"} and (rows["eta"][rows["method"] == "lazy"] == 0.05).all()
    default, scratch = (rows["method"] == name for name in ("default", "scratch"))
    for seed in range(2):  # the default policy is one of the checkpoints of its seed
        found = rows["mean_return"][scratch & (rows["seed"] == seed)]
        step, returned = (rows[name][default & (rows["seed"] == seed)][0] for name in ("step", "mean_return"))
        assert returned == found[list(np.unique(rows["step"][scratch])).index(step)]
