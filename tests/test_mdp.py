"""The model: three storage forms, files, and errors that name the state and the value."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from random_models import random_model

import lazymdp as lz
from lazymdp._files import checksum

MODEL = random_model(0, n_states=5, n_actions=3, n_absorbing=1)
P, R = MODEL.transitions, MODEL.rewards


def forms():
    return {
        "dense [S, A, S]": P,
        "nested lists": P.tolist(),
        "list of sparse": [sp.csr_array(P[:, a]) for a in range(3)],
        "tuple of old-style sparse": tuple(sp.coo_matrix(P[:, a]) for a in range(3)),
        "one sparse": sp.csc_array(P.reshape(15, 5)),
        "one sparse with 64-bit indices": sp.csr_array(
            (
                sp.csr_array(P.reshape(15, 5)).data,
                sp.csr_array(P.reshape(15, 5)).indices.astype(np.int64),
                sp.csr_array(P.reshape(15, 5)).indptr.astype(np.int64),
            ),
            shape=(15, 5),
        ),
    }


@pytest.mark.parametrize("form", forms())
def test_every_storage_form_is_the_same_model(form):
    mdp = lz.MDP(forms()[form], R, 0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), P.reshape(15, 5))
    assert (mdp.n_states, mdp.n_actions, mdp.gamma) == (5, 3, 0.9)
    np.testing.assert_array_equal(mdp.absorbing, [False] * 4 + [True])
    np.testing.assert_allclose(mdp.start, [0.25] * 4 + [0])


def test_entries_that_repeat_add_up_and_stored_zeros_vanish():
    rows, columns, weights = [0, 0, 0, 1], [0, 0, 1, 1], [0.25, 0.25, 0.5, 1.0]
    mdp = lz.MDP(sp.coo_array((weights, (rows, columns)), shape=(2, 2)), np.zeros((2, 1)), 0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0.5, 0.5], [0.0, 1.0]])
    padded = sp.csr_array(([1.0, 0.0, 1.0], [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    assert lz.MDP(padded, np.zeros((2, 1)), 0.9).absorbing.all()


def test_the_callers_arrays_stay_writeable_and_ours_do_not():
    transitions, rewards, start = sp.csr_array(P.reshape(15, 5)), R.copy(), MODEL.start.copy()
    mdp = lz.MDP(transitions, rewards, 0.9, start)
    for array in (transitions.data, rewards, start):
        assert array.flags.writeable
    for array in (mdp.transitions.data, mdp.rewards, mdp.start, mdp.absorbing):
        assert not array.flags.writeable


def changed(array, place, value):
    copy = np.array(array, dtype=float)
    copy[place] = value
    return copy


BAD = {
    "a row that sums to 0.9": (dict(transitions=changed(P, (2, 1), P[2, 1] * 0.9)), r"state 2, action 1 sum to 0\.9"),
    "a negative probability": (dict(transitions=changed(P, (1, 2, 3), -0.1)), r"state 1, action 2 to state 3.*-0\.1"),
    "a nan probability": (dict(transitions=changed(P, (3, 0, 4), np.nan)), r"state 3, action 0 to state 4.*nan"),
    "an infinite probability": (dict(transitions=changed(P, (3, 0, 4), np.inf)), r"state 3, action 0 to state 4.*inf"),
    "transitions of two axes": (dict(transitions=np.ones((3, 3))), r"shape \(3, 3\), expected \[S, A, S\]"),
    "actions first": (
        dict(transitions=P.transpose(1, 0, 2)),
        r"From \[A, S, S\], make transitions\.transpose\(1, 0, 2\)",
    ),
    "a sparse matrix of odd shape": (dict(transitions=sp.csr_array(np.ones((4, 3)))), r"4 rows and 3 columns"),
    "actions of different shapes": (
        dict(transitions=[sp.eye_array(3), sp.eye_array(4)]),
        r"action 1 have shape \(4, 4\)",
    ),
    "rewards of a wrong shape": (dict(rewards=R[:, :2]), r"shape \(5, 2\), expected \[S, A\] = \(5, 3\)"),
    "a nan reward": (dict(rewards=changed(R, (2, 0), np.nan)), r"state 2, action 0 is nan"),
    "an infinite reward": (dict(rewards=changed(R, (2, 0), -np.inf)), r"state 2, action 0 is -inf"),
    "gamma above 1": (dict(gamma=1.5), r"gamma is 1\.5"),
    "no gamma": (dict(gamma=None), "gamma is None"),
    "two gammas": (dict(gamma=[0.9, 0.8]), "gamma is"),
    "a huge reward": (dict(rewards=changed(R, (2, 0), 1e200)), r"state 2, action 0 is 1e\+200"),
    "complex rewards": (dict(rewards=R + 0j), "rewards are of type complex128"),
    "masked rewards": (dict(rewards=np.ma.masked_less(R, 0)), "masked array"),
    "complex transitions": (dict(transitions=sp.csr_array(P.reshape(15, 5) + 0j)), "of type complex128"),
    "text for names": (dict(state_names="abcde"), "state_names is the text"),
    "gamma below 0": (dict(gamma=-0.1), r"gamma is -0\.1"),
    "gamma nan": (dict(gamma=np.nan), r"gamma is nan"),
    "a start that sums to 2": (dict(start=[1, 1, 0, 0, 0]), r"start sums to 2\.0"),
    "a name as start": (dict(start="wet"), "start is 'wet', expected the index of a state or a distribution"),
    "a negative start": (dict(start=[1.5, -0.5, 0, 0, 0]), r"start gives state 1 probability -0\.5"),
    "a start of wrong shape": (dict(start=[1.0]), r"start has shape \(1,\)"),
    "a start state that does not exist": (dict(start=5), r"start is state 5, expected 0 to 4"),
    "an absorbing mask that is contradicted": (
        dict(absorbing=np.array([False, True, False, False, True])),
        r"state 1 is declared absorbing, but action 0",
    ),
    "an absorbing mask of wrong type": (dict(absorbing=[0, 0, 0, 0, 1]), r"expected one bool for each"),
    "too few names": (dict(state_names=["a"]), r"state_names has 1 names, expected 5"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_the_place_and_the_value(case):
    wrong, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        lz.MDP(**(dict(transitions=P, rewards=R, gamma=0.9) | wrong))


def test_errors_use_the_names_of_states_and_actions():
    names = dict(state_names=list("abcde"), action_names=["up", "down", "wait"])
    with pytest.raises(ValueError, match="state 2 c, action 1 down sum to"):
        lz.MDP(changed(P, (2, 1), P[2, 1] * 0.9), R, 0.9, **names)


def test_a_declared_mask_may_leave_out_a_loop():
    mdp = lz.MDP(P, R, 0.9, absorbing=np.zeros(5, dtype=bool))
    assert not mdp.absorbing.any()


def test_gamma_one_names_the_states_that_are_not_absorbed():
    chain = np.zeros((4, 2, 4))
    chain[0, :, 1] = 1.0
    chain[1, 0, 3] = 1.0
    chain[1, 1, 1] = 1.0  # state 1 may stay for ever, and so state 0 may end up there
    chain[2, :, 3] = 1.0
    chain[3, :, 3] = 1.0
    mdp = lz.MDP(chain, np.zeros((4, 2)), 1.0)
    np.testing.assert_array_equal(mdp.can_live_forever(), [0, 1])
    default = lz.policies.uniform(mdp)
    lazy = lz.LazyMDP(mdp, default, 0.1)
    asked = [
        lambda: lz.solve(lazy),
        lambda: lz.evaluate(lazy, default @ np.ones((2, 3)) / 3),
        lambda: lz.eta_path(mdp, default),
        lambda: lz.eta_max(mdp, default),
        lambda: lz.eta_min(mdp, default),
        lambda: lz.eta_min_theorem(mdp, default),
        lambda: lz.policies.optimal(mdp),
        lambda: lz.steps_to_absorption(mdp, default),
    ]
    for question in asked:
        with pytest.raises(ValueError, match=r"2 of 4 states.*state 0, state 1\..*horizon"):
            question()
    assert lz.solve(lazy, horizon=3).value.shape == (4, 4)
    chain[1, 1] = [0.5, 0, 0.25, 0.25]
    assert not lz.MDP(chain, np.zeros((4, 2)), 1.0).can_live_forever().size


def test_averages():
    mdp = lz.MDP(P, R, 0.9, MODEL.start)
    values = np.arange(5.0)
    assert mdp.start_average(values) == pytest.approx(MODEL.start @ values)
    assert mdp.state_average(values) == pytest.approx(1.5)  # without the absorbing state 4


def test_repr_is_readable():
    text = repr(lz.MDP(P, R, 0.9, start=2, state_names=list("abcde")))
    count = np.count_nonzero(P)
    assert text == f"MDP(5 states, 3 actions, gamma=0.9, {count} transitions, 1 absorbing, start: state 2 c)"


@pytest.mark.parametrize("place", [7, -1])
def test_next_states_that_do_not_exist_are_refused(place):
    matrix = sp.csr_array(np.eye(2))
    matrix.indices[1] = place
    with pytest.raises(ValueError, match=f"state 1, action 0 lead to state {place}, expected 0 to 1"):
        lz.MDP(matrix, np.zeros((2, 1)), 0.9)


def test_a_small_models_arrays_are_its_own():
    rewards, default = R.copy(), MODEL.default.copy()
    mdp = lz.MDP(P, rewards, 0.9)
    lazy = lz.LazyMDP(mdp, default, 0.1)
    rewards[:], default[:] = np.nan, np.nan
    assert np.isfinite(mdp.rewards).all()
    assert np.isfinite(lazy.default_policy).all()


# -- files ---------------------------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    mdp = lz.MDP(P, R, 0.9, MODEL.start, state_names=list("abcde"), action_names=list("xyz"))
    path = tmp_path / "model.npz"
    mdp.save(path)
    back = lz.MDP.load(path)
    for name in ("rewards", "start", "absorbing", "gamma", "state_names", "action_names"):
        np.testing.assert_array_equal(getattr(back, name), getattr(mdp, name))
    np.testing.assert_array_equal(back.transitions.toarray(), mdp.transitions.toarray())
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    mdp = lz.MDP(P, R, 0.9)
    path = tmp_path / "model.npz"
    mdp.save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        mdp.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_load_refuses_what_is_not_a_model(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, rewards=R)
    with pytest.raises(
        ValueError, match="model.npz is not a model saved by MDP.save, .* lacks absorbing, checksum, data"
    ):
        lz.MDP.load(path)
    np.savez(path, pickled=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=re.escape(str(path))):
        lz.MDP.load(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="not a model saved by MDP.save"):
        lz.MDP.load(path)
    with open(tmp_path / "one.npy", "wb") as file:
        np.save(file, R)
    with pytest.raises(ValueError, match="not a model saved by MDP.save"):
        lz.MDP.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        lz.MDP.load(tmp_path / "missing.npz")
    lz.MDP(P, R, 0.9).save(path)
    whole = path.read_bytes()
    for part in (b"", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(part)
        with pytest.raises(ValueError, match="not a model saved by MDP.save, or is damaged"):
            lz.MDP.load(path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        lz.MDP(P, R, 0.9).save(tmp_path / "nowhere" / "model.npz")


def test_load_checks_the_model_again(tmp_path):
    mdp = lz.MDP(P, R, 0.9)
    path = tmp_path / "model.npz"
    mdp.save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files if key != "checksum"}
    for changed, message in (
        ({"data": arrays["data"] * 0.5}, "model.npz .*state 0, action 0 sum to"),
        ({"data": np.append(arrays["data"], 1.0)}, "model.npz .*not the parts of one sparse matrix"),
        ({"indices": arrays["indices"] + 0.5}, "model.npz .*not the parts of one sparse matrix"),
        ({"rewards": R[0]}, r"model.npz .*rewards have shape \(3,\)"),
        ({"gamma": np.array([0.9, 0.5])}, "model.npz .*"),
        ({"format": 99}, "model.npz .*format 99; this version reads format 2"),
        ({"another": 1}, "model.npz .*unknown arrays: another"),
    ):
        np.savez(path, **(arrays | changed), checksum=checksum(arrays | changed))
        with pytest.raises(ValueError, match=message):
            lz.MDP.load(path)
    np.savez(path, **(arrays | {"gamma": 0.5}), checksum=checksum(arrays))
    with pytest.raises(ValueError, match="model.npz .*its checksum is not"):
        lz.MDP.load(path)


def test_every_damaged_file_is_refused_by_name_or_still_holds_the_same_model(tmp_path):
    """Random changes of bytes and truncations; some bytes of a zip file, such as its dates, do not matter."""
    mdp = lz.MDP(P, R, 0.9, MODEL.start, state_names=list("abcde"))
    path, rng, refused = tmp_path / "model.npz", np.random.default_rng(0), 0
    mdp.save(path)
    whole = path.read_bytes()
    for case in range(400):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged if case % 4 else whole[: rng.integers(len(whole))])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                back = lz.MDP.load(path)
        except ValueError as error:
            refused += 1
            assert str(path) in str(error)
            continue
        for name in ("rewards", "start", "absorbing", "gamma", "state_names", "action_names"):
            np.testing.assert_array_equal(getattr(back, name), getattr(mdp, name))
        np.testing.assert_array_equal(back.transitions.toarray(), mdp.transitions.toarray())
    assert refused > 200


@pytest.mark.parametrize("names", [["a\0", "a", "", "\0", "x\n"], ["\ud800", "é", "🙂", " a ", "[/bold]"]])
def test_names_survive_a_file_exactly(tmp_path, names):
    lz.MDP(P, R, 0.9, state_names=names).save(tmp_path / "model.npz")
    back = lz.MDP.load(tmp_path / "model.npz")
    assert back.state_names == tuple(names) and back.action_names is None
