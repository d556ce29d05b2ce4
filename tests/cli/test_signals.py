"""Ctrl-C and SIGTERM: the first signal stops gently once there is something to save, a second one at once."""

import os
import signal
import sys

import pytest

from lazymdp.cli.signals import stopped_gently, terminated_like_interrupted


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_gently_and_a_second_one_at_once(how, capfd):
    before = signal.getsignal(how)
    with stopped_gently() as stop:
        stop.gently = True
        os.kill(os.getpid(), how)
        assert stop()
        assert "Stopping after this iteration. Press Ctrl-C again to stop now." in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), how)
    assert signal.getsignal(how) is before


def test_a_signal_that_falls_into_a_destructor_is_not_lost(monkeypatch):
    class Unlucky:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    with stopped_gently() as stop:
        Unlucky()
        assert dropped == [KeyboardInterrupt]  # by Python
        assert stop()


def test_termination_is_an_interrupt():
    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
