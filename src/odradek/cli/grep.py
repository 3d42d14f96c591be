"""`odradek grep`: the records that match a pattern, in files or on a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from odradek import system
from odradek.arguments import is_broker
from odradek.cli.app import ExitCode, describe, exit_code, report
from odradek.cli.colour import Highlights, has_colour
from odradek.cli.options import COMMAND_CONFIG, COUNT, Name, NonEmptyPath, SourceType
from odradek.cli.progress import is_file, progress, total_size
from odradek.cli.record_options import (
    BASE64,
    KEY,
    READ_COMMITTED,
    PartitionFilter,
    decode_values,
    opened,
    partition_options,
    range_options,
    record_format,
    value_options,
)
from odradek.errors import OdradekError
from odradek.inspection.log_files import LogFile, UnknownPathError, expand
from odradek.inspection.record_json import to_json
from odradek.inspection.record_lines import NO_LIMIT, RecordLines
from odradek.inspection.record_template import is_template, writer_of
from odradek.inspection.searching.context_window import ContextWindow
from odradek.inspection.searching.file_search import FileSearch
from odradek.inspection.searching.part_search import Context, PartSearch, Row, SearchOptions
from odradek.inspection.searching.pattern import FIELDS, Field, Judge, RecordPattern
from odradek.inspection.selection import DumpSelection
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import Damage

if TYPE_CHECKING:
    from odradek.inspection.decoding import ValueDecoder
    from odradek.inspection.record_json import RecordWriter

Parts = Iterator[tuple[TopicPartition | None, PartSearch]]
Rows = Iterator[tuple[TopicPartition | None, list[Row | None]]]
Output = BinaryIO | Highlights
LineOf = Callable[[TopicPartition | None], Callable[[Record], bytes]]


class FieldsType(click.ParamType[Any]):
    """Some of `FIELDS`, with commas between them."""

    name = "FIELDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the fields."""
        if not isinstance(value, str):
            return value
        fields = tuple(value.split(","))
        for one in fields:
            if one not in FIELDS:
                self.fail(f"{one!r} is none of {', '.join(FIELDS)}", param, ctx)
        return fields


@dataclass(eq=False)
class Grep:
    """One search over sources, one after the other.

    Attributes:
        code: The exit code so far.
    """

    options: SearchOptions
    wanted: PartitionFilter
    isolation: Isolation
    config: Mapping[str, str] | None = None
    code: ExitCode = field(default=ExitCode.CLEAN, init=False)
    _search: FileSearch | None = field(default=None, init=False)

    def done(self) -> int:
        """Return how many bytes of the files were searched."""
        return 0 if self._search is None else self._search.done_bytes

    def damaged(self, damage: Damage) -> None:
        """Note bytes that cannot be read."""
        self.noted(str(damage))

    def noted(self, what: str) -> None:
        """Note what is wrong with a record."""
        report(what)
        self.code = max(self.code, ExitCode.FINDINGS)

    def failed(self, error: Exception) -> None:
        """Note a source that cannot be read."""
        report(describe(error))
        self.code = max(self.code, exit_code(error))

    def parts(self, sources: Iterable[str]) -> Parts:
        """Yield what is found, source by source."""
        for is_address, group in groupby(sources, is_broker):
            if is_address:
                for address in group:
                    yield from self._parts_of_broker(address)
            else:
                files = self._files(list(group))
                with progress("grep", partial(_size_of, files), self.done) if is_file(sys.stdout) else nullcontext():
                    yield from self._parts_of_files(files)

    def _files(self, paths: list[str]) -> list[LogFile | UnknownPathError]:
        """Return the files that paths stand for: of a folder, its segments."""
        found = [file for file in expand(paths) if isinstance(file, UnknownPathError) or _has_records(file)]
        owners = (file.topic_partition for file in found if isinstance(file, LogFile))
        for error in self.wanted.missing((owner for owner in owners if owner is not None), ", ".join(paths)):
            self.failed(error)
        return [file for file in found if isinstance(file, UnknownPathError) or self._takes(file.topic_partition)]

    def _takes(self, owner: TopicPartition | None) -> bool:
        return self.wanted == PartitionFilter() if owner is None else self.wanted.takes(owner)

    def _parts_of_files(self, files: list[LogFile | UnknownPathError]) -> Parts:
        """Yield what is found in files."""
        self._search = FileSearch(
            self.options,
            read_committed=self.isolation == "read_committed",
            threads=system.processors(),
            damaged=self.damaged,
            failed=self.failed,
        )
        for file, found in self._search.run(files):
            yield file.topic_partition, found

    def _parts_of_broker(self, address: str) -> Parts:
        """Yield what is found on a broker."""
        from odradek.sources.record_search import search_partition

        try:
            with opened(address, self.config, self.wanted) as (source, chosen):
                for topic_partition in chosen:
                    for found in search_partition(source, topic_partition, self.options, self.isolation, self.damaged):
                        yield topic_partition, found
        except OdradekError as error:
            self.failed(error)

    def rows_where(self, directories: Iterable[str], condition: str) -> Rows:
        """Yield what a condition in SQL finds in log directories."""
        from odradek.cli.grep_sql import records_where

        selection, topics = self.options.selection, self.wanted.topics
        for directory in directories:
            try:
                for owner, records in records_where(directory, condition, selection, topics, self.isolation):
                    if self.wanted.takes(owner):
                        yield owner, [Row(record, True) for record in records]
            except OdradekError as error:
                self.failed(error)


