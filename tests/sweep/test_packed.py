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


def test_every_member_has_a_result_and_an_agent_and_a_stop_changes_nothing(write_study, tmp_path):
    study = read_study(write_study(TEXT))
    (job,) = make_jobs(list(study.specs.values()))
    assert len(job.specs) == 4
    rows = {}
    for name, stops in (("calm", 0), ("stopped", 1)):
        folder = SweepFolder(tmp_path / name)
        for attempt in range(stops + 1):
            try:
                execute(job, folder, lambda *_: None, lambda ends=attempt < stops: ends, 1000.0)
            except KeyboardInterrupt:
                assert folder.names("packs") == {job.id} and folder.names("runs") == set()
        results = {one.id: folder.read_sealed(f"runs/{one.id}/result.json") for one in job.specs}
        rows[name] = {one: result["rows"] for one, result in results.items()}
        assert not folder.names("packs")
    assert rows["calm"] == rows["stopped"]
    assert sorted(made[0]["eta"] for made in rows["calm"].values()) == [0.0, 0.0, 0.1, 0.1]
    assert all(made[-1]["default_alone"] and made[-1]["control_rate"] == 0.0 for made in rows["calm"].values())
    agent = lz.learn.load(tmp_path / "calm" / "runs" / job.specs[0].id / "agent")
    assert agent.is_dial


def test_a_member_does_not_depend_on_the_others(write_study, tmp_path):
    specs = list(read_study(write_study(TEXT)).specs.values())
    rows = {}
    for name, members in (("all", specs), ("alone", specs[-1:]), ("turned", specs[::-1])):
        folder, beats = SweepFolder(tmp_path / name), []
        (job,) = make_jobs(members)
        execute(job, folder, lambda *beat, beats=beats: beats.append(beat), lambda: False, 1000.0)
        rows[name] = folder.read_sealed(f"runs/{specs[-1].id}/result.json")["rows"]
        assert {beat[2] for beat in beats} >= {"starting", "training", "evaluating"}
    assert rows["alone"] == rows["all"] == rows["turned"]
