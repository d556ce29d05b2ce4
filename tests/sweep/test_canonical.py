"""The id of a run does not depend on settings that it does not use, nor on how a value is written."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from lazymdp.learn.deep.config import ALGORITHMS, DQNConfig, PQNConfig
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.sweep.canonical import canonical_policy, number_text
from lazymdp.sweep.study_file import _OWN_SETTINGS, StudyError, read_study

FORMS = {"single": 0.1, "zero": 0, "range": [0.1, 0.5], "budget": {"control_budget": 0.2}}
STUDY = """
environments = ['{}']
algorithms = ['{}']
prices = [{}]
steps = 65536
[settings]
reward_scale = 1.0
n_envs = 8
rollout = 8
"""
OTHERS = {"form": "augmented", "hidden": [9], "max_grad_norm": 3.0, "final_learning_rate": 0.02}


def ids(write_study, env="FrozenLake-v1", algorithm="pqn", price="0.1", more=""):
    return [run.spec.id for run in read_study(write_study(STUDY.format(env, algorithm, price), more)).runs]


def another(name, value, images):
    """Another value of a setting, as TOML."""
    if name == "network":
        return "'mlp'" if images != "mlp" else "'minatar'"
    if name in OTHERS:
        return json.dumps(OTHERS[name])
    if isinstance(value, bool):
        return json.dumps(not value)
    return json.dumps(value + 1 if isinstance(value, int) else 0.9 * value or 0.1)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@pytest.mark.parametrize("price", list(FORMS))
def test_the_id_depends_on_every_setting_that_is_used_and_on_no_other(algorithm, price, write_study):
    toml = json.dumps(FORMS[price]).replace(":", "=").replace('"', "")
    for env in ("minatar/breakout", "ALE/Pong-v5"):
        text = STUDY.format(env, algorithm, toml)
        before = read_study(write_study(text)).runs[0].spec
        settings = before.config.settings
        images = settings.network or ("mlp" if env.startswith("minatar/") else "nature")
        unused = replace(settings, network=images).unused
        assert unused <= {field.name for field in fields(settings)} - set(_OWN_SETTINGS)
        for name, value in asdict(settings).items():
            if name in _OWN_SETTINGS:
                continue
            lines = [line for line in text.splitlines() if not line.startswith(f"{name} =")]
            given = another(name, value, images)
            changed = read_study(write_study("\n".join([*lines, f"{name} = {given}"]))).runs[0].spec
            assert (changed.id == before.id) == (name in unused), f"{name} = {given}"


def test_a_setting_of_the_dial_leaves_the_other_runs_of_a_study(write_study):
    mixed = "0.01, [0.005, 0.5]"
    single, dial = ids(write_study, price=mixed)
    for setting in ("zero_share = 0.25", "prices_per_step = 3"):
        again = ids(write_study, price=mixed, more=setting)
        assert again[0] == single and again[1] != dial
    assert ids(write_study, price=mixed, more="budget_step = 0.3") == [single, dial]
    with pytest.raises(StudyError, match="budget_step is -1"):  # what is left out is checked as well
        ids(write_study, price=mixed, more="budget_step = -1")


def test_a_packed_run_counts_the_share_of_price_0_once_and_refuses_a_fraction_of_the_run(write_study):
    text = STUDY.format("minatar/breakout", "pqn", "0, 0.1, [0.01, 0.1]").replace("steps", "pack = true\nsteps")
    before, after = (read_study(write_study(text, more)).runs for more in ("", "zero_share = 0.25"))
    assert [a.spec.id == b.spec.id for a, b in zip(before, after, strict=True)] == [True, True, False]
    assert [run.spec.group for run in before] == [run.spec.group for run in after]
    assert [run.spec.member_price for run in after][2] == (0.01, 0.1, 0.25)
    with pytest.raises(StudyError, match=r"settings\.zero_fraction is 0\.5, expected 0 for pack = true"):
        read_study(write_study(text, "zero_fraction = 0.5"))


def test_the_way_in_which_a_value_is_written_does_not_change_the_id(write_study):
    def given(line, price="0.1"):
        return ids(write_study, price=price, more=line)

    text = STUDY.replace("[settings]", "default_policies = {policies}\n[settings]")

    def acting(*policies):
        made = text.format("FrozenLake-v1", "pqn", "0.1", policies=json.dumps(policies))
        return read_study(write_study(made)).runs[0].spec.id

    assert acting("0") == acting(0) == acting("00") == acting("-0") != acting("1")
    for zero, minus in (("0", "-0.0"), ("[0.1, 0.5]", "[0.10, 5e-1]")):
        assert given("", zero) == given("", minus)
    assert given("final_learning_rate = 0.0") == given("final_learning_rate = -0.0") != given("")
    dial = "[evaluation]\nprices = [{}, 0.1]\nepsilon = {}"
    assert given(dial.format("0", "0"), "[0.1, 0.5]") == given(dial.format("-0.0", "-0.0"), "[0.1, 0.5]")
    assert read_study(write_study(STUDY.format("FrozenLake-v1", "pqn", "-0.0"))).runs[0].price == "0"


def test_the_way_in_which_the_network_of_a_run_chooses_is_written_in_one_form():
    for text, one in (
        ("run:00ff:epsilon=0.10", "run:00ff:epsilon=0.1"), ("run:00ff:greedy", "run:00ff"), ("half:00ff", "half:00ff"),
        ("input:00ff:epsilon=0.0", "input:00ff"), ("run:00ff:softmax=1.0", "run:00ff:softmax=1"),
        ("run:00ff:epsilon=x", "run:00ff:epsilon=x"), ("module:epsilon", "module:epsilon"), ("noop", "noop"),
        ("-007", "-7"),
    ):  # fmt: skip
        assert canonical_policy(text) == one == canonical_policy(one)


def test_the_text_of_a_number_is_read_as_the_same_number():
    assert [number_text(one) for one in (0.05, 1, -0.0, 0.1234567, 1e-7)] == ["0.05", "1", "0", "0.1234567", "1e-07"]
    numbers = np.random.default_rng(0).lognormal(sigma=5.0, size=1_000)
    assert all(float(number_text(number)) == number for number in numbers.tolist())


@pytest.mark.sweep
def test_a_network_that_an_environment_has_anyway_does_not_change_the_id(write_study):
    pytest.importorskip("jax")
    assert ids(write_study, more="network = 'mlp'") == ids(write_study)
    assert len({*ids(write_study, "minatar/breakout", "dqn", more="network = 'mlp'"),
                *ids(write_study, "minatar/breakout", "dqn")}) == 2  # fmt: skip
    with pytest.raises(StudyError, match="Nowhere-v1"):
        ids(write_study, "Nowhere-v1", more="network = 'mlp'")


TINY = {"hidden": (8,), "n_envs": 4, "rollout": 8, "steps": 128}
PQN = PQNConfig(**TINY, minibatches=2)
DQN = DQNConfig(**TINY, learning_starts=32, buffer_size=64, batch_size=4, target_update_interval=32)
BUDGET = {"eta": 0.0, "control_budget": 0.2}
CONDITIONAL = {"zero_share": 0.4, "prices_per_step": 3, "zero_fraction": 0.5, "budget_step": 0.5, "decay_fraction": 0.5}
"""Settings that some runs do not use, and other values for them."""


def trained(settings):
    """The state of a short run when it ends, and the names of the settings that it has read."""
    from lazymdp.learn.deep.training_run import Training

    read = set()

    class Watched(type(settings)):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    watched = Watched(**asdict(settings))
    read.clear()
    run = Training(TrainConfig("FrozenLake-v1", watched))
    while not run.done:
        run.advance()
    return run.arrays(), read & {field.name for field in fields(settings)}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "settings",
    [
        replace(PQN, eta=0.1), replace(DQN, eta=0.1), replace(PQN, eta=(0.1, 0.5)),
        replace(DQN, eta=(0.1, 0.5), final_learning_rate=1e-5), replace(PQN, **BUDGET), replace(DQN, **BUDGET),
        replace(DQN, eta=0.0),
    ],
    ids=["pqn", "dqn", "pqn-range", "dqn-range", "pqn-budget", "dqn-budget", "dqn-zero"],
)  # fmt: skip
def test_a_run_is_the_same_for_all_values_of_a_setting_that_it_does_not_use(settings):
    """What a run never reads cannot matter: a new setting that only some runs read has to be named in `unused`."""
    pytest.importorskip("jax")
    before, read = trained(settings)
    unread = {field.name for field in fields(settings)} - read
    assert unread <= settings.unused
    assert settings.unused - unread == ({"zero_fraction"} if settings.eta_range == (0.0, 0.0) else set())
    after, _ = trained(replace(settings, **{name: CONDITIONAL[name] for name in settings.unused}))
    assert before.keys() == after.keys() and all(before[name].tobytes() == after[name].tobytes() for name in before)
