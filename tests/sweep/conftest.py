"""Small studies, and settings of JAX for the processes that execute runs."""

import textwrap

import jax_settings  # noqa: F401
import pytest

SMALL = """
environments = ["FrozenLake-v1"]
algorithms = ["pqn"]
prices = [0.01]
seeds = 2
steps = 2048

[settings]
hidden = [8]
n_envs = 4
rollout = 8
minibatches = 2
reward_scale = 1.0

[evaluation]
prices = [0, 0.1]
episodes = 3
max_steps = 30
"""


@pytest.fixture
def write_study(tmp_path):
    """A function that writes a study file and returns its path; by default a small study that can be run."""

    def write(text=SMALL, more=""):
        path = tmp_path / "study.toml"
        path.write_text(textwrap.dedent(text) + textwrap.dedent(more))
        return path

    return write
