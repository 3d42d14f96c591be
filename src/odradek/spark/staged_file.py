"""Rows that a task stages in a file, for the driver to write into a folder: only one program has that open to append.

    task   -> a file in the staging folder, with an Arrow batch for each run of rows
    driver -> reads the files in the order of the tasks, under the folder's lock

The staging folder is beside the log directory, on a disk that all machines share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from odradek.errors import SinkError


class StagedFile:
    """The file of one task, which is made with its first rows; a context manager that leaves none behind if it fails.

    Args:
        path: The file; folders that are missing are made.

    Raises:
        SinkError: At the end of the `with` block: its disk did not take the last rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    @property
    def holds_rows(self) -> bool:
        """Whether anything was written."""
        return self._writer is not None

    def write(self, rows: pa.RecordBatch) -> None:
        """Add a batch; all batches of a file have the same schema.

        Raises:
            SinkError: The disk does not take it.
        """
        with self._told():
            if self._writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pa.ipc.new_stream(str(self.path), rows.schema)
            self._writer.write_batch(rows)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkError(f"{self.path}: rows cannot be staged: {error}") from error

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_whole = False
        try:
            with self._told():
                if self._writer is not None:
                    self._writer.close()
            is_whole = error is None
        except SinkError:
            # The first error says what went wrong.
            if error is None:
                raise
        finally:
            if not is_whole:
                with suppress(OSError):
                    self.path.unlink()


def staged_rows(path: Path, shared_by: str) -> Iterator[pa.RecordBatch]:
    """Yield what a task staged, batch by batch.

    Args:
        path: The file.
        shared_by: How the folder that it is in is shared with the driver's machine, for the error.

    Raises:
        SinkError: It is not there, or not what the task wrote.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as batches:
            yield from batches
    except FileNotFoundError as error:
        raise SinkError(f"{path}: the driver does not see what a task staged here: {shared_by}") from error
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"{path}: what a task staged here cannot be read: {error}") from error
