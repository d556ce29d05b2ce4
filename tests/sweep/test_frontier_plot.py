"""The frontiers of a table of results: interquartile means over seeds, by environment and method."""

import pytest

from lazymdp.sweep.frontier_plot import frontiers, plot_frontiers


def table(rows):
    names = ("env", "method", "default_policy", "price", "eta", "default_alone", "mean_return", "control_rate")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return columns | {"algorithm": ["dqn"] * len(rows), "seed": [0, 1, 0, 0, 0, 0, 0][: len(rows)]}


ROWS = [
    ("Pong", "one", "uniform", "0.1", 0.1, False, 4.0, 0.5),
    ("Pong", "one", "uniform", "0.1", 0.1, False, 6.0, 0.3),
    ("Pong", "one", "uniform", "0.01", 0.01, False, 9.0, 0.9),
    ("Pong", "one", "uniform", "0.01", None, True, 1.0, 0.0),
    ("Pong", "both", "uniform", "0.01 to 0.1", 0.01, False, 8.0, 0.8),
    ("Pong", "both", "uniform", "0.01 to 0.1", 0.1, False, 5.0, 0.4),
    ("Qbert", "one", "uniform", "budget 0.2", 0.033, False, 5.0, 0.21),
]


def test_a_point_is_a_price_over_seeds():
    found = frontiers(table(ROWS))
    assert {env: set(curves) for env, curves in found.items()} == {"Pong": {"one", "both (dial)"}, "Qbert": {"one"}}
    one = found["Pong"]["one"]
    assert one.etas.tolist() == [0.01, 0.1] and one.control_rate.tolist() == pytest.approx([0.9, 0.4])
    assert one.return_interval.mean.tolist() == [9.0, 5.0] and one.seeds == (1, 2)
    assert one.return_interval.low[1] == 4.0 and one.return_interval.high[1] == 6.0
    assert one.default_alone.return_interval.mean.tolist() == [1.0]
    assert found["Pong"]["both (dial)"].etas.tolist() == [0.01, 0.1]


def test_rows_of_one_seed_are_not_counted_as_replicates():
    first, second = (("Pong", "one", "half:one", "0.1", None, True, score, 0.0) for score in (4.0, 6.0))
    other_price = ("Pong", "one", "half:one", "0.01", None, True, 4.0, 0.0)
    lazy = ("Pong", "one", "half:one", "0.1", 0.1, False, 9.0, 0.5)
    found = frontiers(table([first, second, *[other_price] * 3, lazy]))["Pong"]["one"].default_alone
    assert found.seeds == (2, 2) and found.return_interval.mean.tolist() == [5.0]
    assert found.return_interval.low[0] == 4.0 and found.return_interval.high[0] == 6.0


def test_two_algorithms_of_a_method_are_two_curves():
    rows = table([ROWS[0], ROWS[0], ROWS[6]]) | {"algorithm": ["dqn", "pqn", "pqn"]}
    rows["mean_return"][1] = 16.0
    found = frontiers(rows)["Pong"]
    means = {name: curve.return_interval.mean.tolist() for name, curve in found.items()}
    assert means == {"one, dqn": [4.0], "one, pqn": [16.0]}


def test_two_dials_of_a_method_are_two_curves():
    other = ("Pong", "both", "uniform", "0.01 to 0.5", 0.1, False, 7.0, 0.6)
    found = frontiers(table([ROWS[4], ROWS[5], other]))["Pong"]
    means = {name: curve.return_interval.mean.tolist() for name, curve in found.items()}
    assert means == {"both (dial, 0.01 to 0.1)": [8.0, 5.0], "both (dial, 0.01 to 0.5)": [7.0]}


def test_many_curves_of_an_environment_are_drawn_in_several_panels():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [("Pong", f"method {number}", *ROWS[0][2:]) for number in range(7)]
    figure = plot_frontiers(table([*rows, ROWS[6]]) | {"seed": [0] * 8})
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Pong (1 seed)"] * 2 + ["Qbert (1 seed)"]
    drawn = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes[:2]]
    assert drawn == [[f"method {number}" for number in range(4)], [f"method {number}" for number in range(4, 7)]]
    plt.close(figure)


def test_a_panel_for_every_environment():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plot_frontiers(table(ROWS))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Pong (1 to 2 seeds)", "Qbert (1 seed)"]
    plt.close(figure)
    with pytest.raises(ValueError, match="the table of results is empty"):
        plot_frontiers(table([]))
