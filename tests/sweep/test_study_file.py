"""Study files: the product of their lists, the order of runs, and errors that name the file, the key and the remedy."""

from collections import Counter
from pathlib import Path

import pytest

from lazymdp.learn.deep.config import default_config
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.sweep.study_file import StudyError, read_study

STUDIES = Path(__file__).parents[2] / "studies"
ATARI = """
environments = ["ALE/Pong-v5", "ALE/Breakout-v5"]
algorithms = ["dqn", "pqn"]
prices = [0.05, [0.005, 0.5], {control_budget = 0.1}]
seeds = 2
"""


def test_a_study_is_the_product_of_its_lists_seed_first(write_study):
    runs = read_study(write_study(ATARI)).runs
    assert len(runs) == len({run.spec.id for run in runs}) == 2 * 2 * 3 * 2
    assert [run.spec.config.seed for run in runs] == [0] * 12 + [1] * 12
    assert Counter(run.price for run in runs) == {"0.05": 8, "0.005 to 0.5": 8, "budget 0.1": 8}
    assert {run.method for run in runs} == {"dqn", "pqn"} and {run.default_policy for run in runs} == {"uniform"}
    budget = next(run.spec for run in runs if run.price == "budget 0.1")
    assert budget.config.settings.control_budget == 0.1 and budget.evaluation.etas is None
    dial = next(run.spec for run in runs if " to " in run.price)
    assert dial.evaluation.etas == dial.config.settings.reported_etas


def test_settings_apply_to_all_runs_or_to_those_of_an_algorithm_or_an_environment(write_study):
    more = """
        steps = 100_000
        [settings]
        n_envs = 8
        [settings_by_algorithm.dqn]
        batch_size = 16
        learning_starts = 50
        [settings_by_environment."ALE/Pong-v5"]
        n_envs = 4
        [evaluation]
        episodes = 7
        epsilon = 0.001
    """
    runs = read_study(write_study(ATARI, more)).runs
    for run in runs:
        config = run.spec.config
        assert config.settings.n_envs == (4 if config.env == "ALE/Pong-v5" else 8)
        assert config.settings.steps == config.total_steps == 100_000 // (n := config.settings.steps_per_iteration) * n
        assert (run.spec.evaluation.episodes, run.spec.evaluation.epsilon) == (7, 0.001)
        if config.algorithm == "dqn":
            assert config.settings.batch_size == 16


def test_the_way_in_which_a_run_is_written_does_not_change_its_id(write_study):
    text = "environments = ['minatar/breakout']\nalgorithms = ['pqn']\nprices = [{}]\nsteps = {}\nseeds = {}\n{}"
    said = [
        ("0.1", "409_600", "1", ""),
        ("1e-1", "413_695", "[0]", "[settings]\nn_envs = 128\nmax_grad_norm = 10\n"),  # the same number of iterations
        (
            "0.10",
            "409_601",
            "1",
            "default_policies = ['uniform']\n[methods.another_name]\n[evaluation]\nprices = [0.3]",
        ),
    ]
    assert len({read_study(write_study(text.format(*one))).runs[0].spec.id for one in said}) == 1
    assert read_study(write_study(text.format("0.1", "413_696", "1", ""))).runs[0].spec.config.total_steps == 413_696


def test_prices_that_differ_have_texts_that_differ(write_study):
    text = "environments = ['minatar/breakout']\nalgorithms = ['pqn']\nprices = [{}]"
    close = "0.1234567, 0.1234568, [0.1, 0.5], [0.1, 0.50000001], {control_budget = 0.1}, {control_budget = 0.1000001}"
    assert [run.price for run in read_study(write_study(text.replace("{}", close))).runs] == [
        "0.1234567", "0.1234568", "0.1 to 0.5", "0.1 to 0.50000001", "budget 0.1", "budget 0.1000001",
    ]  # fmt: skip


