"""The records of a coordinator's log, from its start to its end, as whoever loads its state takes them over.

Source in Kafka: `CoordinatorLoaderImpl`, `TransactionStateManager.loadTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.errors import FormatError
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.log.log import Log
from odradek.storage.segment.log_slice import records_of


def replay(log: Log, each: Callable[[Record, BatchHeader], object]) -> None:
    """Call a function with each record of a log, control records among them, and the header of its batch.

    Raises:
        FormatError: A batch is damaged, or the function has raised it: it names the file and the position of the batch.
    """
    for part in log.slices():
        for record, batch in records_of(part):
            try:
                each(record, batch)
            except FormatError as error:
                # Its own position is within the record.
                error.path, error.position = str(part.path), batch.position
                raise
