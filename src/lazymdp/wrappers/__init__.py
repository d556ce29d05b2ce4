"""Gymnasium wrappers that add the lazy action to an environment."""

from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

__all__ = ["LazyAction", "LazyVectorAction"]
