"""A real Ray cluster of several nodes, one of which is killed: `benchmarks/sweep.py faults` with 6 runs."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.sweep
GPU = " --num-gpus=1"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_lost_node_a_killed_process_and_a_poisoned_run_leave_the_table_of_an_undisturbed_sweep():
    pytest.importorskip("jax")
    pytest.importorskip("ray", reason="pip install 'lazymdp[ray]'")
    # The poisoned run is tried three times in each sweep, enough for a run that is hit by both kills.
    quickly = "from lazymdp.sweep import engine; engine._FIRST_WAIT, engine.RETRIES = 0.2, 2"
    code = f"{quickly}; import sweep; sweep.prepare(); sweep.faults(6, 512, 3)"
    environment = os.environ | {"SLOW_LAKE_PAUSE": "0.002"}
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, env=environment, capture_output=True, text=True, timeout=600
    )
    assert made.returncode == 0, made.stderr[-2000:]
    said = made.stdout
    assert "undisturbed, 3 processes: 5 done, 1 set aside" in said and "with faults: 5 done, 1 set aside" in said
    assert "tables equal byte for byte: yes" in said
    assert "SIGKILL to a node" in said and "SIGKILL to the process of a run" in said
    assert "RuntimeError('poisoned')" in said.split("reported: ")[1]


def test_without_ray_the_line_that_installs_it_is_named(monkeypatch):
    from lazymdp.sweep.run_sweep import Where

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'lazymdp\[ray\]'"):
        Where(cluster="auto").pool("somewhere")


def test_an_address_without_a_cluster_is_refused_at_once_and_nothing_is_written(write_study, tmp_path):
    pytest.importorskip("jax")
    pytest.importorskip("ray", reason="pip install 'lazymdp[ray]'")
    from lazymdp.sweep.run_sweep import Prepared, Where, run_sweep

    with socket.socket() as taken:  # a port at which nothing listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConnectionError, match=f"address is {address}, but no Ray cluster answers there .*ray start"
        ):
            run_sweep(Prepared(write_study(), tmp_path / "sweep"), Where(cluster=address))
    assert not (tmp_path / "sweep").exists()


def test_sigterm_stops_a_sweep_on_a_cluster_gently_although_ray_replaces_its_handler(monkeypatch):
    from lazymdp.sweep import ray_pool
    from lazymdp.sweep.supervise import Limits

    def init(**_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ours(*_):
        pass

    fake = SimpleNamespace(is_initialized=lambda: False, init=init, remote=lambda **_: lambda task: task)
    monkeypatch.setattr(ray_pool, "_ray", lambda: fake)
    before = signal.signal(signal.SIGTERM, ours)
    try:
        ray_pool.RayPool("somewhere", "auto", 1, Limits())
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("cores", "gpus", "nodes", "missing", "largest", "options"),
    [
        (1, 1.0, [{"CPU": 1.0}, {"CPU": 2.0}, {}], "1 core and 1 GPU", "2 cores and no GPU", GPU),
        (4, 0.0, [{"CPU": 1.0, "GPU": 8.0}, {"CPU": 2.0}], "4 cores", "2 cores", ""),
        (4, 0.5, [{"CPU": 64.0}, {"CPU": 1.0, "GPU": 2.0}], "4 cores and 0.5 GPU", "1 core and 2 GPUs", GPU),
        (1, 0.0, [], "1 core", "0 cores", ""),
        (1, 0.0, [{}, {"CPU": 1.0}], None, None, None),
        (1, 0.5, [{"CPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}], None, None, None),
    ],
)
def test_a_run_that_no_node_can_hold_is_reported_with_the_largest_node_and_the_remedy(
    cores, gpus, nodes, missing, largest, options, monkeypatch
):
    from lazymdp.sweep import ray_pool
    from lazymdp.sweep.supervise import Limits

    found = [{"Alive": True, "Resources": node} for node in nodes]
    found.append({"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}})
    fake = SimpleNamespace(is_initialized=lambda: True, remote=lambda **_: lambda task: task, nodes=lambda: found)
    monkeypatch.setattr(ray_pool, "_ray", lambda: fake)
    said = ray_pool.RayPool("somewhere", "auto", None, Limits(cores=cores), gpus).obstacle()
    expected = (
        f"No node of the cluster has {missing} for a run; the largest has {largest}. Waiting for one: start a node "
        f"with `ray start --address=HEAD:PORT --num-cpus={cores}{options}`, or stop the sweep and give smaller --cores "
        "or --gpus."
    )
    assert said == ("" if missing is None else expected)
