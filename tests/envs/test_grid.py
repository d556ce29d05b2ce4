"""All grid worlds: Gymnasium's API, the model, maps that are refused, and the pictures."""

import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from grid_walks import DOWN, LEFT, RIGHT, UP, bare
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from lazymdp._colors import BRIDGE, DEEP_WATER, FLOOR, WALL, rgb
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.envs.grid import CELL, GridWorld

WORLDS: list[tuple[str, dict[str, Any]]] = [
    ("lazymdp/RiversAndBridges-v0", {}),
    ("lazymdp/RiversAndBridges-v0", {"layout": ["S~G", ".=."]}),
    ("lazymdp/KeyDoorTreasure-v0", {}),
    ("lazymdp/KeyDoorTreasure-v0", {"apple": True}),
    ("lazymdp/KeyDoorTreasure-v0", {"layout": "K.S.D.T"}),
]


@pytest.fixture(params=WORLDS, ids=str)
def env(request: pytest.FixtureRequest) -> GridWorld:
    """Each world in turn, without Gymnasium's wrappers but with its spec."""
    env_id, kwargs = request.param
    return bare(gym.make(env_id, **kwargs))


# --- Gymnasium's rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasium_finds_no_fault(env: GridWorld, render_mode: str | None) -> None:
    assert env.spec is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(bare(gym.make(env.spec, render_mode=render_mode)))


def test_made_by_id_and_rebuilt_from_spec(env: GridWorld) -> None:
    assert env.spec is not None and gym.spec(env.spec.id).max_episode_steps == 1000
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json())):
        twin = bare(gym.make(spec))
        assert twin is not env and twin.layout == env.layout and twin.P == env.P


def test_same_seed_same_episode(env: GridWorld) -> None:
    def episode() -> list[Any]:
        env.action_space.seed(3)
        seen: list[Any] = [env.reset(seed=7)]
        while len(seen) < 30 and not (len(seen) > 1 and seen[-1][2]):
            seen.append(env.step(env.action_space.sample()))
        return seen

    assert episode() == episode()


def test_reset_samples_the_initial_distribution(env: GridWorld) -> None:
    (start,) = np.flatnonzero(env.initial_state_distrib)
    row, column = env.cells[start]
    assert env.layout[row][column] == "S"
    env.initial_state_distrib[:] = 0
    env.initial_state_distrib[[0, 1]] = 0.25, 0.75

    def starts(seed: int) -> list[int]:
        return [env.reset(seed=seed)[0]] + [env.reset()[0] for _ in range(39)]

    assert starts(0) == starts(0) != starts(1)
    assert set(starts(0)) == {0, 1}
    state, info = env.reset(seed=0)
    assert info == {"prob": env.initial_state_distrib[state]}


def test_info_keys_are_the_documented_ones(env: GridWorld) -> None:
    section = (type(env).__doc__ or "").split("## Information")[1].split("##")[0]
    documented = set(re.findall(r"^\s*- `(\w+)`:", section, flags=re.MULTILINE))
    assert documented == set(env.reset()[1]) == set(env.step(UP)[4])


@pytest.mark.parametrize("default", [RiversAndBridges(), KeyDoorTreasure(apple=True)], ids=str)
def test_documentation_shows_the_default_map(default: GridWorld) -> None:
    page = [line.strip() for line in (type(default).__doc__ or "").splitlines()]
    first = page.index(default.layout[0])
    assert tuple(page[first : first + len(default.layout)]) == default.layout
    assert f"`Discrete({len(default.P)})`" in " ".join(page)


@pytest.mark.parametrize("action", [-1, 4, 1.0, "up"])
def test_unknown_action_is_refused(action: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"received {action!r}")):
        RiversAndBridges().step(action)


# --- The model -----------------------------------------------------------------------------------


def test_step_does_what_the_model_says(env: GridWorld) -> None:
    env.reset(seed=0)
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            assert sum(prob for prob, *_ in outcomes) == 1
            env.s = state
            next_state, reward, terminated, truncated, info = env.step(action)
            assert (info["prob"], next_state, reward, terminated) in outcomes
            assert env.s == next_state and not truncated


def test_model_is_complete_and_plain(env: GridWorld) -> None:
    n_states = len(env.state_names)
    assert list(env.P) == list(range(n_states))
    assert env.observation_space == gym.spaces.Discrete(n_states)
    assert len(set(env.state_names)) == n_states
    assert env.cells.shape == (n_states, 2) and env.initial_state_distrib.shape == (n_states,)
    assert env.action_names == ("up", "right", "down", "left")
    assert env.grid_shape == (len(env.layout), len(env.layout[0]))
    for actions in env.P.values():
        assert list(actions) == [UP, RIGHT, DOWN, LEFT]
        for [outcome] in actions.values():
            assert [type(entry) for entry in outcome] == [float, int, float, bool]


def test_terminal_states_absorb(env: GridWorld) -> None:
    ends = {out[1] for actions in env.P.values() for [out] in actions.values() if out[3]}
    assert ends
    for state in ends:
        assert all(outcome == [(1.0, state, 0.0, True)] for outcome in env.P[state].values())


