"""The folder in which Spark keeps the state of a job, bound to the job's offset store.

    state/
      odradek.json          {"id": "5f0c9a7be3d4c821", "start": {"texts": {"0": 1200, "topic_id": ...}}}
      odradek.lock          held by the one pipeline that uses the state
      offsets/17            what batch 17 reads up to; Spark writes it before the batch
      commits/17            batch 17 is done; Spark writes it after the sinks and the offset store have it
      state/ ...            the state after each batch

So the store has the offsets of the last batch that is done, or, if the driver died after the store took the batch's
end, those of the next one. Any other position belongs to another state.

Some batches read nothing: they only give the rows of windows that a watermark has closed. So batches are told apart by
their numbers, which are the offsets of a partition of their own, `odradek.state.ID-0`: sinks keep its position beside
those of the source's partitions. The id is new in each new folder, where Spark counts from 0 again.

Source in Spark: MicroBatchExecution, OffsetSeqLog, CommitLog.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from odradek.errors import JobError, OffsetStoreError
from odradek.offsets.spark_checkpoint import done_batches, planned_batches, read_batch
from odradek.offsets.store import Position
from odradek.offsets.stream_offsets import format_stream_offsets, parse_stream_offsets
from odradek.spark.ranges import OffsetRange
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.file_lock import FileLock
from odradek.storage.files import write_atomically
from odradek.storage.names import TopicPartition

_KEY = "state.path"
_START = -1
"""The number of the batch before the first one: the positions at which the state begins."""


class StateFolder:
    """The state of a job, used by one pipeline at a time.

    Args:
        path: The folder; it is created if it is missing.

    Attributes:
        path: The folder.

    Raises:
        JobError: Another pipeline uses it, or it is not the state of a pipeline.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / "odradek.json"
        self._lock = FileLock(path / "odradek.lock")
        try:
            check_outside(path)
            path.mkdir(parents=True, exist_ok=True)
            if not self._lock.acquire():
                raise JobError(f"{path}: another pipeline uses this state", _KEY)
            self._id, self._start = self._read()
            if self.is_new and done_batches(path):
                # Spark would begin with batch 0, and find it done.
                raise JobError(
                    f"{path / 'offsets'}: no batch, and {path / 'commits'} says that batches are done: a part of the "
                    "state is lost. Restore it, or remove all of the folder to begin with an empty state at the "
                    "store's positions",
                    _KEY,
                )
        except OSError as error:
            self._lock.release()
            raise JobError(f"{error.filename or path}: {error.strerror}", _KEY) from error
        except BaseException:
            self._lock.release()
            raise

    @property
    def is_new(self) -> bool:
        """Whether Spark has planned no batch yet."""
        return not planned_batches(self.path)

    @property
    def last_planned(self) -> int:
        """The number of the last batch that Spark has planned, or -1 if there is none."""
        return max(planned_batches(self.path), default=_START)

    @property
    def last_done(self) -> int:
        """The number of the last batch that Spark says is done, or -1 if there is none."""
        return max(done_batches(self.path), default=_START)

    def begin(self, start: Mapping[TopicPartition, Position]) -> None:
        """Begin a new state at positions, which the store holds.

        Raises:
            JobError: The folder cannot be written.
        """
        self._id, self._start = secrets.token_hex(8), dict(start)
        content = {"id": self._id, "start": format_stream_offsets(start)}
        try:
            write_atomically(self._file, json.dumps(content, ensure_ascii=False, indent=1).encode())
        except OSError as error:
            # A full disk names no file.
            raise JobError(f"{self._file}: {error.strerror}", _KEY) from error

    def first_offsets(self) -> str:
        """Return where the state begins, as the streaming source takes it."""
        return json.dumps(format_stream_offsets(self._start))

    def ends(self, number: int) -> dict[TopicPartition, Position]:
        """Return the positions after a batch; -1 gives those at which the state begins.

        Raises:
            JobError: The checkpoint cannot be read.
        """
        if number == _START:
            return dict(self._start)
        try:
            return read_batch(self.path, number)
        except OffsetStoreError as error:
            raise JobError(str(error), _KEY) from error

    def batch_range(self, number: int) -> OffsetRange:
        """Return the number of a batch as the range of a partition of its own."""
        return OffsetRange(TopicPartition(f"odradek.state.{self._id}", 0), number, number + 1)

    def token(self, number: int) -> str:
        """Return the name of a batch, by which the store says that it is done."""
        return f"state-{self._id}-{number}"

    def check(self, stored: Mapping[TopicPartition, Position]) -> None:
        """Check, before Spark starts, that positions are those of the state.

        Args:
            stored: The positions in the store of the partitions that the source has.

        Raises:
            JobError: They are not.
        """
        planned, done = self.last_planned, self.last_done
        if planned > done and self._is_at(stored, self.ends(planned)):
            return
        self._require(stored, self.ends(done))

    def is_done(self, number: int, stored: Mapping[TopicPartition, Position]) -> bool:
        """Return whether the store has the end of a batch, which Spark then only repeats.

        Raises:
            JobError: It has neither that nor the end of the batch before.
        """
        before, after = self.ends(number - 1), self.ends(number)
        if self._is_at(stored, after):
            token = self.token(number)
            grown = any(name not in before or before[name].offset != place.offset for name, place in after.items())
            return grown or any(place.batch == token for place in stored.values())
        # A partition that was deleted is not in `after`.
        known = {*before, *after}
        self._require({name: place for name, place in stored.items() if name in known}, before)
        return False

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _is_at(self, stored: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, Position]) -> bool:
        return all(name in stored and stored[name].offset == place.offset for name, place in ends.items())

    def _require(self, stored: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, Position]) -> None:
        for name in sorted({*stored, *ends}):
            held, wanted = stored.get(name), ends.get(name)
            if held is None or wanted is None or held.offset != wanted.offset:
                raise JobError(
                    f"{self.path} is the state after {_told(wanted)} of {name}, and the offset store has "
                    f"{_told(held)}: the two belong together. Set the store to where the state is, or remove the "
                    "folder to begin with an empty state at the store's positions",
                    _KEY,
                )

    def _read(self) -> tuple[str, dict[TopicPartition, Position]]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            return str(content["id"]), parse_stream_offsets(content["start"])
        except FileNotFoundError:
            if not self.is_new:
                raise JobError(f"{self.path}: the checkpoint of another stream, not of a pipeline", _KEY) from None
            return "", {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError, OffsetStoreError) as error:
            raise JobError(f"{self._file}: not what a pipeline has written ({error!r})", _KEY) from error


def _told(place: Position | None) -> str:
    return "nothing" if place is None else f"offset {place.offset}"
