"""Fig. 11: the distances that importance is compared with."""

import numpy as np

from lazymdp.experiments import fig11, paper_worlds


def test_moves_to_the_treasure_are_a_walk():
    states = fig11.run(fig11.Config())["states"]
    _, mdp = paper_worlds.key_door_treasure()
    successors = mdp.transitions.indices.reshape(-1, 4)
    moves = states["moves_to_treasure"]
    alive = ~mdp.absorbing
    np.testing.assert_array_equal(moves[alive], 1 + moves[successors[alive]].min(axis=1))
    assert fig11._share_near(states, "critical_eta") < 1.0