def _load_re2(pattern: str) -> Judge | None:
    try:
        from odradek.sources.re2 import re2_judge
    except ImportError:
        # Without pyarrow, Python tries the pattern.
        return None
    return re2_judge(pattern)


def _size_of(files: list[LogFile | UnknownPathError]) -> int:
    return total_size(file.path for file in files if isinstance(file, LogFile))


def _has_records(file: LogFile) -> bool:
    return file.is_named or file.is_segment


def _write_found(out: Output, parts: Parts, limit: int, lines_of: Callable[..., RecordLines]) -> None:
    """Write what is found, until there is as much as is wanted."""
    owner: TopicPartition | None = None
    lines = lines_of(None, limit=limit)
    for now, found in parts:
        if now != owner:
            owner, lines = now, lines_of(now, limit=lines.limit)
        if found.count:
            out.writelines(found.lines(lines))
            out.write(lines.rest())
            if not lines.limit:
                return


def _write_rows(out: Output, rows: Rows, context: Context, limit: int | None, line_of: LineOf, apart: bytes) -> None:
    """Write what is found, with its context, until there is as much as is wanted."""
    owner: TopicPartition | None = None
    line = line_of(None)
    window: ContextWindow | None = None
    has_written = False
    for now, found in rows:
        if window is None or now != owner:
            if window is not None and limit is not None:
                limit -= window.found
            owner, window, line = now, ContextWindow(context, limit), line_of(now)
        if window.is_done:
            return
        lines = []
        for row, is_apart in window.rows(found):
            if is_apart and has_written:
                lines.append(apart)
            lines.append(line(row.record))
            has_written = True
        out.write(b"".join(lines))
        if window.is_done:
            return


def _of_key(rows: Rows, key: str) -> Rows:
    """Yield the same rows; those with other keys were not found."""
    takes = RecordLines("text", None, key=key).takes
    for owner, found in rows:
        yield (
            owner,
            [
                row._replace(is_found=False) if row is not None and row.is_found and not takes(row.record) else row
                for row in found
            ],
        )


def _write_counts(out: Output, found: Iterator[tuple[TopicPartition | None, int]], limit: int, form: str) -> None:
    """Write how many records were found in each partition that was searched."""
    counts: dict[TopicPartition | None, int] = {}
    for owner, count in found:
        counts[owner] = counts.get(owner, 0) + min(limit, count)
        limit -= min(limit, count)
        if not limit:
            break
    for owner, count in counts.items():
        topic, partition = owner or (None, None)
        if form == "jsonl":
            text = to_json({"topic": topic, "partition": partition, "count": count})
        else:
            text = f"{owner or '-'} {count}"
        out.write(text.encode() + b"\n")


