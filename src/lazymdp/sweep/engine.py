"""The engine of a sweep: starts jobs, retries those that fail, sets aside those that keep failing, writes the table.

All state is in the folder of the sweep. The engine can be killed at any moment; started again, it finds which runs are
done and which checkpoints exist. Where jobs run is the business of a pool: local workers (`local_pool`) or the nodes of
a Ray cluster (`ray_pool`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from lazymdp.sweep.execute import Job
from lazymdp.sweep.redact import without_secrets
from lazymdp.sweep.results_table import RunLabels, write_table
from lazymdp.sweep.supervise import Outcome
from lazymdp.sweep.sweep_folder import FAILED, OBSTACLE, RESULT, SweepFolder

RETRIES = 3
"""Number of times a job is tried again, from its checkpoint, before it is set aside."""
_FIRST_WAIT = 2.0
"""Seconds before the first retry of a job; they double with every retry."""
_TABLE_SECONDS = 2.0
"""Smallest number of seconds between two versions of the table, except for the last."""


_LOOK_SECONDS = 5.0
"""Seconds between checks whether any job can be started at all."""


class Pool(Protocol):
    """Where jobs are executed."""

    def room(self) -> int:
        """Returns how many more jobs can be started now."""

    def obstacle(self) -> str:
        """Returns why no job can be started for now, and the remedy; an empty text if jobs can be started."""

    def start(self, job: Job) -> None:
        """Starts a job."""

    def expect(self, waiting: int) -> None:
        """Tells the pool how many jobs wait, so that it can prepare for the next one."""

    def finished(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Returns the jobs that have ended, after waiting for at most some seconds for one."""

    def stop(self) -> None:
        """Asks all jobs to stop with a checkpoint. `finished` still returns them."""

    @property
    def running(self) -> int:
        """Number of jobs that have been started and have not been returned by `finished`."""


