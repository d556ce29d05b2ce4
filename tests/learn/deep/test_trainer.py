"""Training: resumed bit for bit, reported, stopped when it diverges; the quality of checkpoints."""

import re
import sys
from dataclasses import fields, replace

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from echo_env import EchoEnv
from small_runs import DQN_DIAL, DQN_SMALL, SMALL, same

jax = pytest.importorskip("jax")

from lazymdp.experiments import expert_rules  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig, PQNConfig  # noqa: E402
from lazymdp.learn.deep.env_failures import EnvironmentFailed  # noqa: E402
from lazymdp.learn.deep.factory import load, make_algorithm  # noqa: E402
from lazymdp.learn.deep.run_folder import ReplayPart, RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import Diverged, Training, resume, run_training, train  # noqa: E402
from lazymdp.learn.deep.training_run import ENOUGH_EPISODES  # noqa: E402
from lazymdp.learn.deep.trust import Untrusted  # noqa: E402

gym.register("lazymdp-tests/Echo-v0", entry_point=EchoEnv)
ALGORITHMS = {"pqn": SMALL, "dqn": DQN_SMALL, "dqn, range": DQN_DIAL}


def everything(run):
    """All arrays of a run, its replay buffer included."""
    part = run.replay_part()
    return {**run.arrays(), **({} if part is None else part.arrays)}


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(env, settings):
    if env == "CartPole-v1":  # slower, and 46 iterations are enough
        settings = replace(settings, steps=6000)
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


# Compiled and on the host; before and after the buffer is full.
@pytest.mark.parametrize(("env", "iterations"), [("FrozenLake-v1", 10), ("CartPole-v1", 3)])
def test_a_lost_replay_buffer_is_filled_by_acting_without_learning(env, iterations):
    config = TrainConfig(env, DQN_SMALL)
    run = Training(config)
    for _ in range(iterations):
        run.advance()
    before = run.arrays()
    filled = Training(config, before, None)
    assert filled.step == run.step and filled.replay_part().first == run.replay_part().first
    after = filled.arrays()
    for name in before:
        if name.startswith((".learner", ".price", ".iteration", "quality")):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    steps = filled.replay_part().arrays
    seen = np.abs(steps["observation"]).sum(-1) > 0.0  # every row is recorded, except one that is not learned from
    assert (seen | steps["truncated"]).all() and seen.mean() > 0.98 and steps["truncated"].mean() < 0.1
    for one in (filled, run):
        one.advance()
        one.close()


def test_only_the_last_and_the_best_checkpoint_can_be_resumed(tmp_path):
    RunFolder(tmp_path / "run").create(TrainConfig("FrozenLake-v1", FEW))
    with pytest.raises(ValueError, match="which is 'newest', expected one of 'last', 'best'"):
        resume(tmp_path / "run", which="newest")


# -- extensions ------------------------------------------------------------------------------------------------------

FEW = PQNConfig(steps=400, n_envs=4, rollout=10, minibatches=2, hidden=(8,))
FEW_DQN = DQNConfig(
    steps=400, eta=0.1, n_envs=4, rollout=10, buffer_size=200, learning_starts=40, batch_size=8, hidden=(8,)
)


def finished(run):
    """Advances a run to its end and closes it."""
    while not run.done:
        run.advance()
    run.close()
    return run


# The buffer of the last one could hold more steps than the run has, and grows with the extensions.
@pytest.mark.parametrize(
    "settings", [FEW, FEW_DQN, replace(FEW_DQN, buffer_size=4000)], ids=["pqn", "dqn", "dqn, large buffer"]
)
def test_it_makes_no_difference_when_a_run_is_extended(settings):
    """On the host, where the updates on a rollout are made during the next one. Compiled runs are tested below."""
    config = TrainConfig("CartPole-v1", settings)
    twice = config.extended(600).extended(640)
    run = finished(Training(config))
    for longer in (config.extended(600), twice):
        part = run.replay_part()
        run = finished(Training(longer, run.arrays(), [] if part is None else [part]))
    assert run.step == 640
    same(everything(run), everything(finished(Training(twice))))
    if isinstance(settings, PQNConfig):  # every rollout has been learned from exactly once
        counts = [array for name, array in run.arrays().items() if name.endswith("count")]
        assert counts and all(int(count) == 16 * 2 for count in counts)


