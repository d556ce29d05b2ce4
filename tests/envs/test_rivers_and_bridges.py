"""Rivers & Bridges: the order of its states, its edges, its rewards."""

from grid_walks import DOWN, LEFT, RIGHT, UP, walk

from lazymdp.envs import RiversAndBridges


def test_rivers_order_and_names() -> None:
    env = RiversAndBridges()
    assert env.cells[17].tolist() == [1, 2]
    assert env.state_names[17] == "(row 1, column 2)"
    assert env.reset()[0] == 0


def test_rivers_edges_goal_and_water() -> None:
    env = RiversAndBridges(["S~G", ".=."])
    assert walk(env, [UP, LEFT]) == ([0, 0, 0], 0.0, False)
    assert walk(env, [DOWN, RIGHT, RIGHT, UP]) == ([0, 3, 4, 5, 2], 1.0, True)
    assert walk(env, [RIGHT]) == ([0, 1], -100.0, True)
    assert walk(env, [DOWN, RIGHT, UP]) == ([0, 3, 4, 1], -100.0, True)


def test_rivers_default_map_can_be_crossed() -> None:
    to_goal = [DOWN] * 2 + [RIGHT] * 4 + [UP] + [RIGHT] * 4 + [DOWN] * 2 + [RIGHT] * 6 + [UP] * 3
    _, total, terminated = walk(RiversAndBridges(), to_goal)
    assert (total, terminated) == (1.0, True)