def non_absorbing(env: GridWorld) -> int:
    """Returns the number of states that some action leaves."""
    return sum(any(outcome[1] != state for [outcome] in actions.values()) for state, actions in env.P.items())


def test_number_of_states() -> None:
    assert len(RiversAndBridges().P) == 75
    assert len(KeyDoorTreasure().P) == 206
    assert non_absorbing(RiversAndBridges()) == 75 - 12 - 1
    assert non_absorbing(KeyDoorTreasure()) == 204
    assert non_absorbing(KeyDoorTreasure(apple=True)) == 202


# --- Maps ----------------------------------------------------------------------------------------


def test_text_and_rows_give_the_same_map() -> None:
    rows = ("S~G", ".=.")
    indented = """
        S~G
        .=.
    """
    for layout in (rows, list(rows), "S~G\n.=.", "S~G\n    .=.\n", indented):
        assert RiversAndBridges(layout).layout == rows


@pytest.mark.parametrize(
    ("world", "kwargs", "message"),
    [
        (RiversAndBridges, {"layout": ["S.G", ".."]}, "row 1 has length 2, but row 0 has length 3"),
        (RiversAndBridges, {"layout": "S.G\n\n..."}, "row 1 has length 0"),
        (RiversAndBridges, {"layout": ["S.G", ".#."]}, "'#' at row 1, column 1"),
        (RiversAndBridges, {"layout": ["S.G", ". ."]}, "' ' at row 1, column 1"),
        (RiversAndBridges, {"layout": ["S.G", "..x"]}, "use one of 'S' start, '.' floor"),
        (RiversAndBridges, {"layout": ["S.G", "..S"]}, "'S' at row 1, column 2"),
        (RiversAndBridges, {"layout": ["S.G", "..S"]}, "first is at row 0, column 0"),
        (RiversAndBridges, {"layout": ["..G"]}, "no start: put one 'S'"),
        (RiversAndBridges, {"layout": ["S.."]}, "no goal: put a 'G'"),
        (RiversAndBridges, {"layout": "  \n "}, "layout is empty"),
        (RiversAndBridges, {"layout": [""]}, "layout is empty"),
        (KeyDoorTreasure, {"layout": ["S/T"]}, "'/' at row 0, column 1"),
        (KeyDoorTreasure, {"layout": ["SK."]}, "no treasure: put a 'T'"),
        (KeyDoorTreasure, {"layout": ["SKT", "..K"]}, "second key 'K' at row 1, column 2"),
        (KeyDoorTreasure, {"layout": ["SKT", "..K"]}, "the first is at row 0, column 1"),
        (KeyDoorTreasure, {"layout": ["S.", "DT"]}, "door 'D' at row 1, column 0"),
        (KeyDoorTreasure, {"layout": ["S.T"], "apple": True}, "no apple: put an 'A'"),
        (KeyDoorTreasure, {"render_mode": "human"}, "received 'human'"),
    ],
)
def test_bad_arguments_are_explained(world: type[GridWorld], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        world(**kwargs)
    text = str(error.value)
    assert message in text
    assert ("column" in text) <= ("counted from 0" in text)


@pytest.mark.parametrize("layout", [3, b"SG", [["S", "G"]], {"S", "G"}])
def test_what_is_no_map_is_a_type_error(layout: Any) -> None:
    with pytest.raises(TypeError, match="a string or a sequence of strings"):
        RiversAndBridges(layout)


# --- Pictures ------------------------------------------------------------------------------------


def test_pixels(env: GridWorld) -> None:
    env.render_mode = "rgb_array"
    frames = []
    for state in range(0, len(env.P), 1 if len(env.P) < 20 else 9):
        env.s = state
        frame = env.render()
        assert isinstance(frame, np.ndarray) and frame.dtype == np.uint8
        assert frame.shape == (CELL * env.grid_shape[0], CELL * env.grid_shape[1], 3)
        frames.append(frame.tobytes())
    assert len(set(frames)) == len(frames)  # no two states look alike


def test_moving_changes_only_the_cells_left_and_entered() -> None:
    env = RiversAndBridges(render_mode="rgb_array")
    env.reset()
    before = env.render()
    env.step(RIGHT)
    after = env.render()
    assert isinstance(before, np.ndarray) and isinstance(after, np.ndarray)
    changed = np.argwhere((before != after).any(axis=2)) // CELL
    assert {tuple(cell) for cell in changed.tolist()} == {(0, 0), (0, 1)}


def test_grounds_differ_in_gray() -> None:
    grays = np.sort(np.array([rgb(color) for color in (FLOOR, BRIDGE, DEEP_WATER, WALL)]) @ [0.299, 0.587, 0.114])
    assert np.diff(grays).min() > 35


def test_no_render_mode_is_said_aloud() -> None:
    with pytest.warns(UserWarning, match="render_mode='ansi'"):
        assert RiversAndBridges().render() is None
