"""The lag and the rate of a job over the last day, in a small file for `odradek pipeline status`.

The file is a ring of minutes (`odradek.minutes`), so it never grows beyond 40 KB: the level is the lag in all
partitions, and the amount is the number of offsets that the batches of the minute spanned.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.errors import FormatError, JobError
from odradek.minutes import RING_BYTES, SLOT_BYTES, Minute, Minutes, this_minute
from odradek.offsets.store import Position, parse_address
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.observer import Observer
from odradek.spark.ranges import Topics
from odradek.storage.files import FILES
from odradek.storage.names import TopicPartition
from odradek.storage.regular_files import read_file


def history_path(job: Job) -> Path | None:
    """Return where the history of a job is kept: as the job says, else with its state or beside its store's file."""
    if job.history is not None:
        return job.history
    if job.state is not None:
        return job.state.path / "odradek.history"
    store = parse_address(job.offset_store)
    return Path(f"{store.path}.history") if store.scheme == "file" else None


def read_history(path: Path) -> list[Minute]:
    """Return the minutes of the last day, in order; none if the file cannot be read."""
    return _kept(path).until(this_minute())


def _kept(path: Path) -> Minutes:
    try:
        return Minutes(read_file(path, RING_BYTES))
    except (OSError, FormatError):
        return Minutes()


def _check_history(path: Path) -> None:
    """Raise `JobError` if a file is something else, which a history would destroy."""
    if not path.is_file():
        return
    try:
        content = read_file(path, RING_BYTES)
    except OSError:
        # Writing it fails, too, and is reported then.
        return
    except FormatError as error:
        raise JobError(f"{path} is no history of a job: {error}", "metrics.history") from error
    # A crash in the first write leaves no more than a torn slot.
    if len(content.strip(b"\0")) > SLOT_BYTES and Minutes(content).is_empty:
        raise JobError(f"{path} is no history of a job", "metrics.history")


class History(Observer):
    """Keeps the history of a job.

    Args:
        path: The file.

    Raises:
        JobError: It holds something else.
    """

    def __init__(self, path: Path) -> None:
        _check_history(path)
        self._path = path
        self._minutes = _kept(path)

    def looked(
        self, topics: Topics, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Note the lag."""
        self._note(sum(max(0, end - positions[name].offset) for name, end in end_offsets.items()), 0)

    def done(self, batch: BatchReport) -> None:
        """Note the rate."""
        self._note(batch.lag, batch.offsets)

    def _note(self, lag: int, offsets: int) -> None:
        changed = self._minutes.note(this_minute(), lag, offsets)
        if changed is not None:
            with FILES.open(self._path) as file:
                file.write_at(*changed)