@click.command("grep")
@click.argument("arguments", metavar="[PATTERN] SOURCE...", nargs=-1, required=True)
@click.option(
    "--in",
    "fields",
    type=FieldsType(),
    default=",".join(FIELDS),
    help="Where to look: some of key,value,headers (their names and values).",
)
@click.option("-F", "--fixed-strings", is_flag=True, help="PATTERN is no regular expression, but a text.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore the case of letters.")
@click.option("-v", "--invert", is_flag=True, help="The records that do not match.")
@click.option("--sql", "condition", type=Name("CONDITION"), help="A condition of SQL in the place of PATTERN.")
@click.option("-A", "--after", type=COUNT, help="Also N records of the partition after each.")
@click.option("-B", "--before", type=COUNT, help="Also N records before each.")
@click.option("-C", "--context", "around", type=COUNT, help="Both.")
@click.option("-c", "--count", is_flag=True, help="Only how many there are in each partition.")
@click.option("-m", "--limit", type=COUNT, help="No more than N records.")
@partition_options
@range_options
@KEY
@READ_COMMITTED
@record_format("text", "jsonl")
@BASE64
@value_options
@COMMAND_CONFIG
def command(
    arguments: tuple[str, ...],
    fields: tuple[Field, ...],
    fixed_strings: bool,
    ignore_case: bool,
    invert: bool,
    condition: str | None,
    after: int | None,
    before: int | None,
    around: int | None,
    count: bool,
    limit: int | None,
    wanted: PartitionFilter,
    selection: DumpSelection,
    key: str | None,
    isolation: Isolation,
    form: str,
    base64: bool,
    values: ValueDecoder | None,
    config: dict[str, str] | None,
) -> int:
    """Find the records that match a regular expression of Python.

    A SOURCE is a file, the folder of a partition, a log directory, a pattern of such paths, or a broker:
    kafka://[user:password@]HOST:PORT[,HOST:PORT][/TOPIC]. Keys, values, and the names and values of headers are
    searched as UTF-8. Of files, all records that they hold are searched, also below the log start offset, but no
    control records. Damage is reported on stderr, and the search continues after it. The exit code does not say whether
    something was found.

    Example: odradek grep 'user=(17|42)\\b' /var/lib/kafka/data --topic events --since 2026-11-01 -C 2
    """
    pattern, given = ("", arguments) if condition is not None else (arguments[0], arguments[1:])
    if not given:
        raise click.UsageError("give a pattern and a source")
    sources = [SourceType().convert(source, None, None) for source in given]
    context = Context(before if before is not None else around or 0, after if after is not None else around or 0)
    if condition is not None and (fixed_strings or ignore_case or invert or set(fields) != set(FIELDS)):
        raise click.UsageError("--sql has its own ways of saying -F, -i, --invert and --in")
    if context != Context() and (condition is not None or count):
        raise click.UsageError("-A, -B and -C do not go with --sql or --count")
    for source in sources if condition is not None else ():
        NonEmptyPath(file_okay=False).check_no_broker(source, None, click.get_current_context())
    sought = RecordPattern(
        pattern, fixed=fixed_strings, ignore_case=ignore_case, fields=fields, invert=invert, load_re2=_load_re2
    )
    is_written = values is not None or is_template(form) or context != Context()
    by_rows = condition is not None or key is not None or (is_written and not count)
    # Only with a context are the records themselves handed out, and not only as lines.
    searched = Context(0, 1) if by_rows and context == Context() else context
    grep = Grep(SearchOptions(sought, selection, searched), wanted, isolation, config)
    if limit == 0:
        return ExitCode.CLEAN
    out: Output = sys.stdout.buffer
    if form == "text" and not invert and has_colour():
        out = Highlights(sys.stdout.buffer, sought)

    def line_of(owner: TopicPartition | None) -> RecordWriter:
        return writer_of(form)(form, owner, base64=base64, decode=decode_values(values, owner, grep.noted))

    most = NO_LIMIT if limit is None else limit
    if not by_rows and count:
        _write_counts(out, ((owner, found.count) for owner, found in grep.parts(sources)), most, form)
    elif not by_rows:
        _write_found(out, grep.parts(sources), most, partial(RecordLines, form, base64=base64))
    else:
        if condition is None:
            rows: Rows = ((owner, found.rows()) for owner, found in grep.parts(sources))
        else:
            rows = grep.rows_where(sources, condition)
        if key is not None:
            rows = _of_key(rows, key)
        if count:
            found = ((owner, sum(row is not None and row.is_found for row in some)) for owner, some in rows)
            _write_counts(out, found, most, form)
        else:
            apart = b"--\n" if form == "text" and context != Context() else b""
            _write_rows(out, rows, context, limit, line_of, apart)
    return grep.code
