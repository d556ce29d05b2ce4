"""Runs that are trained as one population: a result and an agent for each, and the same results after a stop."""

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("pgx")
pytestmark = pytest.mark.sweep

import lazymdp as lz  # noqa: E402
from lazymdp.sweep.execute import execute  # noqa: E402
from lazymdp.sweep.plan import make_jobs  # noqa: E402
from lazymdp.sweep.study_file import read_study  # noqa: E402
from lazymdp.sweep.sweep_folder import SweepFolder  # noqa: E402

TEXT = """
environments = ["minatar/breakout"]
algorithms = ["pqn"]
prices = [0, 0.1]
seeds = 2
steps = 1024
pack = true

[settings]
n_envs = 8
rollout = 8
hidden = [8]
minibatches = 2

[evaluation]
episodes = 2
max_steps = 20
"""


def executed(job, folder, stop=lambda: False):
    """Executes a job, and returns what was said meanwhile and the rows of its members."""
    beats = []
    execute(job, folder, lambda *beat: beats.append(beat), stop, 1000.0)
    results = {one.id: folder.read_sealed(f"runs/{one.id}/result.json") for one in job.specs}
    return beats, {one: result["rows"] for one, result in results.items()}


def test_every_member_has_a_result_and_an_agent_and_neither_a_stop_nor_the_others_change_it(write_study, tmp_path):
    specs = list(read_study(write_study(TEXT)).specs.values())
    (job,) = make_jobs(specs)
    assert len(job.specs) == 4
    calm, stopped = SweepFolder(tmp_path / "calm"), SweepFolder(tmp_path / "stopped")
    beats, rows = executed(job, calm)
    assert {beat[2] for beat in beats} >= {"starting", "training", "evaluating"} and not calm.names("packs")
    assert sorted(made[0]["eta"] for made in rows.values()) == [0.0, 0.0, 0.1, 0.1]
    assert all(made[-1]["default_alone"] and made[-1]["control_rate"] == 0.0 for made in rows.values())
    assert lz.learn.load(tmp_path / "calm" / "runs" / job.specs[0].id / "agent").is_dial
    with pytest.raises(KeyboardInterrupt):
        executed(job, stopped, lambda: True)
    assert stopped.names("packs") == {job.id} and stopped.names("runs") == set()
    assert executed(job, stopped)[1] == rows and not stopped.names("packs")
    for name, members in (("alone", specs[-1:]), ("turned", specs[::-1])):
        (job,) = make_jobs(members)
        again = executed(job, SweepFolder(tmp_path / name))[1]
        assert again == {one.id: rows[one.id] for one in members}
