"""Tabular learning in lazy-MDPs: Q-learning and SARSA, many seeds and prices in one call."""
