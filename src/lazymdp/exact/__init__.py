"""Exact answers: values, optimal policies, bounds on eta, and every eta at once."""
