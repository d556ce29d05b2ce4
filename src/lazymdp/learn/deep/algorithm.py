"""The interface between an algorithm and the loops that run it: pure functions of arrays.

N environments act in groups of M. A *slot* is the index of a step within an iteration, starting at 1; slot 0 is
the start of a run.
"""

from __future__ import annotations

from typing import Any, Protocol

from jax import Array

from lazymdp.learn.deep.acting import Choice, Group
from lazymdp.learn.deep.backup import Form
from lazymdp.learn.deep.compiled_defaults import CompiledDefault
from lazymdp.learn.deep.config import AlgorithmConfig
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Network, Parameters
from lazymdp.learn.deep.prices import Price

Learner = Any
"""The state of an algorithm, a NamedTuple: `parameters` is its newest network, `agent` that of the trained agent."""


class Algorithm(Protocol):
    """A deep learning algorithm: `DQN` or `PQN`.

    Attributes:
        env: Environment, compiled or on the host.
        form: Form of the network's outputs.
        default_policy: Default policy, compiled.
        network: The Q-network.
        updates_after_steps: Whether updates are made after individual steps; otherwise `end_rollout` makes all of them.
        updates_carry_over: Whether updates on a rollout are made during the next one, so that the updates on the last
            rollout remain to be made when the run ends.
    """

    env: JaxEnv | HostEnv
    form: Form
    default_policy: CompiledDefault
    network: Network
    updates_after_steps: bool
    updates_carry_over: bool

    @property
    def config(self) -> AlgorithmConfig:
        """Settings."""

    def init(self, key: Array, parameters: Parameters | None = None) -> Learner:
        """Returns a new learner, whose network starts from `parameters` if given."""

    def acting(self, learner: Learner) -> Parameters:
        """Returns the parameters of the network that chooses."""

    def epsilon(self, steps: Array) -> Array:
        """Returns the probability of a random choice after `steps` agent steps."""

    def record(
        self, learner: Learner, group: Group, iteration: Array, slot: Array, outcome: Outcome, reward: Array,
        observation: Array, eta: Array, choice: Choice,
    ) -> Learner:  # fmt: skip
        """Stores the outcome of a group's last choices, its new observations and its new choices."""

    def updates_due(self, iteration: Any, slot: Any) -> Any:
        """Returns the number of updates due after a slot."""

    def copy_due(self, iteration: Any, slot: Any) -> Any:
        """Returns whether the target network is due to be copied after a slot, even if no update is due."""

    def update(self, learner: Learner, iteration: Array, slot: Array, price: Price, key: Array, count: Any) -> Learner:
        """Makes `count` updates after a slot, and copies the target network if that is due."""

    def end_rollout(self, learner: Learner, iteration: Array, price: Price, key: Array) -> Learner:
        """Learns from a complete rollout, or prepares to do so."""
