"""`odradek produce`: appends records from stdin to a topic of a log directory or a broker."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.admin.record_input import GivenRecord, RecordInputError, json_reader, line_reader
from odradek.cli.admin_options import Setting, complete_topics
from odradek.cli.app import ExitCode, report
from odradek.cli.listing import counted
from odradek.cli.options import COMMAND_CONFIG, SourceType, read_config
from odradek.cli.progress import is_file, progress
from odradek.errors import OdradekError, RecordRefusedError, UnknownTopicOrPartitionError
from odradek.kafka.stopping import StoppedError, stopped_by

if TYPE_CHECKING:
    from odradek.admin.producer import TopicProducer

_CHUNK_BYTES = 1 << 18
_PATIENCE_S = 3.0
_MOST_TOLD = 10


@click.command("produce")
@click.argument("source", metavar="TARGET", type=SourceType(folder=True))
@click.argument("topic", shell_complete=complete_topics)
@COMMAND_CONFIG
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    help="What stdin holds: a value in each line, or a record as `odradek dump --format jsonl` prints it.",
)
@click.option("--key-separator", metavar="TEXT", help="With text: what is between the key and the value; \\t is a tab.")
@click.option("--header", "headers", multiple=True, type=Setting(), help="A header of every record.")
@click.option("--partition", metavar="N", type=click.IntRange(0), help="The partition; otherwise the key decides.")
@click.option(
    "--codec", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="How batches are compressed."
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    help="Whether all replicas in sync must have a batch, or their leader.",
)
def command(
    source: str,
    topic: str,
    command_config: Path | None,
    form: str,
    key_separator: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    codec: str | None,
    acks: str,
) -> int:
    """Append records from stdin to TOPIC, which exists.

    TARGET is a log directory, or a broker: kafka://HOST:PORT. Records are appended as they come, so a pipe may stay
    open. After Ctrl-C, or a line that is no record or that is refused, stderr says which line, and where to go on.

    Example: odradek produce kafka://localhost:9092 events --key-separator : < pairs.txt
    """
    from odradek.admin.producer import open_producer

    if key_separator is not None and form != "text":
        raise click.UsageError("--key-separator is for text; JSON lines have keys of their own")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    given = [(name, os.fsencode(value)) for name, value in headers]
    separator = None if key_separator is None else key_separator.replace("\\t", "\t")
    read = json_reader(given) if form == "jsonl" else line_reader(separator, given)
    lines = _Lines()
    with (
        open_producer(source, topic, read_config(command_config), codec=codec, acks=acks) as producer,
        _progress(lines),
    ):
        if partition is not None and partition >= producer.partitions:
            raise UnknownTopicOrPartitionError(topic, partition, path=source)
        refused: list[tuple[int, str]] = []
        try:
            for chunk in lines:
                with _finishing():
                    refused = _send(producer, chunk, read, partition, lines)
                if refused:
                    break
        except (KeyboardInterrupt, OdradekError):
            _tell(producer, lines)
            raise
        if refused:
            for line, reason in refused[:_MOST_TOLD]:
                report(f"stdin, line {line}: {reason}")
            _tell(producer, lines, len(refused))
            return ExitCode.INPUT_OUTPUT
    click.echo(f"{counted(producer.sent, 'record')} appended to {topic}")
    return ExitCode.CLEAN


def _tell(producer: TopicProducer, lines: _Lines, refused: int = 0) -> None:
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
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
        parts: list[bytes] = []
        stdin: Any = sys.stdin.buffer
        while data := stdin.read1(_CHUNK_BYTES):
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
    """Let Ctrl-C and SIGTERM wait until the block is done, for some seconds, so that it is known which lines are sent.

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

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
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
    if sys.stdin is None or not is_file(sys.stdin):
        yield
        return
    size = os.fstat(sys.stdin.fileno()).st_size
    with progress("Producing", lambda: size, lambda: lines.size_bytes):
        yield
