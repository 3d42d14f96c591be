"""`odradek produce`: appends records from stdin to a topic of a log directory or a broker."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.admin.record_input import GivenRecord, Headers, RecordInputError, json_reader, line_reader
from odradek.cli.admin_options import complete_topics
from odradek.cli.app import ExitCode, report
from odradek.cli.listing import counted, show_line
from odradek.cli.options import COMMAND_CONFIG, COMPRESSION, FILE, Name, Number, Pair, SourceType, form
from odradek.cli.progress import is_file, progress
from odradek.cli.streams import stdin
from odradek.errors import OdradekError, RecordRefusedError, UnknownTopicOrPartitionError
from odradek.kafka.stopping import StoppedError, stopped_by
from odradek.records import Record
from odradek.storage.config_def import MAX_INT32

if TYPE_CHECKING:
    from odradek.admin.producer import TopicProducer

_CHUNK_BYTES = 1 << 18
_PATIENCE_S = 3.0
_MOST_TOLD = 10


@click.command("produce")
@click.argument("target", type=SourceType("TARGET", folder=True))
@click.argument("topic", type=Name(), shell_complete=complete_topics)
@COMMAND_CONFIG
@form("text", "jsonl", help="What stdin holds: a value in each line, or a record as `dump --format jsonl` prints it.")
@click.option("--key-separator", metavar="TEXT", help="With text: what is between the key and the value; \\t is a tab.")
@click.option("--file", "files", type=FILE, multiple=True, help="Not stdin: this file is one record; may be repeated.")
@click.option("--key", metavar="TEXT", help="With --file: the key of the record.")
@click.option("--header", "headers", multiple=True, type=Pair(), help="A header of every record.")
@click.option("--partition", type=Number(), help="The partition; otherwise the key decides.")
@COMPRESSION
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    help="Whether all replicas in sync must have a batch, or their leader.",
)
def command(
    target: str,
    topic: str,
    config: dict[str, str] | None,
    form: str,
    key_separator: str | None,
    files: tuple[Path, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    compression: str | None,
    acks: str,
) -> int:
    """Append records from stdin, or whole files, to TOPIC, which exists.

    TARGET is a log directory, or a broker: kafka://HOST:PORT. Records are appended as they come, so a pipe may stay
    open. After Ctrl-C, or a line that is no record or that is refused, stderr says which line, and where to go on.

    Example: odradek produce kafka://localhost:9092 events --key-separator : < pairs.txt
    """
    from odradek.admin.producer import open_producer

    if files and (form != "text" or key_separator is not None):
        raise click.UsageError("--file takes a whole file as a value; --format and --key-separator are for stdin")
    if key is not None and not files:
        raise click.UsageError("--key is for --file; lines have keys by --key-separator")
    if key_separator is not None and form != "text":
        raise click.UsageError("--key-separator is for text; JSON lines have keys of their own")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    given = [(name, os.fsencode(value)) for name, value in headers]
    separator = None if key_separator is None else key_separator.replace("\\t", "\t")
    read = json_reader(given) if form == "jsonl" else line_reader(separator, given)
    lines = _Lines()
    with (
        open_producer(target, topic, config, codec=compression, acks=acks) as producer,
        _progress(lines),
    ):
        if partition is not None and partition >= producer.partitions:
            raise UnknownTopicOrPartitionError(topic, partition, path=target)
        if files:
            return _send_files(producer, files, None if key is None else os.fsencode(key), given, partition)
        refused: list[tuple[int, str]] = []
        try:
            for chunk in lines:
                with _finishing():
                    refused = _send(producer, chunk, read, partition, lines)
                if refused:
                    break
        except (KeyboardInterrupt, OdradekError):
            _report_progress(producer, lines)
            raise
        if refused:
            for line, reason in refused[:_MOST_TOLD]:
                report(f"stdin, line {line}: {reason}")
            _report_progress(producer, lines, len(refused))
            return ExitCode.INPUT_OUTPUT
    show_line(f"{counted(producer.sent, 'record')} appended to {topic}")
    return ExitCode.CLEAN


def _send_files(
    producer: TopicProducer, files: Sequence[Path], key: bytes | None, headers: Headers, partition: int | None
) -> ExitCode:
    """Append each file as one record, until the topic refuses one."""
    for path in files:
        with path.open("rb") as file:
            value = file.read(MAX_INT32 + 1)
        if len(value) > MAX_INT32:
            raise RecordInputError(f"{path} has more than the {MAX_INT32} bytes that a record holds at most")
        try:
            producer.send([GivenRecord(partition, Record(key, value, headers))])
        except RecordRefusedError as error:
            report(f"{path}: {error.record_errors[0][1]}")
            report(f"{counted(producer.sent, 'record')} appended")
            return ExitCode.INPUT_OUTPUT
    show_line(f"{counted(producer.sent, 'record')} appended to {producer.topic}")
    return ExitCode.CLEAN


def _report_progress(producer: TopicProducer, lines: _Lines, refused: int = 0) -> None:
    """Say how much of the input is appended, and where to go on."""
    said = f"{counted(producer.sent, 'record')} appended"
    if lines.settled < lines.done:
        # The broker has not answered the last request: its records may be appended or not.
        is_one = lines.settled + 1 == lines.done
        at = f"line {lines.done}" if is_one else f"lines {lines.settled + 1} to {lines.done}"
        report(f"{said} for sure; it is not known whether {at} of the input {'is' if is_one else 'are'}")
        return
    others = f", {refused} refused" if refused else ""
    report(f"{said}{others}; go on with line {lines.done + 1} of the input")


class _Lines:
    """The lines of stdin, as many as there are at a time.

    Attributes:
        done: How many lines are read, and sent if they are records.
        settled: How many lines are appended, or are refused.
        size_bytes: How many bytes were read.
    """

    def __init__(self) -> None:
        self.done = self.settled = 0
        self.size_bytes = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        parts: list[bytes] = []
        given: Any = stdin().buffer
        while data := given.read1(_CHUNK_BYTES):
            self.size_bytes += len(data)
            end = data.rfind(b"\n")
            if end < 0:
                parts.append(data)
                continue
            whole = b"".join([*parts, data[:end]])
            parts = [data[end + 1 :]]
            yield [line.removesuffix(b"\r") for line in whole.split(b"\n")]
        if any(parts):
            yield [b"".join(parts)]


def _send(
    producer: TopicProducer,
    chunk: list[bytes],
    read: Callable[[bytes], GivenRecord | None],
    partition: int | None,
    lines: _Lines,
) -> list[tuple[int, str]]:
    """Append the records of lines; return the number of each line that the topic refuses, and why."""
    records: list[GivenRecord] = []
    numbers: list[int] = []
    wrong: RecordInputError | None = None
    for line in chunk:
        try:
            found = read(line)
        except RecordInputError as error:
            wrong = error
            break
        lines.done += 1
        if found is not None:
            records.append(found if partition is None else found._replace(partition=partition))
            numbers.append(lines.done)
    # Append the records before a line that is not one.
    refused: list[tuple[int, str]] = []
    try:
        producer.send(records)
    except RecordRefusedError as error:
        refused = [(numbers[index], reason) for index, reason in error.record_errors]
    lines.settled = lines.done
    if wrong is not None:
        if refused:
            return [*refused, (lines.done + 1, str(wrong))]
        raise RecordInputError(f"stdin, line {lines.done + 1}: {wrong}") from wrong
    return refused


@contextmanager
def _finishing() -> Iterator[None]:
    """Let a signal that ends the program wait until the block is done, for some seconds: what is sent is known then.

    A second one does not wait.
    """
    came: list[int] = []
    too_long = threading.Event()
    patience = threading.Timer(_PATIENCE_S, too_long.set)
    patience.daemon = True

    def note(number: int, _: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        patience.start()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, note)
    try:
        with stopped_by(too_long), suppress(StoppedError):
            yield
    finally:
        patience.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _progress(lines: _Lines) -> Iterator[None]:
    """Show how much is done of a file."""
    if not is_file(sys.stdin):
        yield
        return
    size = os.fstat(sys.stdin.fileno()).st_size
    with progress("Producing", lambda: size, lambda: lines.size_bytes):
        yield
