"""The agent at half of its final score."""

import pytest

from lazymdp.sweep.half_trained import closest_to_half


@pytest.mark.parametrize(
    ("scores", "random_score", "place"),
    [
        ([0.0, 4.0, 6.0, 9.0, 10.0], 0.0, 1),  # 5 is half; the first of two that are equally close
        ([-20.0, -12.0, -3.0, 15.0, 20.0], -20.0, 2),  # Pong: half way from -20 to 20 is 0
        ([-30.0, -24.0, -19.0, -10.0], -30.0, 2),  # a final score below 0: half of it, -5, would be better than it
        ([1.0, 1.0, 1.0], 1.0, 0),  # nothing was learned
    ],
)
def test_the_goal_is_half_way_from_random_choices_to_the_final_score(scores, random_score, place):
    assert closest_to_half(scores, random_score) == place
