"""Default policies: the policies that act when the agent is lazy."""

from lazymdp.defaults.protocol import DefaultPolicy, Mixture, make_default

__all__ = ["DefaultPolicy", "Mixture", "make_default"]
