"""Small studies, an S3 server, and settings of JAX for the processes that execute runs."""

import os
import textwrap

import jax_settings  # noqa: F401
import pytest

MOTO = "pip install 'moto[s3,server]' s3fs"
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


@pytest.fixture(scope="session")
def bucket():
    """The address of an empty bucket on an S3 server in this process."""
    server = pytest.importorskip("moto.server", reason=MOTO)
    boto3 = pytest.importorskip("boto3", reason=MOTO)
    pytest.importorskip("s3fs", reason=MOTO)
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    given = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
             "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    boto3.client("s3").create_bucket(Bucket="studies")
    yield "s3://studies"
    running.stop()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
