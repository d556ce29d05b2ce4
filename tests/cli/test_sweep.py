"""`lazymdp sweep run | status | plot`: the plan, a whole sweep, its status and its picture."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lazymdp.cli.main import main
from lazymdp.cli.output import OUT
from lazymdp.cli.sweep import _display
from lazymdp.sweep.sweep_status import Status

pytest.importorskip("pyarrow")

TEXT = """
environments = ["FrozenLake-v1"]
algorithms = ["pqn"]
prices = [0.01, [0.01, 0.1]]
seeds = 2
steps = {steps}

[settings]
hidden = [8]
n_envs = 4
rollout = 8
minibatches = 2
reward_scale = 1.0

[evaluation]
episodes = 3
max_steps = 30
"""


def study(tmp_path, steps=2048):
    path = tmp_path / "study.toml"
    path.write_text(TEXT.format(steps=steps))
    return str(path)


def test_the_plan_is_printed_and_nothing_is_written(tmp_path, capsys):
    pytest.importorskip("jax")
    command = ["sweep", "run", study(tmp_path), "-o", str(tmp_path / "out"), "--price-per-hour", "3600"]
    assert main([*command, "--workers", "2", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["runs"] == plan["to_do"] == plan["jobs"] == len(plan["order"]) == 4 and plan["workers"] == 2
    assert plan["cost"] == pytest.approx(plan["seconds"]) and plan["wall_seconds"] == pytest.approx(plan["seconds"] / 2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("go", [[], ["--json"], ["--go"]])
def test_a_study_that_cannot_be_run_is_refused_and_nothing_is_written(tmp_path, capsys, go):
    pytest.importorskip("jax")
    path = study(tmp_path)
    (tmp_path / "study.toml").write_text((tmp_path / "study.toml").read_text().replace("FrozenLake-v1", "Nowhere-v1"))
    assert main(["sweep", "run", path, "-o", str(tmp_path / "out"), *go]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "study.toml: pqn on Nowhere-v1 with the default policy uniform: env is 'Nowhere-v1'" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("minatar", ["--device", "gpu", "--price-per-hour", "4", "--workers", "1"]),
        ("atari", ["--device", "gpu", "--price-per-hour", "4", "--workers", "16"]),
    ],
)
def test_the_guide_has_the_plans_that_are_printed(name, options, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("lazymdp.sweep.plan.check_runs", lambda study: None)  # takes a minute, and prints nothing
    root = Path(__file__).parents[2]
    command = ["sweep", "run", f"studies/{name}.toml", "-o", name, *options]
    block = (root / "docs" / "guides" / "sweep.md").read_text().split(f"$ lazymdp {' '.join(command)}\n")[1]
    monkeypatch.chdir(tmp_path)  # where no folder of a sweep lies
    command[2] = str(root / command[2])
    assert main(command) == 0
    assert capsys.readouterr().out == block.split("```")[0]


def test_what_others_print_during_a_sweep_does_not_mix_with_its_result(tmp_path, capsys, monkeypatch):
    def sweep(*_, **__):
        print("(raylet) The node has been marked dead")
        return SimpleNamespace(results={}, set_aside={}, stopped=False, table_error="")

    monkeypatch.setattr("lazymdp.sweep.run_sweep.run_sweep", sweep)
    assert main(["sweep", "run", study(tmp_path), "-o", str(tmp_path / "out"), "--go", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"done": 0, "set_aside": {}, "stopped": False}
    assert "marked dead" in said.err


def test_bad_arguments_and_bad_folders_are_refused_in_one_line(tmp_path, capsys):
    for command, message in (
        (["run", "nothing.toml", "-o", "out"], "there is no study file nothing.toml"),
        (["run", study(tmp_path), "-o", "out", "--workers", "0"], "workers is 0, expected at least 1"),
        (["run", study(tmp_path), "-o", "out", "--gpus", "1"], "gpus is 1, but only a cluster assigns GPUs to runs"),
        (["run", study(tmp_path), "-o", ""], "the folder of the sweep is '', expected a local folder"),
        (
            ["run", study(tmp_path), "-o", "out", "--hang-seconds", "0"],
            "hang_seconds is 0.0, expected a number above 0",
        ),
        (["status", str(tmp_path)], "is not the folder of a sweep"),
        (["plot", str(tmp_path)], "has no results.parquet yet"),
        (["plot", str(tmp_path), "-o", "sweep.txt"], "expected a file that ends in .png"),
    ):
        assert main(["sweep", *command]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.sweep
def test_a_sweep_that_is_interrupted_continues_and_is_plotted(tmp_path, capsys, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    path = Path(study(tmp_path, 60_000))
    path.write_text(path.read_text().replace("prices = [0.01, [0.01, 0.1]]", "prices = [[0.01, 0.1]]"))
    command = ["sweep", "run", str(path), "-o", "out", "--workers", "1", "--go"]  # one run waits for the other
    with subprocess.Popen(
        [sys.executable, "-m", "lazymdp", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"COLUMNS": "200"},
    ) as running:  # fmt: skip
        while not list((tmp_path / "out").glob("runs/*/training/config.json")):
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        time.sleep(1.0)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "Stopping all runs with a checkpoint" in said and "Run the same command again to continue" in said
    assert main(["sweep", "status", "out", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["total"] == 2 and before["done"] < 2 and not before["set_aside"]
    assert main(command) == 0
    assert "2 of 2 runs are done, 0 set aside." in capsys.readouterr().out
    assert main(["sweep", "status", "out"]) == 0
    assert "2 of 2 done, 0 running, 0 waiting, 0 set aside." in capsys.readouterr().out
    assert main(["sweep", "plot", "out", "-o", "frontiers.svg"]) == 0
    assert (tmp_path / "frontiers.svg").stat().st_size > 1_000


HANGS = """
import gymnasium as gym, pathlib, time

