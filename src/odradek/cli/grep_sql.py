"""The records of a log directory for which a condition of SQL is true, found by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.cli.sql import Queries, log_tables, one_line, quoted, table_names
from odradek.errors import LogError, OffsetOutOfRangeError
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.selection import DumpSelection
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition


def records_where(
    directory: str, condition: str, selection: DumpSelection, topics: tuple[str, ...], isolation: Isolation
) -> Iterator[tuple[TopicPartition, list[Record]]]:
    """Yield the records, as `odradek sql` has them in its tables: from the log start offset on.

    Raises:
        OdradekError: The directory cannot be read, or DuckDB refuses the condition.
    """
    path = Path(directory)
    locate_log_directory(path)
    tables = log_tables(path, isolation, selection, topics or None, far_timestamps="null")
    queries = Queries(tables)
    names = table_names(tables)
    with LogDirectory(path) as logs:
        for topic in sorted(tables):
            # The line end is for a condition that ends with a comment. S608: it is the user's own condition, on his own
            # log.
            query = f'SELECT partition, "offset" FROM {quoted(names[topic])} WHERE ({condition}\n)'  # noqa: S608
            try:
                _, chunks = queries.run(query)
                for chunk in chunks:
                    for partition, offset in chunk:
                        try:
                            record = logs[topic, partition].get(offset, isolation=isolation)
                        except OffsetOutOfRangeError:
                            # Retention deleted it after DuckDB had read it.
                            record = None
                        if record is not None:
                            yield TopicPartition(topic, partition), [record]
            except queries.refusal as error:
                raise (queries.failure or LogError(one_line(error))) from error
