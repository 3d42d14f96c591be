"""When a job that failed is started again, by the same process.

    another driver has taken over          never: the two would take the job from each other without end
    a Python worker of Spark was lost      at once, up to three times in a row, whatever the job's file says; then the
                                           record that ends it is looked for
    anything else                          after `backoff`, twice that, and so on, up to `attempts` times in a row

A finished batch resets the count. The next run repeats the batch that failed; sinks skip what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.errors import CommitConflictError, JobError, OdradekError

FAILURES = (OdradekError, OSError, ImportError, RecursionError)
"""What ends a job; all else is a mistake of ours."""
WORKER_ATTEMPTS = 3
_MOST_WAIT_S = 600.0


class WorkerLostError(JobError):
    """A Python worker of Spark ended in the middle of a batch, or did not start in time."""


class WorkerEndedError(WorkerLostError):
    """A Python worker of Spark ended in the middle of a batch."""


@dataclass(frozen=True)
class Restart:
    """How often a job that failed is started again.

    Attributes:
        attempts: How many times in a row.
        backoff_ms: How long the first wait is; each further one is twice as long as the one before, up to ten minutes.
    """

    attempts: int = 0
    backoff_ms: int = 10_000

    def wait_s(self, failure: Exception, failures: int) -> float | None:
        """Return how long to wait before the next attempt; None if there is no further attempt.

        Args:
            failure: What ended the run.
            failures: How many runs in a row have failed without a batch, with this one.
        """
        if isinstance(failure, CommitConflictError | BrokenPipeError):
            return None
        if isinstance(failure, WorkerLostError) and failures <= WORKER_ATTEMPTS:
            return 0.0
        if failures <= self.attempts:
            return min(self.backoff_ms / 1000 * 2.0 ** min(failures - 1, 30), _MOST_WAIT_S)
        return None
