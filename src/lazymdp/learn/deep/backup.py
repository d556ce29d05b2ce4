"""The backup of a lazy-MDP, the operator T of Sec. 4.3, and the two forms in which a network can represent its values.

`T Q(s, a) = r - eta + gamma E max( max_a' Q(s', a'), E_default Q(s', .) + eta )`

`Q` is the value of taking control, which includes the price paid now. The paper omits the second term of the maximum:
`Q(s', lazy)` is not an entry of `Q` but follows from it (Prop. 2).

* **structured**: A outputs, the values of taking control. The lazy value is derived from them. A step trains the
  output of the executed action, whether the agent or the default policy chose it.
* **augmented**, the paper's form: A + 1 outputs, the lazy value last. A step trains the output of the agent's choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jax import Array


def lazy_value(best: Any, lazy: Any) -> Any:
    """Returns the value of a state, the better of taking control and being lazy: `max(best, lazy)`.

    Works on numbers, NumPy arrays and JAX arrays alike. The compiled loop of the tabular learner stores this
    value for each state instead of calling this function; a test compares the two step by step.

    Args:
        best: `max_a Q(s, a)`, the value of taking control.
        lazy: Value of being lazy, `E_default Q(s, .) + eta`.
    """
    return best * (best > lazy) + lazy * (best <= lazy)


def lazy_backup(q_next: Any, default_probabilities: Any, reward: Any, discount: Any, eta: Any) -> Any:
    """Returns the target for the value of the executed action, whether the agent or the default policy chose it.

    Args:
        q_next: `[..., A]` values of taking control in the next state.
        default_probabilities: `[..., A]` probabilities of the default policy in the next state.
        reward: `[...]` reward of the step.
        discount: `[...]` gamma, or 0 where the episode has terminated.
        eta: `[...]` price of a step of control.
    """
    value = lazy_value(q_next.max(axis=-1), (q_next * default_probabilities).sum(axis=-1) + eta)
    return reward - eta + discount * value


class Form(Protocol):
    """How a network represents the values of a lazy-MDP."""

    extra_outputs: int
    """Number of outputs in addition to one per action."""

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """Returns the `[..., A]` values of taking control and the `[...]` value of being lazy."""

    def taught(self, choice: Array, executed: Array) -> Array:
        """Returns the index of the output that a step trains, given the choice (A is lazy) and the executed action."""

    def paid(self, eta: Array, lazy: Array) -> Array:
        """Returns the price included in the value of the trained output; `lazy` is whether the agent was lazy."""


class Structured:
    """A outputs, from which the lazy value is derived."""

    extra_outputs = 0

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """Returns the outputs, and their mean under the default policy plus the price that is saved."""
        return outputs, (outputs * default_probabilities).sum(-1) + eta

    def taught(self, choice: Array, executed: Array) -> Array:
        """Returns the executed action."""
        return executed

    def paid(self, eta: Array, lazy: Array) -> Array:
        """Returns the price, because every output is a value of taking control."""
        return eta


class Augmented:
    """A + 1 outputs, the lazy value last."""

    extra_outputs = 1

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """Returns the first A outputs, and the last one."""
        return outputs[..., :-1], outputs[..., -1]

    def taught(self, choice: Array, executed: Array) -> Array:
        """Returns the choice."""
        return choice

    def paid(self, eta: Array, lazy: Array) -> Array:
        """Returns the price where the agent took control, and 0 where it was lazy."""
        return eta * (1.0 - lazy)


FORMS: dict[str, Form] = {"structured": Structured(), "augmented": Augmented()}
"""Forms by name."""
