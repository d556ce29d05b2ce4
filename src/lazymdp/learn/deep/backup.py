"""The one backup of every structured learner: the operator T of Sec. 4.3, with the value of being lazy put in.

`T Q(s, a) = r - eta + gamma E max( max_a' Q(s', a'), E_default Q(s', .) + eta )`

`Q` is the value of taking control, so that it includes the price paid now. The paper leaves the second term of the
maximum out: `Q(s', lazy)` is no entry of `Q` but follows from it (Prop. 2).
"""

from __future__ import annotations

from typing import Any


def lazy_value(best: Any, default_mean: Any, eta: Any) -> Any:
    """What a state is worth: the better of taking control and being lazy, `max(best, default_mean + eta)`.

    Written so that numbers, NumPy arrays and JAX arrays can all go through it. The tabular learner's compiled loop
    keeps this value for each state as it goes and does not call it; a test holds it to `lazy_backup` step by step.

    Args:
        best: `max_a Q(s, a)`.
        default_mean: `E_default Q(s, .)`.
        eta: Price of a step of control.
    """
    lazy = default_mean + eta
    return best * (best > lazy) + lazy * (best <= lazy)


def lazy_backup(q_next: Any, default_probabilities: Any, reward: Any, discount: Any, eta: Any) -> Any:
    """Target of the executed action's value, whoever chose the action.

    Args:
        q_next: `[..., A]` values of taking control in the next state.
        default_probabilities: `[..., A]` of the default policy there.
        reward: `[...]` of the step.
        discount: `[...]` gamma, or 0 where the episode has ended.
        eta: `[...]` price of a step of control.
    """
    value = lazy_value(q_next.max(axis=-1), (q_next * default_probabilities).sum(axis=-1), eta)
    return reward - eta + discount * value
