"""The ids of learning tests, which have their seed among their parameters (see `conftest`)."""

import re


def seed_of(test):
    """The seed in the id of a test, or None."""
    found = re.search(r"(?<=[\[-])seed(\d+)(?=[-\]])", test)
    return None if found is None else int(found[1])


def without_seed(test):
    """The id of a test without its seed; its other parameters remain."""
    return re.sub(r"(?<=\[)seed\d+-?|-seed\d+(?=[-\]])", "", test).removesuffix("[]")