@pytest.mark.parametrize("settings", [FEW, FEW_DQN], ids=["pqn", "dqn"])
def test_schedules_stay_at_their_final_values_in_an_extension(settings):
    made = make_algorithm(TrainConfig("FrozenLake-v1", settings).extended(4000))
    assert float(made.epsilon(np.int32(3999))) == pytest.approx(settings.final_epsilon)
    assert made.config.total_steps == 400  # the learning rate has fallen by then


def test_a_finished_run_is_extended_in_its_folder(tmp_path):
    folder = tmp_path / "run"
    settings = dict(algorithm="dqn", seed=3, **{f.name: getattr(FEW_DQN, f.name) for f in fields(FEW_DQN)})
    train("FrozenLake-v1", folder=folder, **settings)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for steps, message in (
        (399, "steps is 399, but the run is planned for 400 steps"),
        (2.5, "steps is 2.5, expected"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            resume(folder, steps=steps)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    agent = resume(str(folder), steps=600)
    run = RunFolder(folder)
    assert run.config() == TrainConfig("FrozenLake-v1", FEW_DQN, seed=3).extended(600)
    assert run.read().step == 600 and run.last_replay_step == 150
    same({"q": resume(folder).q(np.arange(16))}, {"q": agent.q(np.arange(16))})  # complete: nothing is trained
    same({"q": train("FrozenLake-v1", folder=folder, **settings).q(np.arange(16))}, {"q": agent.q(np.arange(16))})
    whole = finished(Training(run.config()))
    same(whole.arrays(), run.read().arrays)
    with pytest.raises(ValueError, match=r"its steps is 400, not 600\. .* extend the run: lz\.learn\.resume"):
        train("FrozenLake-v1", folder=folder, **(settings | {"steps": 600}))


def test_a_run_that_was_killed_just_after_it_was_extended_continues(tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = TrainConfig("FrozenLake-v1", FEW)
    run_training(config, folder=folder)
    folder.extend(config.extended(600))  # but no step was made
    resume(folder.path)
    same(folder.read().arrays, finished(Training(config.extended(600))).arrays())


# -- environments and default policies that are given in Python ------------------------------------------------------

ECHO = dict(algorithm="pqn", eta=0.1, steps=128, n_envs=4, rollout=8, minibatches=2, hidden=(8,))


def test_an_environment_from_a_factory_is_given_again(tmp_path):
    folder = tmp_path / "run"
    agent = train(EchoEnv, default_policy=4, folder=folder, **ECHO)
    with pytest.raises(ValueError, match=r"the environment of this run was given in Python: give it again, as env= of"):
        load(folder)
    with pytest.raises(ValueError, match=r"was given in Python: give it again, as env="):
        resume(folder, steps=256)
    assert RunFolder(folder).config().extended_to == ()
    with pytest.raises(TypeError, match="env is <.*EchoEnv.*>, expected an id or a factory"):
        load(folder, env=EchoEnv())
    seen = np.zeros((1, 3))
    loaded = load(folder, env=EchoEnv)
    np.testing.assert_array_equal(loaded.lazy_gap(seen), agent.lazy_gap(seen))
    assert loaded.evaluate(episodes=2).steps.tolist() == [[5.0, 5.0]]
    resume(folder, env=EchoEnv, steps=256)
    train(EchoEnv, default_policy=4, folder=folder, **ECHO)  # the same run, as far as it can be known
    assert RunFolder(folder).read().step == 256
    other = tmp_path / "other"  # a network that was trained in a factory's environment can be a default policy
    train(EchoEnv, default_policy=folder, folder=other, **ECHO)
    assert load(other, env=EchoEnv).evaluate(episodes=2).steps.sum() == 10


def test_what_is_no_environment_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / "run"
    for given, message in (
        (dict(env=EchoEnv()), r"env is <.*EchoEnv.*>, expected an id or a factory: .* lambda: gym\.make"),
        (dict(env=None), "env is None, expected an id or a factory"),
        (dict(env=EchoEnv, default_policy=None), "default_policy is None, expected a default policy"),
        (dict(env=EchoEnv, default_policy=True), "default_policy is True, expected 'uniform'"),
        (dict(env=EchoEnv, env_kwargs={"n": 2}), "env_kwargs is {'n': 2}, but env is a factory"),
        (
            dict(env="CartPole-v1", env_kwargs={"wind": 1}),
            "env is 'CartPole-v1' with {'wind': 1}, which cannot be made",
        ),
        (dict(env="Nowhere-v3"), "env is 'Nowhere-v3'.*module:Id-v0"),
        (dict(env=EchoEnv, default_policy=1), "default_policy is '1', expected .* an action from 2 to 4"),
        (dict(env=EchoEnv, checkpoint_seconds="20"), "checkpoint_seconds is '20', expected a number"),
        (dict(env=EchoEnv, seed="x"), "seed is 'x', expected an integer"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            train(**{"folder": folder, **ECHO, **given})
    with pytest.raises(TypeError, match="folder is 3, expected a path"):
        train(EchoEnv, folder=3, **ECHO)
    assert not folder.exists()


def test_settings_are_checked_before_the_environment_is_made():
    """Its rewards are measured in 1,000 steps, which may be slow."""
    for wrong in (dict(steps="x"), dict(eta=float("nan")), dict(seed=-1), dict(algorithm="sarsa"), dict(folder=3)):
        (name,) = wrong
        with pytest.raises((TypeError, ValueError), match=f"{name} is "):
            train(lambda: pytest.fail("the environment was made"), **wrong)


def test_keyword_arguments_of_an_environment_are_part_of_the_run(tmp_path):
    given = dict(
        algorithm="pqn",
        env_kwargs={"is_slippery": False},
        folder=tmp_path / "run",
        steps=128,
        n_envs=4,
        rollout=8,
        hidden=(8,),
    )
    train("FrozenLake-v1", **given)
    env = load(tmp_path / "run").algorithm.env  # from its first state, "down" leads to state 4
    after = {int(env.step(np.array([0, 0]), 1, jax.random.key(seed))[0][0]) for seed in range(8)}
    assert after == {4}
    with pytest.raises(ValueError, match=r"its env_kwargs is {'is_slippery': False}, not {}"):
        train("FrozenLake-v1", **(given | {"env_kwargs": None}))


def test_a_function_by_name_is_imported_only_for_a_run_that_is_trusted(tmp_path, monkeypatch):
    (tmp_path / "trusted_controller.py").write_text("def lean(observation):\n    return 2 + (observation[1] > 2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder, name = tmp_path / "run", "trusted_controller:lean"
    agent = train("lazymdp-tests/Echo-v0", default_policy=name, folder=folder, **ECHO)
    monkeypatch.delitem(sys.modules, "trusted_controller")
    for call in (load, resume):
        said = rf"function {name}, and to import it runs code.*: lz.learn.{call.__name__}\('.*run', trust=True\)"
        with pytest.raises(Untrusted, match=said):
            call(folder)
    assert "trusted_controller" not in sys.modules
    seen = np.array([[2.0, 1.0, 0.0], [2.0, 3.0, 0.0]])
    np.testing.assert_array_equal(load(folder, trust=True).lazy_gap(seen), agent.lazy_gap(seen))
    assert load(folder, default_policy="uniform").eta == 0.1  # nothing to import
    resume(folder, steps=160, trust=True)
    with pytest.raises(ValueError, match="default_policy is 'noop', but .* is a run with default_policy"):
        resume(folder, default_policy="noop")


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
    settings = dict(algorithm="pqn", steps=2000, n_envs=16, rollout=8, hidden=(16,), eta=5.0)
    train("FrozenLake-v1", on_report=lambda _, metrics: rows.extend(metrics), **settings)
    assert {row.eta for row in rows} == {5.0}


def test_progress_and_settings_are_shown_if_wanted(capsys):
    run_training(TrainConfig("FrozenLake-v1", SMALL), show_progress=True)
    out, shown = capsys.readouterr()
    first = shown.splitlines()[0]
    assert first.startswith(f"pqn on FrozenLake-v1: steps {SMALL.steps:,}, eta 0.005 to 0.5, ")
    assert all((f" {field.name} " in first) is (getattr(SMALL, field.name) is not None) for field in fields(SMALL))
    assert first.endswith(", default_policy uniform, seed 0")
    assert not out and re.search(r"[\d,]+ steps/s, eta 0: return [\d.]+, control \d+%", " ".join(shown.split()))


def test_train_takes_settings_and_refuses_unknown_ones():
    agent = train("FrozenLake-v1", algorithm="dqn", default_policy=2, eta=0.3, steps=256, n_envs=4, rollout=32,
                  learning_starts=100, hidden=(8,))  # fmt: skip
    assert agent.eta == 0.3 and agent.algorithm.config.hidden == (8,)
    np.testing.assert_array_equal(agent.algorithm.default_policy(np.eye(16), np.zeros(16, int)), np.eye(4)[[2] * 16])
    with pytest.raises(TypeError, match="dqn has no setting 'learner'"):
        train("FrozenLake-v1", learner="dqn")
    with pytest.raises(TypeError, match="env is 3, expected an id or a factory"):
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
    with pytest.raises(
        EnvironmentFailed, match=r"Nan-v0, environment 0 of 16 .*, step 1 .* it returned the reward nan"
    ):
        run.advance()
    run.close()


@pytest.mark.parametrize("settings", [replace(SMALL, eta=0.1), DQN_SMALL], ids=["pqn", "dqn"])
def test_the_best_checkpoint_does_not_depend_on_the_clock_or_on_interruptions(tmp_path, settings):
    config, made, stopped = TrainConfig("FrozenLake-v1", replace(settings, steps=2560)), {}, iter(range(10**6))
    for name, seconds in (("often", 1e-6), ("seldom", 1e6)):
        made[name] = RunFolder(tmp_path / name)
        run_training(config, folder=made[name], checkpoint_seconds=seconds, report_seconds=seconds)
    made["interrupted"] = RunFolder(tmp_path / "interrupted")
    with pytest.raises(KeyboardInterrupt):
        run_training(config, folder=made["interrupted"], stop=lambda: next(stopped) == 6)
    run_training(config, folder=made["interrupted"])
    first = made["often"].read("best")
    assert first.quality is not None and first.step < config.total_steps
    for folder in made.values():
        found = folder.read("best")
        assert (found.step, found.quality) == (first.step, first.quality)
        same(found.arrays, first.arrays)


def test_the_quality_is_that_of_the_episodes_in_a_window():
    run = Training(TrainConfig("FrozenLake-v1", SMALL))  # 156 iterations: a window ends after every third
    original, seen, means = run._loop.episodes, [], {}

    def episodes():
        seen.append(original())
        return seen[-1]

    run._loop.episodes, reported = episodes, np.array(SMALL.reported_etas)
    for iteration in range(1, 31):
        run.advance()
        if iteration % 2:
            run.report()  # makes no difference
        assert run.quality is None or iteration % 3 == 0
        if iteration % 3 == 0:
            _, eta, returns, _, controls = np.concatenate(seen, axis=1)
            if eta.size >= ENOUGH_EPISODES:
                price = reported[np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(reported + 1e-3)).argmin(axis=1)]
                means |= {one: (returns - eta * controls)[price == one].mean() for one in np.unique(price)}
                seen.clear()
                if len(means) == len(reported):
                    assert run.quality == pytest.approx(np.mean(list(means.values())))
    assert len(means) == len(reported)


def test_a_dial_on_top_of_a_rule_is_evaluated_at_every_price_and_beside_the_rule():
    rows = expert_rules.make_job(expert_rules.Config(share=0.005, episodes=3), "lean_1")
    assert set(rows["game"]) == {"lean"} and set(rows["seed"]) == {1} and set(rows["steps"]) == {500}
    assert rows["eta"][0] == 0.0 and rows["eta"][-2] == 5.0 and np.isinf(rows["eta"][-1])
    assert rows["control_rate"][-1] == 0.0 and 20.0 < rows["mean_return"][-1] < 80.0
