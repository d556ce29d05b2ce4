"""Default policies of deep learners: every form, networks of other runs, objects of Python's."""

import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from small_runs import DQN_OPTIONS, DQN_SMALL, OPTIONS, SMALL, same

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.cli.main import main  # noqa: E402
from lazymdp.learn.deep.config import DialConfig, TrainConfig  # noqa: E402
from lazymdp.learn.deep.making import make_default, make_game  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.trainer import Training, train  # noqa: E402


def asked(form, game):
    return np.asarray(make_default(form, game)(np.zeros((2, *game.shape), np.float32), np.array([0, 1])))


def test_every_form_of_default_policy_tells_its_probabilities():
    game = make_game("CartPole-v1", 2)
    assert asked("uniform", game).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert asked("1", game).tolist() == [[0, 1], [0, 1]]
    assert asked("noop", game).tolist() == [[1, 0], [1, 0]]
    assert asked("repeat", game).tolist() == [[1, 0], [0, 1]]
    np.testing.assert_allclose(asked(lambda seen: np.tile([0.25, 0.75], (len(seen), 1)), game), [[0.25, 0.75]] * 2)
    np.testing.assert_allclose(asked(lz.Mixture("uniform", 1, 0.5), game), [[0.25, 0.75]] * 2)
    for wrong, message in (
        (lambda seen: np.zeros(len(seen), int), "has to tell their probabilities"),
        (lambda seen: np.tile([0.2, 0.2], (len(seen), 1)), r"sum to 0\.4, not 1"),
        (lambda seen: np.ones((len(seen), 3)) / 3.0, r"shape \(1, 3\)"),
        (lambda seen: seen[:, 99], "out of bounds"),
    ):
        with pytest.raises(ValueError, match=f"asked about an observation of zeros: .*{message}"):
            make_default(wrong, game)
    lake = make_game("FrozenLake-v1", 2)
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 16)
    found = make_default(rows, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    shown = []  # states by their number, as the environment shows them

    def by_number(seen):
        shown.append(seen.tolist())
        return rows[seen]

    found = make_default(by_number, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    assert shown[-1] == list(range(16))


def test_a_table_for_an_environment_serves_its_model_that_has_a_state_more():
    env = next(name for name in ("Taxi-v3", "Taxi-v4") if name in gym.registry)
    taxi = make_game(env, 1)
    assert taxi.shape == (501,)
    rows = np.random.default_rng(0).dirichlet(np.ones(6), 500)
    found = np.asarray(make_default(rows, taxi)(np.eye(501, dtype=np.float32), np.zeros(501, int)))
    np.testing.assert_allclose(found[:500], rows, rtol=1e-5)
    np.testing.assert_allclose(found[500], 1 / 6, rtol=1e-5)
    asked = np.asarray(make_default(lambda seen: rows[seen], taxi)(np.eye(501, dtype=np.float32), np.zeros(501, int)))
    np.testing.assert_allclose(asked[:500], rows, rtol=1e-5)


def test_a_default_of_pythons_acts_as_the_same_one_compiled():
    settings = DialConfig(steps=2000, n_envs=4, rollout=8, hidden=(16,))
    config = TrainConfig("FrozenLake-v1", settings=settings)
    compiled, called = Training(config), Training(config, default=lambda seen: np.full((len(seen), 4), 0.25))
    for run in (compiled, called):
        run.advance()
    for name, array in compiled.arrays().items():
        np.testing.assert_allclose(array, called.arrays()[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_over_a_default_that_answers_actions_the_papers_form_can_learn():
    config = TrainConfig("FrozenLake-v1", "2", settings=replace(DQN_SMALL, control_budget=None, structured=False))
    compiled, called = Training(config), Training(config, default=lambda seen: np.full(len(seen), 2))
    for run in (compiled, called):
        for _ in range(5):
            run.advance()
    same(compiled.arrays(), called.arrays())
    with pytest.raises(ValueError, match="it chose action 7, expected 0 to 3"):
        Training(config, default=lambda seen: np.full(len(seen), 7))
    with pytest.raises(ValueError, match=r"only the paper's form can learn over it \(structured=False\)"):
        Training(TrainConfig("FrozenLake-v1", settings=SMALL), default=lambda seen: np.full(len(seen), 2))


def test_a_run_can_be_the_default_of_another_and_start_its_network(tmp_path, capsys):
    first = tmp_path / "first"
    assert main(["train", "FrozenLake-v1", "-o", str(first), "--steps", "4000", *DQN_OPTIONS, "--structured"]) == 0
    agent, game = lz.learn.load(first), make_game("FrozenLake-v1", 2)
    seen = np.eye(16, dtype=np.float32)
    q, none = agent.q(seen), np.zeros(16, int)
    greedy = np.eye(4)[q.argmax(1)]
    np.testing.assert_allclose(make_default(str(first), game)(seen, none), greedy)
    np.testing.assert_allclose(make_default(f"{first}:epsilon=0.2", game)(seen, none), 0.8 * greedy + 0.05, rtol=1e-5)
    soft = np.exp(q / 0.5) / np.exp(q / 0.5).sum(1, keepdims=True)
    np.testing.assert_allclose(make_default(f"{first}:softmax=0.5", game)(seen, none), soft, rtol=1e-4)
    np.testing.assert_allclose(make_default(f"{first}:greedy", game)(seen, none), greedy)
    for manner in ("epsilon=2", "softmax=0", "rarely", "epsilon=x", "greedy=5", "=3", "epsilon", "softmax"):
        with pytest.raises(ValueError, match="RUN:epsilon=0.1|is no number"):
            make_default(f"{first}:{manner}", game)
    with pytest.raises(ValueError, match=r"trained on observations of shape \(16,\) with 4 actions"):
        make_default(str(first), make_game("CartPole-v1", 2))

    colon = shutil.copytree(first, tmp_path / "a:b")  # as environments of other modules are named
    np.testing.assert_allclose(make_default(str(colon), game)(seen, none), greedy)
    np.testing.assert_allclose(make_default(f"{colon}:epsilon=0.2", game)(seen, none), 0.8 * greedy + 0.05, rtol=1e-5)
    assert RunFolder(tmp_path)._kept(f"{colon}:epsilon=0.2")[0] == "./default:epsilon=0.2"
    assert RunFolder(tmp_path)._kept(str(colon))[0] == "./default"

    second = tmp_path / "second"
    options = ["--default", f"{first}:epsilon=0.1", "--warm-start", str(first), "--steps", "128"]
    options += ["--min-replay", "100", "--learning-rate", "1e-30"]
    assert main(["train", "FrozenLake-v1", "-o", str(second), *DQN_OPTIONS, *options]) == 0
    started = lz.learn.load(second)  # what it was started from, with a lazy output
    np.testing.assert_allclose(started.q(seen), q, rtol=1e-4, atol=1e-3)
    dial = tmp_path / "dial"
    assert main(["train", "FrozenLake-v1", "-o", str(dial), *OPTIONS, "--steps", "2000", "--default", str(second)]) == 0
    before = np.asarray(lz.learn.load(dial).learner.default(seen, none))
    dial.rename(tmp_path / "moved")
    shutil.rmtree(second)
    dial = tmp_path / "moved"  # has a copy of what it needs
    np.testing.assert_array_equal(lz.learn.load(dial).learner.default(seen, none), before)
    assert main(["train", "FrozenLake-v1", "-o", str(tmp_path / "x"), *DQN_OPTIONS, "--warm-start", str(dial)]) == 2
    assert "is not a run of dqn" in capsys.readouterr().err
    other = ["--warm-start", str(first), "--hidden", "8", "-o", str(tmp_path / "x")]
    assert main(["train", "FrozenLake-v1", *DQN_OPTIONS, *other]) == 2
    assert "give --network and --hidden as there (none, 16)" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert main(["evaluate", str(first), "--eta", "0.1", "--episodes", "2"]) == 0
    assert main(["evaluate", str(first), "--eta", "0.5"]) == 2
    assert "for eta 0.1 alone" in capsys.readouterr().err


def test_an_agent_is_a_default_policy_of_the_wrappers(tmp_path):
    import gymnasium as gym

    agent = train(TrainConfig("FrozenLake-v1", settings=DialConfig(steps=2000, n_envs=16, rollout=8, hidden=(16,))))
    env = lz.LazyAction(gym.make("FrozenLake-v1"), agent.as_default(), eta=0.1)
    seen, _ = env.reset(seed=0)
    *_, info = env.step(env.lazy_action)
    assert info["base_action"] == agent.q(np.eye(16, dtype=np.float32)[[seen]]).argmax()
    soft = agent.as_default(temperature=1.0).probabilities(np.arange(16), np.zeros(16, int))
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match=r"of shape \(2, 5\), expected \[N, \.\.\.\] of \(16,\)"):
        agent.as_default().probabilities(np.zeros((2, 5)), np.zeros(2, int))
