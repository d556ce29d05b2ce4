"""The backup of a lazy-MDP, the operator T of Sec. 4.3, and the two forms in which a network can represent its values.

`T Q(s, a) = r - eta + gamma E max( max_a' Q(s', a'), E_default Q(s', .) + eta )`

`Q` is the value of taking control, which includes the price paid now. The paper omits the second term of the maximum:
`Q(s', lazy)` is not an entry of `Q` but follows from it (Prop. 2).

* **structured**: A outputs, the values of taking control. The lazy value is derived, and a step teaches the action that
  was executed, whoever chose it.
* **augmented**, the paper's form: A + 1 outputs, the lazy value last. A step teaches the choice that was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jax import Array


def lazy_value(best: Any, lazy: Any) -> Any:
    """Value of a state: the better of taking control and being lazy, `max(best, lazy)`.

    Works on numbers, NumPy arrays and JAX arrays alike. The tabular learner's compiled loop keeps this value for each
    state instead of calling this function; a test compares the two step by step.

    Args:
        best: `max_a Q(s, a)`, the value of taking control.
        lazy: Value of being lazy, `E_default Q(s, .) + eta`.
    """
    return best * (best > lazy) + lazy * (best <= lazy)


def lazy_backup(q_next: Any, default_probabilities: Any, reward: Any, discount: Any, eta: Any) -> Any:
    """Target for the value of the executed action, whoever chose it.

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
    """Outputs beside one for each action."""

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """`[..., A]` values of taking control and `[...]` value of being lazy, from the network's outputs."""

    def taught(self, choice: Array, executed: Array) -> Array:
        """Index of the output that a step teaches, given the choice (A is lazy) and the executed action."""

    def paid(self, eta: Array, lazy: Array) -> Array:
        """Price contained in the value of the taught output; `lazy` says whether the choice was to be lazy."""


class Structured:
    """A outputs; the lazy value is derived."""

    extra_outputs = 0

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """The outputs, and their mean under the default policy plus the price that is not paid."""
        return outputs, (outputs * default_probabilities).sum(-1) + eta

    def taught(self, choice: Array, executed: Array) -> Array:
        """The executed action."""
        return executed

    def paid(self, eta: Array, lazy: Array) -> Array:
        """Always the price: every output is a value of taking control."""
        return eta


class Augmented:
    """A + 1 outputs, the lazy value last."""

    extra_outputs = 1

    def values(self, outputs: Array, default_probabilities: Array, eta: Array) -> tuple[Array, Array]:
        """The first A outputs, and the last."""
        return outputs[..., :-1], outputs[..., -1]

    def taught(self, choice: Array, executed: Array) -> Array:
        """The choice."""
        return choice

    def paid(self, eta: Array, lazy: Array) -> Array:
        """The price, unless the choice was to be lazy."""
        return eta * (1.0 - lazy)


FORMS: dict[str, Form] = {"structured": Structured(), "augmented": Augmented()}
"""Forms by name."""