@dataclass
class Sweep:
    """A sweep in progress.

    Args:
        folder: The folder of the sweep.
        labels: All runs of the study, in their order.
        results: Results of the runs that are done, by id; the engine adds to it.
        pool: Where jobs are executed.
        tell: Called with a line of text for the user.
        stop: Called often; if it returns True, all jobs are asked to stop, and the sweep ends.
    """

    folder: SweepFolder
    labels: Sequence[RunLabels]
    results: dict[str, dict[str, Any]]
    pool: Pool
    tell: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False
    failures: dict[str, int] = field(default_factory=dict)
    set_aside: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    table_error: str = ""
    _obstacle: str | None = None

    def run(self, jobs: Sequence[Job]) -> None:
        """Executes jobs until all are done or set aside, or until the sweep is stopped."""
        waiting, not_before, written = list(jobs), dict.fromkeys((job.id for job in jobs), 0.0), 0.0
        unwritten, looked = True, -math.inf
        while waiting or self.pool.running:
            if self.stop() and not self.stopped:
                self.stopped = True
                waiting.clear()
                self.pool.stop()
            waiting = self._without_lost(waiting)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                self._tell_obstacle(self.pool.obstacle())
                looked = time.monotonic()
            for _ in range(self.pool.room() if not self.stopped else 0):
                job = next(
                    (job for job in waiting if self._ready(job) and not_before[job.id] <= time.monotonic()), None
                )
                if job is None:
                    break
                waiting.remove(job)
                self.pool.start(job)
            self.pool.expect(len(waiting))
            if unwritten and time.monotonic() - written >= _TABLE_SECONDS:
                unwritten, written = not self._write_table(), time.monotonic()
            for job, outcome in self.pool.finished(0.2):
                outcome = _redacted(self._collected(job) if outcome.status == "done" else outcome)
                unwritten = unwritten or outcome.status == "done"
                if outcome.status == "failed" and not self.stopped and self._failed(job, outcome):
                    waiting.insert(0, job)
                    not_before[job.id] = time.monotonic() + _FIRST_WAIT * 2 ** (self.failures[job.id] - 1)
        self._tell_obstacle("")
        self._write_table()

    def _tell_obstacle(self, found: str) -> None:
        """Tells the user once why nothing can start, and leaves it in the folder for `sweep status`."""
        if found and not self._obstacle:
            self.tell(found)
        if found != self._obstacle:
            with suppress(OSError):  # it is written for information only
                if found:
                    self.folder.write_sealed(OBSTACLE, {"reason": found})
                else:
                    self.folder.remove(OBSTACLE)
        self._obstacle = found

    def _ready(self, job: Job) -> bool:
        return all(name in self.results for name in job.needed_runs)

    def _without_lost(self, waiting: list[Job]) -> list[Job]:
        """Sets aside jobs that need the agent of a run that was set aside; returns the others."""
        for job in waiting:
            lost = sorted(job.needed_runs & set(self.set_aside))
            if lost:
                self._set_aside(job, Outcome("failed", f"it needs the run {lost[0]}, which was set aside"), 0)
        return [job for job in waiting if job.specs[0].id not in self.set_aside]

    def _collected(self, job: Job) -> Outcome:
        """Takes over the results of a job that says that it is done; it has failed if one of them is not there."""
        try:
            found = {spec.id: self.folder.read_sealed(f"runs/{spec.id}/{RESULT}") for spec in job.specs}
        except OSError as error:  # a remote folder that cannot be reached
            return Outcome("failed", f"its result cannot be read: {error}")
        self.results.update({name: result for name, result in found.items() if result is not None})
        missing = [name for name, result in found.items() if result is None]
        if missing:
            where = f"{self.folder.shown}/runs/{missing[0]}/{RESULT}"
            question = "can every node reach this folder, and have they all the same lazymdp?"
            return Outcome("failed", f"{where} is missing or damaged; {question}")
        self.tell(f"{self._counts()}  {self._name(job)}")
        return Outcome("done")

    def _failed(self, job: Job, outcome: Outcome) -> bool:
        """Counts a failure; returns whether the job is tried again."""
        self.failures[job.id] = self.failures.get(job.id, 0) + 1
        if self.failures[job.id] > RETRIES:
            self._set_aside(job, outcome, self.failures[job.id])
            return False
        self.tell(f"{self._name(job)}: {outcome.reason.rstrip('.')}. Retry {self.failures[job.id]} of {RETRIES}.")
        return True

    def _set_aside(self, job: Job, outcome: Outcome, attempts: int) -> None:
        self.tell(f"{self._name(job)}: {outcome.reason.rstrip('.')}. Set aside after {attempts} attempts.")
        for spec in job.specs:
            if spec.id in self.results:
                continue
            self.set_aside[spec.id] = outcome.reason
            about = {"run": spec.id, "reason": outcome.reason, "log": outcome.log, "attempts": attempts}
            try:
                self.folder.write_sealed(f"runs/{spec.id}/{FAILED}", about)
            except OSError as error:  # the run is set aside in this process at least
                self.tell(f"{FAILED} of {spec.id} was not written: {error}")

    def _write_table(self) -> bool:
        """Writes the table; returns whether it was written. A full disk leaves the previous table."""
        try:
            write_table(self.folder, self.labels, self.results)
            self.table_error = ""
        except OSError as error:
            self.table_error = str(error)
        return not self.table_error

    def _counts(self) -> str:
        return f"{len(self.results)} of {len({label.run for label in self.labels})} done"

    def _name(self, job: Job) -> str:
        label = next(label for label in self.labels if label.run == job.specs[0].id)
        more = f" and {len(job.specs) - 1} more" if len(job.specs) > 1 else ""
        policy = f"default policy {label.default_policy}, " if self._several_policies else ""
        return f"{label.method} on {label.env}, {policy}price {label.price}, seed {label.seed} ({label.run}{more})"

    @cached_property
    def _several_policies(self) -> bool:
        return len({label.default_policy for label in self.labels}) > 1


def _redacted(outcome: Outcome) -> Outcome:
    """Takes secrets out of what a pool or a remote folder says; what a run says is redacted where it runs, too."""
    return replace(outcome, reason=without_secrets(outcome.reason), log=without_secrets(outcome.log))
