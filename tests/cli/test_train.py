"""`lazymdp train` as far as it needs no JAX: its help, its errors. Tests that train are in `tests/learn/deep`."""

import subprocess
import sys
from dataclasses import fields

import pytest

from lazymdp.cli.main import main
from lazymdp.learn.deep.config import DQNConfig, PQNConfig


def test_the_help_explains_every_setting_of_both_algorithms(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert ended.value.code == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for config in (PQNConfig, DQNConfig):
        for field in fields(config):
            option = f"--{field.name.strip('_').replace('_', '-')} "
            assert option in words, option
    assert "(default: 8 for control, 128 for MinAtar and Atari)" in words  # --n-envs
    assert "(default: 200000 for control, 3000000 for MinAtar, 50000000 for Atari)" in words  # --steps
    assert "(pqn only; default: 0.65)" in words and "(dqn only; default: 64 for control, 32 for MinAtar" in words
    assert "(default: measured for control, 1 for MinAtar and Atari)" in words  # --reward-scale
    assert "(dqn only)" in words  # --warm-start
    assert "Two numbers are a range, which makes the agent a dial" in words


def test_without_jax_the_commands_name_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from lazymdp.cli.main import main\n"
        f"sys.exit(main(['train', 'FrozenLake-v1', '-o', {str(tmp_path / 'run')!r}]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 2 and "pip install 'lazymdp[deep]'" in " ".join(found.stderr.split())
    assert not (tmp_path / "run").exists()
