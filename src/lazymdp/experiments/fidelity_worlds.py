"""The models, agents and importance measures that the experiment `fidelity-truth` compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.exact import policies
from lazymdp.exact.path import eta_path
from lazymdp.exact.solve import solve
from lazymdp.experiments.paper_worlds import GAMMA
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP
from lazymdp.measure.control_removal import visit_frequency
from lazymdp.measure.importance import action_gap, importance_advice

WORLDS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "Rivers & Bridges": RiversAndBridges,
    "Key-Door-Treasure": KeyDoorTreasure,
    "FrozenLake 4x4": lambda: gym.make("FrozenLake-v1"),
    "FrozenLake 8x8": lambda: gym.make("FrozenLake8x8-v1"),
    "Taxi": lambda: gym.make("Taxi-v4"),
}
RANDOM_MODELS = "random models"

MEASURES = {
    "lazy_gap": "lazy-gap",
    "critical_eta": "critical eta",
    "action_gap": "action-gap",
    "importance_advice": "importance advice, HIGHLIGHTS",
    "negative_entropy": "policy entropy, negative",
    "value": "value",
    "mask": "mask, learned",
    "mask_optimum": "mask, optimum",
    "visits": "visit frequency",
    "lazy_gap_visits": "lazy-gap times visit frequency",
    "random": "random",
}
"""Measures by name, with their labels. Importance advice and HIGHLIGHTS are the same number, max - min of q. Masks
are learned in every world, but not in random models. The last three are references: the visit frequency and the product
need the model or many episodes."""
OF_VALUES = tuple(MEASURES)[:6]
"""Measures that need nothing but the action values of the state (and critical eta, those at every price)."""


def measures_of(world: str) -> list[str]:
    """Return the measures of a world, or of the random models."""
    return [name for name in MEASURES if (name, world) != ("mask", RANDOM_MODELS)]


class Optimum(NamedTuple):
    """The optimum of a model, and what the measures say.

    Attributes:
        policy: `[S, A]` optimal base policy; actions that tie share their probability.
        default_policy: `[S, A]` uniform.
        measures: For every measure but "random": `[S]` importance; larger is more important. Of masks: `[N, S]`.
    """

    policy: NDArray[np.float64]
    default_policy: NDArray[np.float64]
    measures: dict[str, NDArray[np.float64]]


def from_everywhere(mdp: MDP) -> MDP:
    """Return the same model with a uniform start distribution, so that every state is visited."""
    return MDP(mdp.transitions, mdp.rewards, mdp.gamma, absorbing=mdp.absorbing)


def model(name: str) -> MDP:
    """Return the model of a world."""
    return MDP.from_gymnasium(WORLDS[name](), GAMMA)


def random_model(rng: np.random.Generator, n_states: int, n_actions: int, successors: int, gamma: float) -> MDP:
    """Return a random model in the style of Garnet problems.

    Every action leads to a few random states with Dirichlet probabilities. Rewards are normal. The last state is
    absorbing, and episodes start in state 0.
    """
    transitions = np.zeros((n_states, n_actions, n_states))
    for state in range(n_states - 1):
        for action in range(n_actions):
            reached = rng.choice(n_states, successors, replace=False)
            transitions[state, action, reached] = rng.dirichlet(np.ones(successors))
    transitions[-1, :, -1] = 1.0
    rewards = rng.normal(size=(n_states, n_actions))
    rewards[-1] = 0.0
    return MDP(transitions, rewards, gamma, start=0)


def optimum(mdp: MDP) -> Optimum:
    """Solve a model with a uniform default policy, and compute every measure at the base optimum."""
    default_policy, policy = policies.uniform(mdp), policies.optimal(mdp)
    base = solve(LazyMDP(mdp, default_policy, 0.0))
    measures = {
        "lazy_gap": base.lazy_gap,
        "critical_eta": eta_path(mdp, default_policy).critical_eta,
        "action_gap": action_gap(base.q),
        "importance_advice": importance_advice(base.q),
        "negative_entropy": negative_entropy(base.q, ~mdp.absorbing),
        "value": base.value,
    }
    return with_visits(Optimum(policy, default_policy, measures), mdp)


def with_visits(best: Optimum, mdp: MDP) -> Optimum:
    """Return an optimum with the measures that depend on the start distribution computed for that of `mdp`."""
    visits = visit_frequency(mdp, best.policy)
    of_start = {"visits": visits, "lazy_gap_visits": best.measures["lazy_gap"] * visits}
    return best._replace(measures=best.measures | of_start)


def negative_entropy(q: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return `[S]` minus the entropy of the softmax of `q [S, A]`.

    The temperature is the standard deviation of the advantages `q - max q` over all states that are not absorbing and
    all actions, so the measure does not depend on the unit of the rewards.
    """
    advantage = q - q.max(axis=1, keepdims=True)
    temperature = float(advantage[alive].std()) or 1.0
    logits = advantage / temperature
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.einsum("sa,sa->s", np.exp(log_p), log_p)


class CartPoleRegulator:
    """A linear-quadratic regulator of CartPole that pushes left or right, with the action values of its cost-to-go.

    The dynamics are those of Gymnasium's CartPole-v1, linearized at the upright position. The cost of a step is
    `x'x + u'u / 1000` in Gymnasium's units, with the force `u` in units of its 10 newtons.
    """

    def __init__(self) -> None:
        gravity, cart, pole, half, tau, force = 9.8, 1.0, 0.1, 0.5, 0.02, 10.0
        total = cart + pole
        length = half * (4.0 / 3.0 - pole / total)
        # Accelerations of the pole and the cart at small angles.
        angular = np.array([0.0, 0.0, gravity / length, 0.0]), -force / total / length
        linear = -pole * half / total * angular[0], force / total - pole * half / total * angular[1]
        self.a = np.eye(4) + tau * np.array([[0, 1, 0, 0], linear[0], [0, 0, 0, 1], angular[0]])
        self.b = tau * np.array([0.0, linear[1], 0.0, angular[1]])
        self.cost = scipy.linalg.solve_discrete_are(self.a, self.b[:, None], np.eye(4), np.array([[1e-3]]))

    def q(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Return `[N, 2]` values of pushing left and right: minus the cost-to-go after the push."""
        moved = np.asarray(observations, dtype=float) @ self.a.T
        following = np.stack([moved - self.b, moved + self.b], axis=1)
        return -np.einsum("nai,ij,naj->na", following, self.cost, following)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Return `[N]` actions."""
        return self.q(observations).argmax(axis=1)

    def lazy_gap(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Return `[N]` lazy-gaps over random pushes. With two actions the action-gap and the advice are twice this."""
        q = self.q(observations)
        return q.max(axis=1) - q.mean(axis=1)
