"""Any object as any argument of any public function: an answer, or an error that names the argument. Never a hang.

`test_arguments` says what is expected of single arguments. Here, every argument of every function takes every value of
a list of nuisances, so that a function without checks is found, too.
"""

import contextlib
import os
import signal
import warnings
from fractions import Fraction
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import scipy.sparse as sp

import lazymdp as lz

TRANSITIONS, REWARDS = [[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], [[0.0, 1.0], [0.0, 0.0]]
MDP = lz.MDP(TRANSITIONS, REWARDS, 0.9)
DEFAULT = lz.policies.uniform(MDP)
LAZY = lz.LazyMDP(MDP, DEFAULT, 0.1)
PATH = lz.eta_path(MDP, DEFAULT)
PLAN = PATH.for_control_count(0.3)
WORLD = lz.envs.KeyDoorTreasure()
ENV = gym.make("FrozenLake-v1", max_episode_steps=3)
WRAPPED = lz.LazyAction(ENV)
VECTOR = lz.LazyVectorAction(gym.make_vec("FrozenLake-v1", 2, vectorization_mode="sync"))
FEW = dict(episodes=3, max_steps=3, points=2, workers=1)

NUISANCES = [
    None, True, np.bool_(False), "0.5", "", "\0", b"x", np.nan, np.inf, -1, 2.5, 10**30, 2**64, 1e308, 1j, [], [[]],
    [[1], [2, 3]], ["a"], [None, None], {}, {"a": 1, "b": 2}, {"a", "b"}, object(), iter([1, 2]),
    range(3), Fraction(1, 2), Fraction(10**400), np.array(0.5), np.array(None), np.zeros((0, 2)), np.zeros((2, 2, 2)),
    np.array([np.nan, 1.0]), np.array([None, 1]), np.array([0, 5]), np.array([True, False]),
    np.datetime64("2020-01-01"), np.ma.masked_array([0.5, 0.5], [True, False]), np.eye(2).view(np.matrix),
    sp.csr_array((2, 2)), np.zeros(2, dtype=[("a", float)]), MDP, LAZY, PATH,
]  # fmt: skip


class Agent:
    """Always takes the first action."""

    def predict(self, observations, state=None, deterministic=True):
        return np.zeros(len(observations), int), None


def no_importance(observations):
    return np.zeros(len(observations))


CALLS = {
    "MDP": (lz.MDP, dict(transitions=TRANSITIONS, rewards=REWARDS, gamma=0.9, start=0, absorbing=None,
                         state_names=None, action_names=None)),
    "MDP.from_gymnasium": (lz.MDP.from_gymnasium, dict(env=ENV, gamma=0.9)),
    "MDP.load": (lz.MDP.load, dict(path="model.npz")),
    "MDP.save": (MDP.save, dict(path="model.npz")),
    "MDP.start_average": (MDP.start_average, dict(values=[0.0, 1.0])),
    "MDP.state_average": (MDP.state_average, dict(values=[0.0, 1.0])),
    "MDP.describe_state": (MDP.describe_state, dict(state=0)),
    "MDP.describe_action": (MDP.describe_action, dict(action=0)),
    "LazyMDP": (lz.LazyMDP, dict(mdp=MDP, default_policy=DEFAULT, eta=0.1)),
    "LazyMDP.with_eta": (LAZY.with_eta, dict(eta=0.1)),
    "LazyMDP.effective_policy": (LAZY.effective_policy, dict(policy_plus=[0, 0])),
    "solve": (lz.solve, dict(lazy=LAZY, tol=1e-6, method="auto", max_iterations=10, progress=None, horizon=None)),
    "evaluate": (lz.evaluate, dict(lazy=LAZY, policy_plus=[0, 0])),
    "steps_to_absorption": (lz.steps_to_absorption, dict(mdp=MDP, policy=DEFAULT)),
    "eta_max": (lz.eta_max, dict(mdp=MDP, default_policy=DEFAULT)),
    "eta_min": (lz.eta_min, dict(mdp=MDP, default_policy=DEFAULT)),
    "eta_min_theorem": (lz.eta_min_theorem, dict(mdp=MDP, default_policy=DEFAULT)),
    "eta_path": (lz.eta_path, dict(mdp=MDP, default_policy=DEFAULT, tol=None, progress=None)),
    "EtaPath.action_at": (PATH.action_at, dict(eta=0.1)),
    "EtaPath.value_at": (PATH.value_at, dict(eta=0.1)),
    "EtaPath.control_count_at": (PATH.control_count_at, dict(eta=0.1)),
    "EtaPath.control_intervals": (PATH.control_intervals, dict(state=0)),
    "EtaPath.for_control_count": (PATH.for_control_count, dict(control_count=0.3)),
    "EtaPath.for_control_rate": (PATH.for_control_rate, dict(share=0.3)),
    "EtaPath.to_csv": (PATH.to_csv, dict(path="path.csv")),
    "ControlPlan.sample_policy": (PLAN.sample_policy, dict(rng=np.random.default_rng(0))),
    "Mixture": (lz.Mixture, dict(first="uniform", second="noop", weight=0.5)),
    "lazy_gap": (lz.lazy_gap, dict(q=[[0.0, 1.0]], default_policy=[[0.5, 0.5]])),
    "action_gap": (lz.action_gap, dict(q=[[0.0, 1.0]])),
    "importance_advice": (lz.importance_advice, dict(q=[[0.0, 1.0]])),
    "lazy_frequency": (lz.lazy_frequency, dict(lazy=LAZY, policy_plus=[0, 0])),
    "uniform": (lz.policies.uniform, dict(mdp=MDP)),
    "optimal": (lz.policies.optimal, dict(mdp=MDP)),
    "second_best": (lz.policies.second_best, dict(mdp=MDP)),
    "named": (lz.policies.named, dict(mdp=MDP, name="uniform")),
    "mixture": (lz.policies.mixture, dict(policy=DEFAULT, other=DEFAULT, weight=0.5)),
    "mean_interval": (lz.measure.mean_interval, dict(samples=[1.0, 2.0], confidence=0.9, resamples=10, seed=0)),
    "iqm_interval": (lz.measure.iqm_interval, dict(samples=[1.0, 2.0], confidence=0.9, resamples=10, seed=0)),
    "skewed_mean_interval": (lz.measure.skewed_mean_interval, dict(samples=[1.0, 2.0], confidence=0.9)),
    "rank_correlation": (lz.measure.rank_correlation, dict(first=[1.0, 2.0], second=[1.0, 2.0])),
    "top_overlap": (lz.measure.top_overlap, dict(first=[1.0, 2.0], second=[1.0, 2.0], share=0.5)),
    "removal_loss": (lz.measure.removal_loss, dict(mdp=MDP, policy=DEFAULT, default_policy=DEFAULT)),
    "removal_loss_of_sets": (lz.measure.removal_loss_of_sets,
                             dict(mdp=MDP, policy=DEFAULT, default_policy=DEFAULT, sets=[[True, False]])),
    "visit_frequency": (lz.measure.visit_frequency, dict(mdp=MDP, policy=DEFAULT)),
    "fidelity": (lz.measure.fidelity,
                 dict(agent=Agent(), env="FrozenLake-v1", importance=no_importance, default_policy="uniform",
                      mode="replace", shares=[0.5], episodes=1, gamma=1.0, max_steps=2, seed=0, confidence=0.9)),
    "fidelity_score": (lz.measure.fidelity_score,
                       dict(agent=Agent(), env="FrozenLake-v1", importance=no_importance, protocol="scattered",
                            scale=1.0, share=0.3, default_policy="uniform", episodes=1, max_steps=2, seed=0,
                            confidence=0.9)),
    "q_learning": (lz.learn.q_learning,
                   dict(source=MDP, default_policy=DEFAULT, eta=0.0, gamma=0.9, alpha=0.5, alpha_power=0.0,
                        epsilon=0.1, final_epsilon=0.0, seed=0, lazy=True, form="structured", progress=None, **FEW)),
    "sarsa": (lz.learn.sarsa, dict(source=MDP, default_policy=DEFAULT, eta=0.0, seed=0, **FEW)),
    "estimate_eta_max": (lz.learn.estimate_eta_max,
                         dict(source=MDP, default_policy=DEFAULT, gamma=0.9, alpha=0.5, alpha_power=0.0, epsilon=0.9,
                              episodes=50, max_steps=30, seed=0, progress=None)),
    "estimate_eta_min": (lz.learn.estimate_eta_min,
                         dict(source=MDP, default_policy=DEFAULT, alpha=0.5, epsilon=0.9, episodes=50, seed=0)),
    "LazyAction": (lz.LazyAction, dict(env=ENV, default_policy="uniform", eta=0.1)),
    "LazyAction.set_eta": (WRAPPED.set_eta, dict(eta=0.1)),
    "LazyAction.seed_default": (WRAPPED.seed_default, dict(seed=0)),
    "LazyVectorAction": (lz.LazyVectorAction, dict(env=VECTOR.env, default_policy="uniform", eta=0.1)),
    "LazyVectorAction.set_eta": (VECTOR.set_eta, dict(eta=0.1)),
    "KeyDoorTreasure": (lz.envs.KeyDoorTreasure, dict(apple=False)),
    "PQNConfig": (lz.learn.PQNConfig,
                  dict(steps=1000, eta=0.1, n_envs=4, gamma=0.9, learning_rate=0.1, form="structured", network="mlp",
                       hidden=(3,), clip_rewards=False, minibatches=2, max_grad_norm=1.0)),
    "DQNConfig": (lz.learn.DQNConfig,
                  dict(steps=5000, eta=(0.1, 1.0), control_budget=None, buffer_size=100, max_grad_norm=None,
                       final_learning_rate=0.0, warm_start=None)),
    "explain.load": (lz.explain.load, dict(folder="nowhere")),
    "explain.rank": (lz.explain.rank, dict(recording=None)),
    "explain.strip": (partial(lz.explain.strip, path="strip.png"), dict(recording=None)),
    "explain.video": (partial(lz.explain.video, path="video.mp4"), dict(recording=None)),
    "explain.report": (partial(lz.explain.report, path="report.html"), dict(recording=None)),
    "show.world_map": (lz.show.world_map, dict(world=WORLD)),
    "show.heat_map": (lz.show.heat_map, dict(world=WORLD, values=np.zeros(len(WORLD.cells)))),
    "show.policy_map": (lz.show.policy_map, dict(world=WORLD, action=np.zeros(len(WORLD.cells), int))),
    "show.explorer": (lz.show.explorer, dict(path=PATH, title=None)),
}  # fmt: skip

OTHER_WORDS = {
    "q": ["default_policy"],  # whose shape does not fit
    "first": ["measure"], "second": ["measure"], "policy": ["policies"], "other": ["policies"], "values": ["state"],
    "name": ["the default policy"], "shares": ["share"],
    "env": ["nvironment", "gymnasium"],  # Gymnasium's own messages
    "path": ["cannot write", "No such file", "Is a directory"], "folder": ["there is no recording"],
}  # fmt: skip
"""Words by which messages name an argument otherwise."""

NOT_CALLED = {
    "ControlPlan", "DefaultPolicy", "EtaMinTheorem", "EtaPath", "Evaluation", "HorizonSolution", "LazyFrequency",
    "NotConverged", "Solution", "Fidelity", "FidelityScore", "Interval",  # results, which users do not make
    "envs", "explain", "learn", "measure", "policies", "show",  # modules
}  # fmt: skip


class Hang(Exception):
    pass


@contextlib.contextmanager
def limited(seconds):
    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_no_public_function_is_left_out():
    for public in (lz.__all__, lz.measure.__all__, lz.policies.__all__):
        assert set(public) - NOT_CALLED <= set(CALLS)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGALRM")
@pytest.mark.parametrize(
    "name, argument", [(name, argument) for name, (_, given) in CALLS.items() for argument in given]
)
def test_an_error_names_the_argument(name, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MDP.save("model.npz")
    function, given = CALLS[name]
    words = {argument.rstrip("s"), *OTHER_WORDS.get(argument, ())}
    for nuisance in NUISANCES:
        with limited(60), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                function(**(given | {argument: nuisance}))
            except (ValueError, TypeError, OSError, gym.error.Error) as error:
                assert any(word in str(error) for word in words), f"{nuisance!r}: {error}"
