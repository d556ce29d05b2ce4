"""Deep agents: an algorithm, a form, a price and a default policy, chosen independently of each other. Needs JAX."""
