"""Training: resumed bit for bit, reported, stopped when it diverges; the quality of checkpoints."""

import re
from dataclasses import replace

import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import DQN_DIAL, DQN_SMALL, SMALL, same

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.config import DQNConfig, PQNConfig, TrainConfig  # noqa: E402
from lazymdp.learn.deep.run_folder import ReplayPart, RunFolder  # noqa: E402
from lazymdp.learn.deep.trainer import Diverged, Training, run_training, train  # noqa: E402

ALGORITHMS = {"pqn": SMALL, "dqn": DQN_SMALL, "dqn, range": DQN_DIAL}


def everything(run):
    """All arrays of a run, its replay buffer included."""
    part = run.replay_part()
    return {**run.arrays(), **({} if part is None else part.arrays)}


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(env, settings):
    config = TrainConfig(env, settings, "repeat")
    whole = Training(config)
    while not whole.done:
        whole.advance()
    first, parts = Training(config), []
    for count in range(settings.iterations // 3):
        first.advance()
        if isinstance(settings, DQNConfig) and count % 5 == 4:
            parts.append(first.replay_part(parts[-1].last if parts else 0))
    if parts:
        parts.append(first.replay_part(parts[-1].last))
    second = Training(config, first.arrays(), parts)
    assert second.step == first.step > 0
    same(everything(first), everything(second))
    while not second.done:
        second.advance()
    same(everything(whole), everything(second))
    for run in (whole, first, second):
        run.close()


def test_a_run_resumed_before_its_first_step_is_the_same():
    config = TrainConfig("CartPole-v1", PQNConfig(steps=300, n_envs=4, rollout=5, minibatches=2, hidden=(8,)))
    whole, first = Training(config), Training(config)
    second = Training(config, first.arrays())
    for run in (whole, second):
        while not run.done:
            run.advance()
    same(whole.arrays(), second.arrays())
    for run in (whole, first, second):
        run.close()


def test_a_run_without_its_replay_buffer_is_not_resumed():
    config = TrainConfig("FrozenLake-v1", DQN_SMALL)
    run = Training(config)
    for _ in range(3):
        run.advance()
    whole = run.replay_part()
    parts = [ReplayPart(0, 40, {}), ReplayPart(40, 60, {}), ReplayPart(61, 96, {})]
    Training(config, run.arrays(), [whole])._check_complete(parts)
    with pytest.raises(ValueError, match=r"steps 0 to 96 of every environment"):
        Training(config, run.arrays())
    with pytest.raises(ValueError, match=r"steps 41 to 96 of every environment"):
        run._check_complete([parts[0], parts[2]])


def test_reports_cover_every_episode(capsys):
    counted, steps = [], []
    agent = run_training(
        TrainConfig("FrozenLake-v1", SMALL),
        on_report=lambda run, metrics: (counted.extend(metrics), steps.append(run.step)),
        report_seconds=0.2,
    )
    assert capsys.readouterr() == ("", "")
    assert steps[-1] == SMALL.iterations * 128
    assert sum(row.episodes for row in counted) > 1000
    assert all(0.0 <= row.control_rate <= 1.0 and row.length >= 1.0 for row in counted)
    assert {row.eta for row in counted} <= set(SMALL.reported_etas)
    assert agent.evaluate([0.0], episodes=4).returns.shape == (1, 4)


def test_on_the_host_every_episode_is_reported_once_and_whole():
    settings = PQNConfig(steps=3000, n_envs=4, rollout=10, minibatches=2, hidden=(8,))
    run = Training(TrainConfig("CartPole-v1", settings))
    rows = []
    while not run.done:
        run.advance()
        rows += run.report()
    reported = sum(row.episodes * row.length for row in rows)
    assert 2500 < reported <= 3000  # the rest is under way
    assert all(row.mean_return == pytest.approx(row.length) for row in rows)  # CartPole: reward 1 per step
    run.close()


def test_a_single_price_is_reported_as_it_is():
    rows = []
    train(
        "FrozenLake-v1", steps=2000, n_envs=16, rollout=8, hidden=(16,), eta=5.0, on_report=lambda _, m: rows.extend(m)
    )
    assert {row.eta for row in rows} == {5.0}


def test_progress_is_shown_if_wanted(capsys):
    run_training(TrainConfig("FrozenLake-v1", SMALL), show_progress=True)
    out, shown = capsys.readouterr()
    assert not out and re.search(r"[\d,]+/s, eta 0: return [\d.]+, control \d+%", " ".join(shown.split()))


def test_train_takes_settings_and_refuses_unknown_ones():
    agent = train("FrozenLake-v1", algorithm="dqn", default_policy=2, eta=0.3, steps=256, n_envs=4, rollout=32,
                  learning_starts=100, hidden=(8,))  # fmt: skip
    assert agent.eta == 0.3 and agent.algorithm.config.hidden == (8,)
    np.testing.assert_array_equal(agent.algorithm.default_policy(np.eye(16), np.zeros(16, int)), np.eye(4)[[2] * 16])
    with pytest.raises(TypeError, match="pqn has no setting 'learner'"):
        train("FrozenLake-v1", learner="dqn")
    with pytest.raises(TypeError, match="expected the id of an environment"):
        train(3)
    with pytest.raises(ValueError, match="checkpoint_seconds is nan"):
        train("FrozenLake-v1", checkpoint_seconds=float("nan"))


def test_weights_that_are_not_finite_stop_the_run():
    settings = replace(SMALL, learning_rate=1e38, max_grad_norm=1e38)
    with pytest.raises(Diverged, match="weights are not finite after .* use a lower learning rate"):
        run_training(TrainConfig("FrozenLake-v1", settings))


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
@pytest.mark.parametrize(
    "settings", [replace(SMALL, learning_rate=1e4), replace(DQN_SMALL, learning_rate=1e2)], ids=["pqn", "dqn"]
)
def test_values_beyond_every_return_stop_the_run_and_the_last_checkpoint_is_from_before(tmp_path, env, settings):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Diverged, match=r"values reach .* although no return can exceed 1\d\d: training diverges"):
        run_training(TrainConfig(env, settings), folder=folder, report_seconds=0.01, checkpoint_seconds=0.01)
    kept = folder.read()
    assert kept is None or kept.arrays[".actors.value"].max() < 2000.0