class Hangs(gym.Wrapper):
    def step(self, action):
        pathlib.Path("it_hangs").touch()
        time.sleep(1000)

gym.register("Hangs-v0", lambda: Hangs(gym.make("FrozenLake-v1")))
"""


@pytest.mark.sweep
def test_a_second_ctrl_c_stops_now(tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hangs_for_test.py").write_text(HANGS)
    path = study(tmp_path)
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace("FrozenLake-v1", "hangs_for_test:Hangs-v0"))
    command = [sys.executable, "-m", "lazymdp", "sweep", "run", path, "-o", "out", "--workers", "1", "--go"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "it_hangs").exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert "Press Ctrl-C again to stop now" in "".join(running.stderr.readline() for _ in range(1))
        time.sleep(1.0)
        assert running.poll() is None  # it waits for the run, which hangs
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130 and "Interrupted" in said and time.monotonic() - began < 20.0


def test_brackets_in_the_names_of_runs_are_shown(capsys):
    given = {"run": "run [/bold]", "method": "[red]m", "env": "mod:Env[/]", "price": "0.1", "seed": 3}
    label = SimpleNamespace(**given, algorithm="dqn", default_policy="uniform")
    running = SimpleNamespace(label=label, runs=1, doing="training [/]", share=0.5)
    status = Status(2, 0, [running], [(label, "why [/]")], None)
    OUT.print(_display(status), width=200)
    said = capsys.readouterr().out
    for text in ("run [/bold]", "[red]m", "mod:Env[/]", "training [/] 50%", "run [/bold]: why [/]"):
        assert text in said
    assert "algorithm" not in said and "default" not in said


def test_the_state_says_what_the_runs_wait_for(capsys):
    OUT.print(_display(Status(2, 0, (), (), None, "No node has 1 GPU: [/]")), width=200)
    assert "2 waiting, 0 set aside. Time left: unknown.\nNo node has 1 GPU: [/]" in capsys.readouterr().out


def test_the_state_fits_into_a_narrow_terminal(capsys):
    given = {"run": "0123456789abcdef", "method": "lazy", "env": "some_module:Environment-v0", "price": "0.005 to 0.5"}
    label = SimpleNamespace(**given, seed=3, algorithm="dqn", default_policy="uniform")
    status = Status(30, 0, [], [(label, "why" * 300)] * 25, None)
    OUT.print(_display(status), width=80)
    said = capsys.readouterr().out
    assert said.count("0123456789abcdef") == 40 and "0.005 to 0.5" in said and "5 more runs are not shown" in said
    assert len(said.splitlines()) < 20 * 10  # 7 lines for a reason, and 2 for a row


def test_runs_that_differ_in_the_algorithm_or_the_default_policy_are_told_apart(capsys):
    given = {"run": "0a", "method": "lazy", "env": "Env-v0", "price": "0.1", "seed": 3}
    labels = [SimpleNamespace(**given, algorithm=algorithm, default_policy=policy)
              for algorithm, policy in (("dqn", "noop"), ("pqn", "runs/mine"))]  # fmt: skip
    running = [SimpleNamespace(label=label, runs=1, doing="training", share=0.5) for label in labels]
    OUT.print(
        _display(Status(2, 0, running, [], None)),
        width=200,
    )
    said = capsys.readouterr().out
    for text in ("default", "noop", "runs/mine", "algorithm", "dqn", "pqn"):
        assert text in said