def test_methods_inherit_and_may_use_the_agents_of_other_methods(write_study):
    more = """
        [methods.lazy]
        algorithms = ["dqn"]
        default_policies = ["method:first:epsilon=0.1"]
        [methods.first]
        algorithms = ["dqn"]
        prices = [0]
        steps = 200_000
        [methods.warm]
        algorithms = ["dqn"]
        prices = [0.05]
        warm_start = "method:first"
    """
    runs = read_study(write_study(ATARI, more)).runs
    assert Counter(run.method for run in runs) == {"lazy": 12, "first": 4, "warm": 4}
    first = {(run.spec.config.env, run.spec.config.seed): run.spec.id for run in runs if run.method == "first"}
    seen = set()
    for run in runs:
        config = run.spec.config
        if run.method != "first":
            needed = first[config.env, config.seed]
            assert run.spec.needed_runs == (needed,) and needed in seen
        seen.add(run.spec.id)
    lazy = next(run.spec for run in runs if run.method == "lazy")
    assert lazy.config.default_policy == f"run:{lazy.needed_runs[0]}:epsilon=0.1"


def test_a_run_as_the_default_policy_is_named_by_its_content(write_study, tmp_path):
    run = tmp_path / "trained"
    RunFolder(run).create(TrainConfig("ALE/Pong-v5", default_config("ALE/Pong-v5", "pqn")))
    (run / "last.safetensors").write_bytes(b"weights")
    more = "default_policies = ['trained:epsilon=0.1']\n"
    study = read_study(write_study(ATARI, more))
    policy = study.runs[0].spec.config.default_policy
    assert policy.startswith("input:") and policy.endswith(":epsilon=0.1")
    assert set(study.inputs.files[policy.split(":")[1]]) == {"config.json", "last.safetensors"}
    run.rename(tmp_path / "moved")
    moved = read_study(write_study(ATARI, more.replace("trained", "moved")))
    assert [one.spec.id for one in moved.runs] == [one.spec.id for one in study.runs]
    (tmp_path / "moved" / "last.safetensors").write_bytes(b"other weights")
    changed = read_study(write_study(ATARI, more.replace("trained", "moved")))
    assert not {one.spec.id for one in changed.runs} & {one.spec.id for one in study.runs}