def test_values_that_are_large_from_the_start_are_no_divergence():
    settings = DQNConfig(
        eta=0.0, steps=4096, n_envs=4, rollout=32, learning_starts=2048, hidden=(16,), buffer_size=8192
    )
    run = Training(TrainConfig("lazymdp-tests/Large-v0", settings))
    for _ in range(4):
        run.advance()
        run.report()
    assert float(run._loop.run.actors.value.max()) > 10.0 * 1.0 / (1.0 - 0.99)
    run.close()


def test_a_price_that_falls_is_no_divergence():
    falling = dict(eta=200.0, gamma=0.9, control_budget=1.0, budget_step=1.6, form="structured", steps=3000)
    agent = run_training(TrainConfig("FrozenLake-v1", replace(DQN_SMALL, **falling)), report_seconds=0.01)
    assert agent.eta < 20.0


def test_rewards_that_are_not_finite_are_told_from_a_learning_rate():
    run = Training(TrainConfig("lazymdp-tests/Nan-v0", SMALL))
    for _ in range(3):
        run.advance()
    with pytest.raises(Diverged, match="Nan-v0 returned a reward that is not finite"):
        run.report()
    run.close()


def test_the_quality_is_that_of_the_episodes_since_the_last_call():
    run = Training(TrainConfig("FrozenLake-v1", SMALL))
    assert run.quality() is None
    original, seen = run._loop.episodes, []

    def episodes():
        seen.append(original())
        return seen[-1]

    run._loop.episodes = episodes
    means = {}
    for _ in range(2):
        seen.clear()
        for _ in range(15):
            run.advance()
            run.report()
        _, eta, returns, _, controls = np.concatenate(seen, axis=1)
        reported = np.array(SMALL.reported_etas)
        price = reported[np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(reported + 1e-3)).argmin(axis=1)]
        means |= {one: (returns - eta * controls)[price == one].mean() for one in np.unique(price)}
        assert len(means) == len(reported)
        assert run.quality() == pytest.approx(np.mean(list(means.values())))
        assert run.quality() is None
    run._loop.episodes = lambda: np.array([[1.0, 1.0], [0.0, 0.0], [99.0, 99.0], [1.0, 1.0], [1.0, 1.0]])
    run.report()
    assert run.quality() is None  # two lucky episodes prove nothing
    another = Training(TrainConfig("FrozenLake-v1", SMALL))
    another._loop.episodes = lambda: np.tile(np.array([[1.0], [0.0], [99.0], [1.0], [1.0]]), (1, 50))
    another.report()
    assert another.quality() is None  # nor do many at one price alone
