"""`odradek sql`: queries over the topics of a log directory, by DuckDB."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from odradek.cli.app import ExitCode, SignalInterrupt, describe, report
from odradek.cli.options import FOLDER, NEW_FILE, form
from odradek.cli.progress import progress
from odradek.cli.record_options import FAR_TIMESTAMPS, READ_COMMITTED, range_options
from odradek.cli.result_output import WRITERS, Row
from odradek.cli.streams import stdin, whole_file
from odradek.errors import FormatError, OdradekError
from odradek.inspection.log_files import locate_log_directory
from odradek.inspection.selection import DumpSelection
from odradek.records.isolation import Isolation
from odradek.records.timestamps import OnFarTimestamps

if TYPE_CHECKING:
    import duckdb

    from odradek.columnar.dataset import LogDataset

_T = TypeVar("_T")
_ROWS_AT_ONCE = 2048
_BARE_OFFSET = re.compile(r'(?<!")\boffset\b(?!")', re.IGNORECASE)
_TEXT = "coalesce(try(decode({name})), {name}::VARCHAR) AS {name}"


def quoted(name: str, mark: str = '"') -> str:
    """Return a name as SQL writes it, or a text with the mark of texts."""
    return mark + name.replace(mark, mark * 2) + mark


def table_names(topics: Iterable[str]) -> dict[str, str]:
    """Return the names of the tables of topics: their own, and a number where they differ in case only.

    SQL does not tell `events` from `Events`: neither is to be taken for the other.
    """
    alike = sorted(topics, key=lambda topic: (topic.lower(), topic))
    names: dict[str, str] = {}
    for _, group in groupby(alike, str.lower):
        same = list(group)
        names |= {topic: topic if len(same) == 1 else f"{topic} ({number})" for number, topic in enumerate(same, 1)}
    return names


class Queries:
    """A database in memory, with the topics of a log directory as its tables.

    Args:
        topics: What each topic holds, by its name.

    Attributes:
        refusal: What DuckDB raises.
    """

    def __init__(self, topics: dict[str, LogDataset]) -> None:
        import duckdb

        from odradek.cli.topic_table import TopicTable

        self.refusal: type[Exception] = duckdb.Error
        # The tables get only this list: if they led back to the connection, it would never be freed.
        self._failures: list[OdradekError] = []
        # Otherwise DuckDB would look for an unknown table among the variables of this program.
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(config={"python_enable_replacements": False})
        self._connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA raw; CREATE SCHEMA source")
        text = ", ".join(_TEXT.format(name=name) for name in ("key", "value"))
        names = table_names(topics)
        self._connection.execute("USE source")
        for topic, rows in topics.items():
            self._connection.from_arrow(TopicTable(rows, self._failures.append)).create_view(names[topic])
        self._connection.execute("USE main")
        for topic, name in names.items():
            text_of_topic, table = quoted(topic, "'"), quoted(name)
            columns = f"SELECT {text_of_topic} AS topic, *"
            self._connection.execute(f"CREATE VIEW raw.{table} AS {columns} FROM source.{table}")
            self._connection.execute(f"CREATE VIEW {table} AS {columns} REPLACE ({text}) FROM source.{table}")

    @property
    def failure(self) -> OdradekError | None:
        """Why a statement failed, if the log is why."""
        return self._failures[0] if self._failures else None

    def statements(self, sql: str) -> list[str]:
        """Return the statements of a text, which are to be run next."""
        self._failures.clear()
        # Raises a UnicodeError if it is not UTF-8, for which DuckDB would raise a TypeError.
        sql.encode()
        return [statement.query.strip() for statement in self._connection.extract_statements(sql)]

    def run(self, statement: str) -> tuple[list[str], Iterator[list[Row]]]:
        """Run a statement; return the names of what it gives, and its rows as they come."""
        self._execute(statement)
        names = [column[0] for column in self._connection.description or ()]
        return names, iter(lambda: self._interruptibly(lambda: self._connection.fetchmany(_ROWS_AT_ONCE)), [])

    def copy(self, query: str, path: Path) -> None:
        """Write what a query gives into a Parquet file."""
        target = quoted(str(path), "'")
        # On a line of its own: the query may end with a comment.
        self._execute(f"COPY ({without_end(query)}\n) TO {target} (FORMAT parquet)")

    def _execute(self, statement: str) -> None:
        # DuckDB 2 runs no statement after one that failed or was interrupted, until that one is aborted.
        abort = getattr(self._connection, "abort", None)
        if abort is not None:
            abort()
        self._interruptibly(lambda: self._connection.execute(statement))

    def _interruptibly(self, action: Callable[[], _T]) -> _T:
        """Do something in another thread, so that Ctrl-C ends it: DuckDB does not check for signals."""
        with ThreadPoolExecutor(1) as worker:
            working = worker.submit(action)
            try:
                return working.result()
            except KeyboardInterrupt:
                self._connection.interrupt()
                raise


def without_end(query: str) -> str:
    """Return a query without the semicolon that ends it, and without the comments after it."""
    import duckdb

    data = query.encode()
    end = len(data)
    for position, kind in reversed(duckdb.tokenize(query)):
        if kind != duckdb.token_type.comment and data[position : position + 1] != b";":
            break
        end = position
    return data[:end].decode()


def one_line(error: Exception) -> str:
    """Return what DuckDB says, without the drawing that points into the query."""
    text, _, _ = str(error).partition("\n\nLINE ")
    return " ".join(text.split())


@click.command("sql")
@click.argument("query", metavar="[QUERY] DIR", nargs=-1, required=True)
@click.option("-i", "--interactive", is_flag=True, help="A prompt, in the place of QUERY; a statement ends with ';'.")
@form("text", "jsonl", "csv", "parquet", help="A table, JSON lines, CSV, or a Parquet file (with --output).")
@click.option("-o", "--output", type=NEW_FILE, help="Write into this file.")
@READ_COMMITTED
@FAR_TIMESTAMPS
@range_options
def command(
    query: tuple[str, ...],
    interactive: bool,
    form: str,
    output: Path | None,
    isolation: Isolation,
    far_timestamps: OnFarTimestamps,
    selection: DumpSelection,
) -> int:
    """Query the topics of a log directory in SQL, by DuckDB.

    Each topic is a table of that name: topic, partition, offset, timestamp, timestamp_type, key, value, headers. Keys
    and values are text, so that functions on JSON work; in the schema "raw" they are bytes. What the query does not
    need of partitions, segments and columns is not read.

    Example: odradek sql "SELECT value->>'$.name' FROM events WHERE \\"offset\\" >= 1200" /var/lib/kafka/data
    """
    if len(query) != 2 - interactive:
        raise click.UsageError(
            "give DIR alone with --interactive" if interactive else "give a query and a log directory"
        )
    if form == "parquet" and (output is None or interactive):
        raise click.UsageError("--format parquet writes into a file: name it with --output")
    directory = FOLDER.convert(query[-1], None, None)
    locate_log_directory(directory)
    queries = Queries(log_tables(directory, isolation, selection, far_timestamps=far_timestamps))
    if interactive:
        return _prompt(queries, form)
    try:
        return _run(queries, query[0], form, output)
    except queries.refusal as error:
        return _told(queries, error, query[0])


def _told(queries: Queries, error: Exception, sql: str) -> ExitCode:
    """Say why a statement failed, and return the exit code."""
    advice = ': offset is a word of SQL; the column is "offset"' if _BARE_OFFSET.search(sql) else ""
    is_syntax = queries.failure is None and "syntax error" in str(error)
    report(describe(queries.failure) if queries.failure else one_line(error) + (advice if is_syntax else ""))
    return ExitCode.FINDINGS if isinstance(queries.failure, FormatError) else ExitCode.INPUT_OUTPUT


def log_tables(
    directory: Path,
    isolation: Isolation,
    selection: DumpSelection,
    topics: Iterable[str] | None = None,
    *,
    far_timestamps: OnFarTimestamps,
) -> dict[str, LogDataset]:
    """Return what the topics of a log directory hold, by their names.

    Args:
        directory: The log directory.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        selection: Which records are wanted.
        topics: Names or patterns; all if None.
        far_timestamps: What is done about timestamps outside of the years 1 to 9999.

    Raises:
        UnknownTopicOrPartitionError: A topic that was named does not exist.
    """
    import duckdb  # noqa: F401 - if it is missing, its extra brings pyarrow too
    import pyarrow as pa
    import pyarrow.compute as pc

    import odradek

    def moment(timestamp: int) -> pa.Scalar:
        return pa.scalar(timestamp, pa.timestamp("ms", "UTC"))

    start, end, since, until = selection.start_offset, selection.end_offset, selection.since, selection.until
    narrowed = [
        None if start is None else pc.field("offset") >= start,
        None if end is None else pc.field("offset") < end,
        None if since is None else pc.field("timestamp") >= moment(since),
        None if until is None else pc.field("timestamp") < moment(until),
    ]
    with odradek.open(directory, "r") as logs:
        names = logs.topics()
    chosen = names if topics is None else topics
    rows = odradek.dataset(directory, chosen, isolation=isolation, far_timestamps=far_timestamps)
    for expression in narrowed:
        rows = rows if expression is None else rows.filter(expression)
    return rows.by_topic()


def _run(queries: Queries, sql: str, form: str, output: Path | None) -> int:
    statements = queries.statements(sql)
    if not statements:
        raise click.UsageError("QUERY is empty")
    for statement in statements[:-1]:
        for _ in queries.run(statement)[1]:
            pass
    if output is None:
        _write(queries, statements[-1], form)
        return ExitCode.CLEAN
    with whole_file(output) as path, progress("sql"):
        if form == "parquet":
            queries.copy(statements[-1], path)
        else:
            names, chunks = queries.run(statements[-1])
            with path.open("w", encoding="utf-8", newline="") as file:
                WRITERS[form](file, names, chunks)
    return ExitCode.CLEAN


def _write(queries: Queries, statement: str, form: str) -> None:
    with progress("sql"):
        names, chunks = queries.run(statement)
        first = list(islice(chunks, 1))
    WRITERS[form](sys.stdout, names, chain(first, chunks))


def _prompt(queries: Queries, form: str) -> int:
    """Answer statement after statement, until the end of the input."""
    is_terminal = stdin().isatty()
    if is_terminal:
        with suppress(ImportError):
            import readline  # noqa: F401 - input() has a history and can be edited then
    code = ExitCode.CLEAN
    given = io.StringIO()
    while True:
        try:
            line = input(("     -> " if given.tell() else "odradek> ") if is_terminal else "")
        except EOFError:
            line = None
        except SignalInterrupt:
            raise
        except KeyboardInterrupt:
            click.echo()
            given = io.StringIO()
            continue
        given.write(f"{line or ''}\n")
        text = given.getvalue()
        if (line is None or text.rstrip().endswith(";")) and text.strip():
            given = io.StringIO()
            code = _answer(queries, text, form)
        if line is None:
            # On a terminal the user has read the error; a program gets the exit code of the last statement.
            return ExitCode.CLEAN if is_terminal else code


def _answer(queries: Queries, sql: str, form: str) -> ExitCode:
    try:
        for statement in queries.statements(sql):
            _write(queries, statement, form)
    except queries.refusal as error:
        return _told(queries, error, sql)
    except SignalInterrupt:
        raise
    except KeyboardInterrupt:
        report("interrupted")
        return ExitCode.INTERRUPTED
    finally:
        sys.stdout.flush()
    return ExitCode.CLEAN
