"""How fast a run is, as told while it runs."""

import time

import pytest

from lazymdp._progress import Rate


def test_the_rate_is_that_since_it_was_last_asked(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = Rate(first=500)
    now[0] += 10.0  # compiling
    assert rate(600) == pytest.approx(10.0)
    now[0] += 2.0
    assert rate(2600) == pytest.approx(1000.0)
    assert rate(2600) == 0.0
