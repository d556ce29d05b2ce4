"""Key-Door-Treasure: the key, the door, the treasure and the apple."""

from grid_walks import DOWN, LEFT, RIGHT, UP, state_at, walk

from lazymdp.envs import KeyDoorTreasure


def test_key_order_and_names() -> None:
    env = KeyDoorTreasure()
    assert not env.has_key[:103].any() and env.has_key[103:].all()
    assert (env.cells[:103] == env.cells[103:]).all()
    assert env.reset()[0] == state_at(env, 3, 2)
    assert env.state_names[state_at(env, 3, 2)] == "(row 3, column 2), without key"
    assert env.state_names[state_at(env, 3, 2, key=True)] == "(row 3, column 2), with key"


def test_door_is_a_wall_without_the_key() -> None:
    env = KeyDoorTreasure(layout="K.S.D.T")
    assert walk(env, [RIGHT, RIGHT, RIGHT]) == ([2, 3, 3, 3], 0.0, False)
    states, total, terminated = walk(env, [LEFT] * 2 + [RIGHT] * 6)
    assert states == [2, 1, 7, 8, 9, 10, 11, 12, 13]
    assert (total, terminated) == (1.0, True)


def test_unreachable_states_follow_the_same_rule() -> None:
    env = KeyDoorTreasure(layout="K.S.D.T")
    assert [env.P[0][action][0][1] for action in range(4)] == [7, 1, 7, 7]  # on the key, without
    assert [env.P[4][action][0][1] for action in range(4)] == [4, 5, 4, 3]  # in the door, without
    assert env.P[5][RIGHT] == [(1.0, 6, 1.0, True)]  # the treasure pays without the key as well


def test_walls_stop_and_are_no_states() -> None:
    env = KeyDoorTreasure(layout=["S#", ".T"])
    assert len(env.P) == 6
    assert walk(env, [RIGHT, DOWN, RIGHT]) == ([0, 0, 1, 2], 1.0, True)


def test_default_map_can_be_solved() -> None:
    to_key = [RIGHT] * 2 + [DOWN] * 8
    to_treasure = [UP] * 6 + [RIGHT] * 3 + [DOWN] * 5
    env = KeyDoorTreasure()
    states, total, terminated = walk(env, to_key + to_treasure)
    assert (total, terminated) == (1.0, True)
    assert env.has_key[states].tolist() == [False] * 10 + [True] * 15


def test_apple_ends_the_episode_only_when_asked_for() -> None:
    to_apple = [RIGHT, RIGHT, UP]
    assert walk(KeyDoorTreasure(apple=True), to_apple)[1:] == (0.1, True)
    assert walk(KeyDoorTreasure(), to_apple)[1:] == (0.0, False)
    with_apple, without = KeyDoorTreasure(apple=True), KeyDoorTreasure()
    assert with_apple.layout[2][4] == "A" and without.layout[2][4] == "."
    for key in (False, True):
        below = state_at(with_apple, 3, 4, key)
        on = state_at(with_apple, 2, 4, key)
        assert with_apple.P[below][UP] == [(1.0, on, 0.1, True)]
        assert without.P[below][UP] == [(1.0, on, 0.0, False)]


def test_text_shows_agent_key_and_door() -> None:
    env = KeyDoorTreasure(layout="K.S.D.T", render_mode="ansi")
    walk(env, [LEFT])
    assert env.render() == "K@S.D.T\n@ (row 0, column 1), without key\n"
    walk(env, [LEFT, LEFT, RIGHT])
    assert env.render() == ".@S./.T\n@ (row 0, column 1), with key\n"
