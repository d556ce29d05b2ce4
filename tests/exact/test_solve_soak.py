"""A sample of the soak test: random models of every difficult kind against rational arithmetic."""

from soak.exact_models import KINDS, check_models


def test_no_answer_is_wrong_and_none_is_refused_needlessly():
    counts, problems = check_models(6 * len(KINDS), seed=1)
    assert not problems
    assert sum(count["answers"] for count in counts.values()) > 4.5 * 6 * len(KINDS)
