"""Evaluations as text and as tables; their values are tested with the theorems in test_solve_theorems."""

import csv

import numpy as np
from random_models import random_model

import lazymdp as lz

MODEL = random_model(2, n_states=300, successors=3)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def evaluation():
    lazy = lz.LazyMDP(MODEL.mdp, MODEL.default, 0.1)
    return lz.evaluate(lazy, lz.solve(lazy).action)


def test_an_evaluation_prints_in_one_line():
    found = evaluation()
    text = repr(found)
    assert text.startswith("Evaluation(300 states: value ")
    assert f"control_count 0 to {found.control_count.max():.4g})" in text
    assert len(text) < 200 and "\n" not in text


def test_an_evaluation_is_written_as_a_table(tmp_path):
    found = evaluation()
    found.to_csv(tmp_path / "evaluation.csv")
    rows = rows_of(tmp_path / "evaluation.csv")
    assert list(rows[0]) == ["state", "value", "base_value", "control_cost", "control_count"]
    for name in ("value", "base_value", "control_cost", "control_count"):
        np.testing.assert_array_equal([float(row[name]) for row in rows], getattr(found, name))
