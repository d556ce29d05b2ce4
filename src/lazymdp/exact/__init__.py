"""Exact methods for finite models: values, optimal policies, bounds on eta, and the optimum for every eta at once."""
