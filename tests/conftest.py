"""Settings for every test: no time limit per example (compilation), and no randomness between runs."""

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("project")
