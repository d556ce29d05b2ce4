"""DQN: its targets, its schedule of updates and target copies, its exploration, where it starts from."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from small_envs import CountingHost
from small_runs import chain, compiled, trained

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.acting import Exploration, act  # noqa: E402
from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.loops import HostLoop  # noqa: E402
from lazymdp.learn.deep.networks import resize_head  # noqa: E402
from lazymdp.learn.deep.replay import Batch  # noqa: E402

SMALL = DQNConfig(
    eta=0.1, form="augmented", gamma=0.95, steps=2000, n_envs=4, rollout=50, buffer_size=400, learning_starts=100,
    target_update_interval=200, exploration_fraction=0.25, final_epsilon=0.1, learning_rate=1e-3, hidden=(16,),
    clip_rewards=True, control_budget=0.3,
)  # fmt: skip
FORMS = ["structured", "augmented"]


def skewed(observations, last):
    """A default policy that is not uniform."""
    return jnp.broadcast_to(jnp.array([0.9, 0.1]), (last.shape[0], 2))


def made(config=SMALL, default_policy=None, max_steps=None):
    return DQN(from_mdp(chain(), max_steps), config, default_policy or uniform(2))


@pytest.mark.parametrize("eta", [0.2, (0.05, 0.5)], ids=["one price", "range"])
@pytest.mark.parametrize("form", FORMS)
def test_targets_are_the_formula_written_out(form, eta):
    generator = np.random.default_rng(0)
    dqn = made(replace(SMALL, form=form, eta=eta, control_budget=None), skewed)
    parameters = dqn.network.init(jax.random.key(1))
    after, taught = generator.integers(6, size=30), generator.integers(2 if form == "structured" else 3, size=30)
    reward, terminated = generator.normal(size=30).astype(np.float32), generator.random(30) < 0.3
    paid = np.full(30, 0.2) if eta == 0.2 else generator.uniform(0.05, 0.5, size=30)
    batch = Batch(None, jnp.asarray(taught), jnp.asarray(reward), jnp.asarray(terminated), jnp.eye(7)[after], None)
    found = dqn.targets(parameters, batch, jnp.asarray(paid, dtype=jnp.float32))
    q = np.asarray(dqn.network.apply(parameters, jnp.eye(7)[after], jnp.asarray(paid, dtype=jnp.float32)))
    for i, price in enumerate(paid):
        if form == "structured":
            expected = reward[i] - price + 0.95 * (not terminated[i]) * max(q[i].max(), q[i] @ [0.9, 0.1] + price)
        else:
            expected = reward[i] - price * (taught[i] < 2) + 0.95 * (not terminated[i]) * q[i].max()
        np.testing.assert_allclose(found[i], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_envs", [1, 3, 8])
def test_updates_and_target_copies_come_at_their_steps_whatever_the_number_of_environments(n_envs):
    config = replace(SMALL, n_envs=n_envs, rollout=1, learning_starts=25, target_update_interval=10)
    start, iterate = compiled(made(config, max_steps=20))
    run = start(jax.random.key(0))
    held, updates, copied = np.asarray(run.learner.target.layers[0].kernel), 0, []
    for steps in range(n_envs, 97, n_envs):
        run, _ = iterate(run)
        updates += sum(step > 25 and step % 4 == 0 for step in range(steps - n_envs + 1, steps + 1))
        assert int(run.learner.optimizer[0].count) == updates
        target = np.asarray(run.learner.target.layers[0].kernel)
        if not np.array_equal(target, held):
            copied.append(steps)
            np.testing.assert_array_equal(target, run.learner.parameters.layers[0].kernel)
        held = target
    assert updates == 96 // 4 - 25 // 4
    last = {1: [30, 40, 50, 60, 70, 80, 90], 3: [30, 42, 51, 60, 72, 81, 90], 8: [32, 40, 56, 64, 72, 80, 96]}
    assert copied == last[n_envs]


def test_a_truncated_step_is_never_learned_from():
    dqn, eta = made(), jnp.full(6, 0.1)
    parameters = dqn.network.init(jax.random.key(0))
    generator = np.random.default_rng(0)
    seen, after = (jnp.eye(7)[generator.integers(7, size=6)] for _ in range(2))
    rest = (jnp.asarray(generator.integers(3, size=6)), jnp.asarray(generator.normal(size=6)), jnp.zeros(6, bool))
    truncated = jnp.array([False, True, False, False, True, False])
    batch = Batch(seen, *rest, after, 1.0 - truncated)
    slope = jax.jit(jax.grad(dqn.loss))
    whole = slope(parameters, parameters, batch, eta)
    spoiled = batch._replace(
        reward=jnp.where(truncated, 1e6, batch.reward), next_observation=jnp.where(truncated[:, None], -9.0, after)
    )
    without = jax.tree.map(lambda x: x[~np.asarray(truncated)], batch)
    for other in (spoiled, without):
        found = slope(parameters, parameters, other, eta[: len(other.reward)])
        for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    nothing = slope(parameters, parameters, batch._replace(weight=jnp.zeros(6)), eta)
    assert all((np.asarray(leaf) == 0.0).all() for leaf in jax.tree.leaves(nothing))


@pytest.mark.parametrize("form", FORMS)
def test_it_acts_over_its_default_policy(form):
    dqn = made(replace(SMALL, form=form), skewed)
    parameters, seen = dqn.network.init(jax.random.key(0)), jnp.tile(jnp.eye(7)[3], (20_000, 1))
    choose = jax.jit(functools.partial(act, dqn))
    numbers = jax.random.uniform(jax.random.key(1), (3, 20_000))
    arguments = (jnp.full(20_000, 0.1), jnp.zeros(20_000, int), numbers)
    choice = jax.tree.map(np.asarray, choose(parameters, seen, *arguments, Exploration(1.0)))
    assert abs(choice.lazy.mean() - 1 / 3) < 0.02 and abs(choice.greedy.mean() - 1 / 3) < 0.02
    assert abs((choice.executed[choice.lazy] == 0).mean() - 0.9) < 0.02
    assert abs((choice.executed[~choice.lazy] == 0).mean() - 0.5) < 0.02
    greedy = choose(parameters, seen, *arguments, Exploration(0.0))
    assert bool(greedy.greedy.all()) and len(np.unique(np.asarray(greedy.lazy))) == 1
    high_price = choose(parameters, seen, jnp.full(20_000, 9.0), *arguments[1:], Exploration(0.0))
    assert form == "augmented" or bool(high_price.lazy.all())


@pytest.mark.parametrize("with_target", [False, True])
def test_the_network_that_chooses_changes_with_every_update_or_with_every_copy(with_target):
    config = replace(SMALL, act_with_target=with_target, learning_rate=0.1, rollout=10, target_update_interval=160)
    dqn = made(replace(config, control_budget=None))
    start, advance = compiled(dqn)
    run, seen, changes = start(jax.random.key(0)), jnp.eye(7), []
    for iteration in range(8):  # 40 steps each: updates from the third iteration on, copies after the fourth and eighth
        before = dqn.network.apply(dqn.acting(run.learner), seen, jnp.full(7, 0.1))
        run, _ = advance(run)
        after = dqn.network.apply(dqn.acting(run.learner), seen, jnp.full(7, 0.1))
        if not np.allclose(before, after):
            changes.append(iteration)
    assert changes == ([3, 7] if with_target else [2, 3, 4, 5, 6, 7])


def test_with_the_target_network_choosing_a_run_follows_its_policy():
    """Without a copy, the agent acts as the network did at the start, however far the newest network has moved."""
    config = replace(SMALL, act_with_target=True, learning_rate=0.1, target_update_interval=10_000, final_epsilon=0.0)
    config = replace(config, exploration_fraction=0.05, control_budget=None, eta=-5.0, form="structured")
    dqn = made(config)
    start, advance = compiled(dqn)
    run = start(jax.random.key(0))
    greedy = np.asarray(dqn.network.apply(run.learner.parameters, jnp.eye(7), jnp.full(7, -5.0))).argmax(-1)
    for _ in range(config.iterations):
        run, _ = advance(run)
    moved = np.asarray(dqn.network.apply(run.learner.parameters, jnp.eye(7), jnp.full(7, -5.0))).argmax(-1)
    last = jax.tree.map(np.asarray, run.learner.replay)
    rows = np.arange(config.iterations * config.rollout - 50, config.iterations * config.rollout) % len(last.taught)
    states = last.observation[rows].argmax(-1)
    np.testing.assert_array_equal(last.taught[rows], greedy[states])
    assert (moved[states] != greedy[states]).any()  # the newest network would have chosen differently


def test_exploration_falls_as_in_dopamine():
    dqn = made(DQNConfig.atari(network="mlp"))
    found = [float(dqn.epsilon(steps)) for steps in (0, 20_000, 145_000, 270_000, 10_000_000)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.505, 0.01, 0.01], rtol=1e-5)


def test_the_step_size_falls_at_the_end_of_the_run_and_gradients_are_clipped():
    config = replace(
        SMALL, control_budget=None, clip_rewards=False, final_learning_rate=1e-5, decay_fraction=0.25,
        max_grad_norm=0.5, adam_epsilon=1e-8,
    )  # fmt: skip
    dqn, parameters = made(config), {"w": jnp.zeros(3)}
    state = dqn.optimizer.init(parameters)
    n_updates, sizes = int(dqn._updates_until(config.total_steps)), []
    assert n_updates == 475  # (2,000 - 100) / 4
    for _ in range(n_updates + 5):
        change, state = dqn.optimizer.update({"w": jnp.full(3, 40.0)}, state, parameters)
        sizes.append(-float(change["w"][0]))  # Adam's change is the step size if the gradient never changes
    np.testing.assert_allclose(sizes[:350], 1e-3, rtol=1e-3)
    np.testing.assert_allclose(sizes[356 + 59], (1e-3 + 1e-5) / 2, rtol=0.02)
    np.testing.assert_allclose(sizes[-5:], 1e-5, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(state[1][0].mu["w"]), 0.5, rtol=1e-3)  # the mean of clipped gradients


def test_with_a_control_budget_the_step_size_stays_above_a_tenth():
    config = replace(SMALL, learning_rate=1e-3, final_learning_rate=1e-5, control_budget=None)
    assert config.last_learning_rate == 1e-5 and replace(config, final_learning_rate=None).last_learning_rate == 1e-3
    np.testing.assert_allclose(replace(config, control_budget=0.3).last_learning_rate, 1e-4)


def test_the_huber_loss_is_linear_in_large_errors():
    generator = np.random.default_rng(0)
    error = generator.normal(size=40) * 3.0
    dqn = made(replace(SMALL, huber=True, reward_scale=2.0, clip_rewards=False))
    parameters = dqn.network.init(jax.random.key(1))
    state, taught, zeros = generator.integers(6, size=40), generator.integers(3, size=40), jnp.zeros(40)
    q = np.asarray(dqn.network.apply(parameters, jnp.eye(7)[state], zeros))[np.arange(40), taught]
    paid = 0.1 * (taught < 2)
    seen = jnp.eye(7)[state]
    batch = Batch(seen, jnp.asarray(taught), jnp.asarray(q - error + paid), jnp.ones(40), seen, jnp.ones(40))
    size = np.abs(error / 2.0)
    expected = np.where(size <= 1.0, size**2 / 2, size - 0.5).mean()
    np.testing.assert_allclose(dqn.loss(parameters, parameters, batch, zeros + 0.1), expected, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_learning_at_several_prices_averages_the_losses_at_each(form):
    generator = np.random.default_rng(0)
    dqn = made(replace(SMALL, form=form, eta=(0.01, 1.0), control_budget=None, hidden=(16, 8)), skewed)
    parameters, target = (dqn.network.init(jax.random.key(seed)) for seed in (1, 2))
    seen, after = (jnp.eye(7)[generator.integers(7, size=40)] for _ in range(2))
    taught = jnp.asarray(generator.integers(2 + (form == "augmented"), size=40))
    reward, terminated, weight = (jnp.asarray(generator.integers(2, size=40), float) for _ in range(3))
    batch = Batch(seen, taught, reward, terminated, after, weight)
    eta, shares = jnp.asarray(generator.uniform(size=(40, 3))), jnp.asarray([0.2, 0.5, 0.3])
    expected = sum(shares[k] * dqn.loss(parameters, target, batch, eta[:, k]) for k in range(3))
    np.testing.assert_allclose(dqn.loss(parameters, target, batch, eta, shares), expected, rtol=1e-5)


def test_rewards_are_clipped_for_learning_and_not_in_the_return():
    env = from_mdp(lz.MDP(chain().transitions, 5.0 * chain().rewards, 0.95), max_steps=20)
    start, iterate = compiled(DQN(env, SMALL, uniform(2)))
    run, episodes = iterate(start(jax.random.key(0)))
    returns = np.asarray(episodes.returns)[np.asarray(episodes.ended)]
    assert set(np.unique(returns)) == {0.0, 5.0}
    assert set(np.unique(run.learner.replay.reward)) == {0.0, 1.0}


def test_the_network_of_one_price_does_not_see_the_price():
    single, dial = (made(replace(SMALL, eta=eta, control_budget=None)) for eta in (0.1, (0.05, 0.2)))
    for dqn, differs in ((single, False), (dial, True)):
        parameters = dqn.init(jax.random.key(0)).parameters
        found = [np.asarray(dqn.network.apply(parameters, jnp.eye(7), jnp.full(7, eta))) for eta in (0.05, 0.1)]
        assert (parameters.price is not None) == differs
        assert np.array_equal(*found) != differs


def test_a_run_starts_from_given_parameters_and_does_not_donate_them():
    plain, lazy = (made(replace(SMALL, form=form), max_steps=20) for form in FORMS)
    more = resize_head(plain.network.init(jax.random.key(0)), 2, 3, eta=0.1)
    learner = lazy.init(jax.random.key(0), more)
    for a, b in zip(jax.tree.leaves((learner.parameters, learner.target)), 2 * jax.tree.leaves(more), strict=True):
        np.testing.assert_array_equal(a, b)
    trained(lazy, parameters=more)
    assert np.isfinite(more.head.bias).all()


def test_a_buffer_too_small_for_stacked_frames_is_refused():
    config = replace(SMALL, buffer_size=12, learning_starts=8)  # 3 steps of each environment, stacks of 3 frames
    with pytest.raises(ValueError, match="buffer_size is 12, expected at least 16"):
        DQN(CountingHost(), config, uniform(2))


def test_a_buffer_that_would_never_be_full_is_no_larger_than_the_run():
    config = DQNConfig(steps=400, n_envs=4, rollout=10, buffer_size=4000, learning_starts=8, eta=0.0, hidden=(8,))
    rows, weights = [], []
    for steps in (None, 400):
        loop = HostLoop(DQN(CountingHost(), config, uniform(2), steps), 0)
        for _ in range(config.iterations):
            loop.advance()
        rows.append(len(loop.run.learner.replay.reward))
        weights.append(jax.tree.leaves(loop.run.learner.parameters))
        loop.close()
    assert rows == [1000, 104]  # 100 steps, the observations after the last one, and 3 frames
    for large, small in zip(*weights, strict=True):
        np.testing.assert_array_equal(large, small)


@pytest.mark.parametrize("acts", [True, False], ids=["target", "newest"])
def test_the_agent_is_the_average_of_the_networks_that_chose(acts):
    share = 0.4
    start, iterate = compiled(made(replace(SMALL, average_share=share, act_with_target=acts)))
    run = start(jax.random.key(0))
    expected = np.asarray(run.learner.parameters.head.kernel)
    for iteration in range(1, 9):
        run, _ = iterate(run)
        chose = run.learner.target if acts else run.learner.parameters
        weight = 1.0 / max(1.0, share * iteration)
        expected = (1.0 - weight) * expected + weight * np.asarray(chose.head.kernel)
        np.testing.assert_allclose(run.learner.agent.head.kernel, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(expected, chose.head.kernel, atol=1e-4)


def test_without_a_share_the_agent_is_the_newest_network():
    learner = trained(made()).learner
    assert learner.average == () and learner.agent is learner.parameters