def test_a_function_is_named_by_its_source(write_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = "default_policies = ['my_policies_of_test:act']\n"
    (tmp_path / "my_policies_of_test.py").write_text("def act(observation): return 0\n")
    before = [run.spec.id for run in read_study(write_study(ATARI, more)).runs]
    assert before == [run.spec.id for run in read_study(write_study(ATARI, more)).runs]
    (tmp_path / "my_policies_of_test.py").write_text("def act(observation): return 1\n")
    assert not set(before) & {run.spec.id for run in read_study(write_study(ATARI, more)).runs}


@pytest.mark.parametrize("whole", [True, False])  # whether there is an __init__.py
def test_a_function_in_a_package_is_named_by_the_source_of_the_package(whole, write_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"package_of_test_{whole}"
    (tmp_path / name).mkdir()
    for file, text in (("__init__", ""), ("net", "SIZE = 1"), ("act", f"from {name}.net import SIZE")):
        if whole or file != "__init__":
            (tmp_path / name / f"{file}.py").write_text(text)
    more = f"default_policies = ['{name}.act:act']\n"
    before = [run.spec.id for run in read_study(write_study(ATARI, more)).runs]
    (tmp_path / name / "notes.txt").write_text("not code")
    (tmp_path / name / ".#net.py").symlink_to("me@here.1234")  # as Emacs marks a file that is being edited
    assert before == [run.spec.id for run in read_study(write_study(ATARI, more)).runs]
    (tmp_path / name / "net.py").write_text("SIZE = 2")
    assert not set(before) & {run.spec.id for run in read_study(write_study(ATARI, more)).runs}


def test_the_agent_at_half_of_the_final_score_is_that_of_the_run_at_price_0(write_study):
    more = """
        [methods.scratch]
        algorithms = ["dqn"]
        prices = [0, 0.05]
        [methods.pretrained]
        algorithms = ["dqn"]
        prices = [0.05]
        default_policies = ["half:scratch:epsilon=0.1"]
        [methods.warm]
        algorithms = ["dqn"]
        prices = [0.05]
        warm_start = "half:scratch"
    """
    runs = read_study(write_study(ATARI, more)).runs
    plain = {(run.spec.config.env, run.spec.config.seed): run.spec for run in runs if run.price == "0"}
    assert all(spec.leaves_half for spec in plain.values()) and len(plain) == 4
    for run in runs:
        needed = plain[run.spec.config.env, run.spec.config.seed].id
        if run.method == "pretrained":
            assert run.spec.config.default_policy == f"half:{needed}:epsilon=0.1"
        assert run.spec.needed_runs == (() if run.method == "scratch" else (needed,))


def test_packed_runs_share_a_network_that_sees_the_price(write_study):
    text = """
        environments = ["minatar/breakout"]
        algorithms = ["pqn"]
        prices = [0, 0.01, 0.1]
        seeds = 2
        pack = true
    """
    runs = read_study(write_study(text)).runs
    assert {run.spec.config.settings.eta for run in runs} == {(0.01, 0.1)}
    assert len({run.spec.group for run in runs}) == 1 and len({run.spec.id for run in runs}) == 6
    assert [run.spec.member_price for run in runs[:3]] == [(0.01, 0.01, 1.0), (0.01, 0.01, 0.0), (0.1, 0.1, 0.0)]
    assert [run.spec.evaluation.etas for run in runs[:3]] == [(0.0,), (0.01,), (0.1,)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("speed = 3", r"there is no key speed; the keys are environments"),
        ("seeds = 0", r"seeds is 0, expected a number of seeds from 1 to 10,000, or a list"),
        ("seeds = [1, 1]", r"seeds is \[1, 1\], expected each seed once"),
        ("algorithms = ['dqm']", r"algorithms is \['dqm'\], expected a list of pqn and dqn"),
        ("prices = ['cheap']", r"prices is 'cheap', expected a price, a range \[low, high\], or"),
        ("prices = [[0.5, 0.1]]", r"dqn on ALE/Pong-v5: eta is \(0\.5, 0\.1\), expected a range"),
        ("prices = [0.1, 0.1]", r"prices is \[0\.1, 0\.1\], expected each entry once"),
        ("environments = 3", r"environments is 3, expected a list such as"),
        ("default_policies = 3", r"default_policies is 3, expected a list such as"),
        ("default_policies = [true]", r"default_policies is \[True\], expected a list such as"),
        (
            "default_policies = ['run:00ff']",
            r"default_policies is 'run:00ff', expected a default policy, the folder of",
        ),
        ("default_policies = ['input:00ff']", r"default_policies is 'input:00ff', expected a default policy"),
        ("seeds = 99999999999999999999", r"seeds is 9+, expected a number of seeds from 1 to 10,000"),
        ("algorithms = ['dqn']\nwarm_start = 'nowhere'", r"warm_start is 'nowhere', expected the folder of a dqn run"),
        ("[evaluation]\nseed = 2147483648", r"evaluation\.seed is 2147483648, expected a number of at least 0, and"),
        ("[methods.a]\nenvironments = 3", r"methods\.a\.environments is 3, expected a list such as"),
        ("prices = []", r"prices is \[\], expected a list such as"),
        ("pack = 'yes'", r"pack is 'yes', expected true or false"),
        ("default_policies = [0, '0']", r"default_policies is \[0, '0'\], expected each entry once"),
        ("evaluation = {prices = [0.1, 0.1]}", r"evaluation\.prices is \[0\.1, 0\.1\], expected each price once"),
        ("steps = 0", r"ALE/Pong-v5: steps is 0, expected at least 1"),
        ("[settings]\nn_env = 3", r"ALE/Pong-v5: dqn has no setting 'n_env'; it has"),
        ("[settings]\neta = 3", r"settings\.eta is 3, expected the key prices instead"),
        ("[settings_by_environment.Pong]\nn_envs = 3", r"settings_by_environment\.Pong is .* for one of ALE/Breakout"),
        ("[evaluation]\nepisodes = 0", r"evaluation\.episodes is 0, expected a number of at least 1"),
        ("[evaluation]\nepsilon = 2", r"evaluation\.epsilon is 2, expected a probability between 0 and 1"),
        ("[evaluation]\nprices = [-1]", r"evaluation\.prices is \[-1\], expected a list of prices of at least 0"),
        ("[evaluation]\nruns = 3", r"there is no key evaluation\.runs"),
        ("pack = true", r"pack is True, expected pack = false: only pqn on MinAtar"),
        ("[methods.a]\nseed = 3", r"there is no key methods\.a\.seed"),
        (
            "[methods.a]\ndefault_policies = ['method:b']",
            r"methods\.a\..* is 'method:b', expected one of the methods a",
        ),
        (
            "default_policies = ['method:b']",
            r"default_policies is 'method:b', expected a method of the study, which",
        ),
        (
            "[methods.a]\ndefault_policies = ['method:b']\n[methods.b]\ndefault_policies = ['method:a']",
            r"methods is 'a, b', expected methods that do not need each other's agents in a circle",
        ),
        (
            "[methods.a]\ndefault_policies = ['half:b']\n[methods.b]\nprices = [0.1]\nalgorithms = ['dqn']",
            r"a\.default_policies is 'half:b', expected a method with one run at price 0 that is not packed on "
            "ALE/Pong-v5 for seed 0; b has 0",
        ),
        (
            "[methods.a]\nwarm_start = 'method:b'\nalgorithms = ['dqn']\n[methods.b]\nprices = [0]",
            r"methods\.a\.warm_start is 'method:b', expected a method with one run on ALE/Pong-v5 for seed 0; b has 2",
        ),
    ],
)
def test_an_error_names_the_file_the_key_the_value_and_the_remedy(more, message, write_study):
    key = more.split(" ")[0]
    kept = "\n".join(line for line in ATARI.splitlines() if not line.startswith(f"{key} "))
    path = write_study(f"{kept}\n{more}\n")
    with pytest.raises(StudyError, match=message) as raised:
        read_study(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_a_missing_key_and_a_missing_file_are_named(write_study, tmp_path):
    with pytest.raises(StudyError, match=r"environments is missing, expected a list such as \[\"CartPole"):
        read_study(write_study("algorithms = ['dqn']\nprices = [0.1]"))
    with pytest.raises(StudyError, match="is not a TOML file"):
        read_study(write_study("environments = ["))
    with pytest.raises(FileNotFoundError, match="there is no study file"):
        read_study(tmp_path / "nothing.toml")
    with pytest.raises(OSError, match=r"the study file .* cannot be read: Is a directory"):
        read_study(tmp_path)


def test_the_studies_of_the_repository_are_those_of_the_paper_and_ours():
    atari = read_study(STUDIES / "atari.toml").runs
    assert Counter(run.method for run in atari) == dict.fromkeys(("scratch", "warm", "pretrained"), 60 * 7 * 3)
    assert len({run.spec.config.env for run in atari}) == 60 and len({run.spec.id for run in atari}) == 60 * 7 * 3 * 3
    plain = {run.spec.id for run in atari if run.method == "scratch" and run.price == "0"}
    for run in atari:
        assert run.spec.needed_runs == () if run.method == "scratch" else set(run.spec.needed_runs) <= plain
    minatar = read_study(STUDIES / "minatar.toml").runs
    assert Counter(run.method for run in minatar) == {"augmented": 400, "structured": 400, "dial": 50}
    assert len({run.spec.group for run in minatar}) == 15
