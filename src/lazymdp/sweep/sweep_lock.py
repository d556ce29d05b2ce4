"""One sweep at a time in a folder: a lock in a local folder, a lease in a remote one.

A local lock is released by the operating system when its process ends. A remote folder is held by the sweep that made
the lease with the highest number, `lease-1.json`, `lease-2.json`, ... It renews this file every ten seconds and deletes
it at the end. A sweep that finds a lease waits for three renewals. If the lease is renewed meanwhile, the other sweep
runs, and this one gives up; if not, the other one was killed, and this one makes the lease with the next number. On S3
this is a conditional write: of two sweeps that try, one succeeds. A sweep stops when it finds at a renewal that it does
not hold the folder any longer, because it was cut off for so long that another one has taken over.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from lazymdp._files import locked
from lazymdp.sweep.sweep_folder import SweepFolder

_LEASE = re.compile(r"lease-(\d+)\.json")
RENEW_SECONDS = 10.0
"""Seconds between two renewals of a lease."""
_MISSED = 3
"""Renewals that are missing before a lease counts as abandoned."""


@contextmanager
def only_sweep(folder: SweepFolder, tell: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Holds a folder for one sweep. Yields a function that returns whether another sweep has taken it over.

    Raises:
        ValueError: Another sweep runs in the folder.
    """
    if folder.local is None:
        lease = _Lease(folder, tell)
        lease.acquire()
        try:
            yield lambda: lease.lost
        finally:
            lease.release()
        return
    folder.local.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder.local / ".lock", wait=False))
        except BlockingIOError as error:
            raise ValueError(f"another sweep runs in {folder.local}: stop it first.") from error
        yield lambda: False


class _Lease:
    """The lease of a remote folder."""

    def __init__(self, folder: SweepFolder, tell: Callable[[str], None]) -> None:
        self._folder, self._tell, self._number, self._renewals = folder, tell, 0, 0
        self._me = {"owner": uuid.uuid4().hex, "machine": platform.node(), "process": os.getpid()}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self.lost = False

    def acquire(self) -> None:
        """Makes a lease; raises an error if another sweep holds the folder."""
        numbers = self._numbers()
        if numbers:
            self._wait_for_renewal(max(numbers))
        self._number = max(numbers, default=0) + 1
        if not self._folder.create(_name(self._number), self._text()) or not self._holds():
            raise self._refused()
        for number in numbers:
            self._folder.remove(_name(number))
        self._thread.start()

    def release(self) -> None:
        """Gives the lease up."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self._folder.remove(_name(self._number))

    def _wait_for_renewal(self, number: int) -> None:
        """Raises an error if a lease is renewed."""
        text, wait = self._folder.read(_name(number)), _MISSED * RENEW_SECONDS
        self._tell(f"Waiting {wait:g} s to see whether another sweep still runs in {self._folder.shown}.")
        for _ in range(2 * _MISSED):
            time.sleep(0.5 * RENEW_SECONDS)
            now = self._folder.read(_name(number))
            if now is not None and now != text:
                raise self._refused()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with suppress(OSError):  # the next renewal may succeed
                if not self._holds():
                    self.lost = True
                    return
                self._renewals += 1
                self._folder.write(_name(self._number), self._text())

    def _holds(self) -> bool:
        """Returns whether the lease is still there, and no other one has a higher number."""
        return max(self._numbers(), default=0) == self._number

    def _numbers(self) -> list[int]:
        found = map(_LEASE.fullmatch, self._folder.names(""))
        return sorted(int(match[1]) for match in found if match)

    def _text(self) -> str:
        return SweepFolder.sealed({**self._me, "renewals": self._renewals})

    def _refused(self) -> ValueError:
        about = self._folder.read_sealed(_name(max(self._numbers(), default=0))) or {}
        who = f"process {about.get('process', '?')} on {about.get('machine', '?')}"
        return ValueError(f"another sweep runs in {self._folder.shown} ({who}): stop it first.")


def _name(number: int) -> str:
    return f"lease-{number}.json"
