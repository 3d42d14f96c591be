"""`odradek dump`: what the files of a log hold, including what a consumer would not get."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import BinaryIO

import click
from typing_extensions import Buffer

from odradek.cli.app import ExitCode, describe, report
from odradek.cli.kafka_dump import Decoder, KafkaDump, KafkaDumpOptions
from odradek.cli.options import PATHS, OffsetRangeType, Timestamp
from odradek.cli.progress import is_file, progress, total_size
from odradek.cli.record_json import batch_fields, json_line, quote, text_line, to_json
from odradek.errors import FormatError
from odradek.inspection.entry_listing import entries_of
from odradek.inspection.log_files import FileKind, LogFile, UnknownPathError, expand
from odradek.inspection.selection import DumpSelection, start_position
from odradek.records import read_records
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped


class Dump:
    """One run over files, one after the other.

    Attributes:
        code: The exit code so far.
    """

    def __init__(
        self, out: BinaryIO, selection: DumpSelection, *, jsonl: bool, base64: bool, control: bool, batches: bool
    ) -> None:
        self._out = out
        self._selection = selection
        self._jsonl = jsonl
        self._base64 = base64
        self._control = control
        self._batches = batches
        self.code = ExitCode.CLEAN
        self._done_bytes = 0
        self._position = 0

    def done(self) -> int:
        """Return how many bytes of the files were processed."""
        return self._done_bytes + self._position

    def damaged(self, damage: Damage) -> None:
        """Note bytes that cannot be read."""
        report(str(damage))
        self.code = max(self.code, ExitCode.FINDINGS)

    def attempt(self, file: LogFile | UnknownPathError, show: Callable[[LogFile], None]) -> None:
        """Show one file. An error is reported, and the dump continues with the next file."""
        try:
            if isinstance(file, UnknownPathError):
                raise file
            show(file)
        except BrokenPipeError:
            raise
        except (OSError, UnknownPathError) as error:
            report(describe(error))
            self.code = ExitCode.INPUT_OUTPUT
        except FormatError as error:
            report(describe(error))
            self.code = max(self.code, ExitCode.FINDINGS)
        if isinstance(file, LogFile):
            self._position = 0
            self._done_bytes += total_size([file.path])

    def file(self, file: LogFile) -> None:
        """Dump one file."""
        if file.kind is not FileKind.RECORDS:
            self._entries(file)
        elif not self._selection.skips_segment(file):
            with mapped(file.path) as data:
                reader = BatchReader(file.path, data, self.damaged, start_position(file, data, self._selection))
                if self._batches:
                    self._dump_batches(file, reader)
                else:
                    self._dump_records(file, reader, data)

    def _dump_batches(self, file: LogFile, reader: BatchReader) -> None:
        owner = file.topic_partition
        head = {"topic": owner.topic, "partition": owner.partition} if owner else {"topic": None, "partition": None}
        for header in reader:
            self._position = header.end_position
            if self._selection.skips_batch(header) or (header.is_control and not self._control):
                continue
            fields = batch_fields(header)
            if self._jsonl:
                line = to_json(head | fields)
            else:
                shown = (f"{name}={_text_value(value)}" for name, value in fields.items())
                line = " ".join([str(owner), *shown] if owner else shown)
            self._out.write(line.encode() + b"\n")

    def _dump_records(self, file: LogFile, reader: BatchReader, data: Buffer) -> None:
        selection = self._selection
        make_line = json_line if self._jsonl else text_line
        data_line = make_line(file, base64=self._base64)
        control_line = make_line(file, base64=self._base64, control=True)
        for header in reader:
            self._position = header.end_position
            if selection.skips_batch(header) or (header.is_control and not self._control):
                continue
            try:
                records = read_records(data, header)
            except FormatError as error:
                self.damaged(damage_of(file.path, header, error))
                continue
            line = control_line if header.is_control else data_line
            lines = [line(record) for record in records if selection.takes(record)]
            self._out.write("".join(lines).encode("utf-8", "surrogatepass"))

    def _entries(self, file: LogFile) -> None:
        for entry in entries_of(file):
            if self._jsonl:
                line = to_json({"file": str(file.path)} | entry)
            else:
                line = f"{quote(str(file.path))} " + " ".join(f"{name}={_text_value(entry[name])}" for name in entry)
            self._out.write(line.encode() + b"\n")


def _text_value(value: object) -> str:
    return quote(value) if isinstance(value, str) and not value.isidentifier() else json.dumps(value).strip('"')


@click.command("dump")
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    help="One line for each record, for people or for programs.",
)
@click.option(
    "--bytes",
    "byte_strings",
    type=click.Choice(["auto", "base64"]),
    default="auto",
    help="Keys, values and header values as text if they are UTF-8, or always as base64.",
)
@click.option("--control", is_flag=True, help="Also the broker's own control records, such as transaction markers.")
@click.option("--batches", is_flag=True, help="One line for each batch: its header.")
@click.option("--offsets", type=OffsetRangeType(), help="Only offsets from A to below B; either may be left out.")
@click.option("--since", type=Timestamp(), help="Only timestamps from this one on: milliseconds, or ISO 8601 (UTC).")
@click.option("--until", type=Timestamp(), help="Only timestamps below this one.")
@click.option("--kafka-compat", is_flag=True, help="Print the output of Kafka 4.3.1's kafka-dump-log.")
@click.option("--print-data-log", is_flag=True, help="With --kafka-compat: keys and values too.")
@click.option("--deep-iteration", is_flag=True, help="With --kafka-compat: also a line for each record.")
@click.option("--skip-record-metadata", is_flag=True, help="With --kafka-compat: keys and values only.")
@click.option("--offsets-decoder", is_flag=True, help="With --kafka-compat: decode __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="With --kafka-compat: decode __transaction_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="With --kafka-compat: decode __cluster_metadata.")
def command(
    paths: tuple[str, ...],
    form: str,
    byte_strings: str,
    control: bool,
    batches: bool,
    offsets: tuple[int | None, int | None] | None,
    since: int | None,
    until: int | None,
    kafka_compat: bool,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    cluster_metadata_decoder: bool,
) -> int:
    """Show what the files of a log hold.

    A PATH is a file (a segment, also .deleted, .cleaned or .swap; an index, a snapshot, a checkpoint), the folder of a
    partition, a log directory, or a pattern. A folder's records are shown in the order of partitions and offsets: all
    that the files hold, also below the log start offset. Damage is reported on stderr with its position, and the dump
    continues after it; the exit code is then 1.

    Example: odradek dump /var/lib/kafka/data/events-0 --since 2026-11-01 --format jsonl
    """
    out = sys.stdout.buffer
    decoder = Decoder.of(
        offsets=offsets_decoder, transactions=transaction_log_decoder, cluster_metadata=cluster_metadata_decoder
    )
    if not kafka_compat and (print_data_log or deep_iteration or skip_record_metadata or decoder is not None):
        raise click.UsageError("--print-data-log and the options of Kafka's tool need --kafka-compat")
    start_offset, end_offset = offsets or (None, None)
    selection = DumpSelection(start_offset, end_offset, since, until)
    if kafka_compat and (
        selection != DumpSelection() or batches or control or form != "text" or byte_strings != "auto"
    ):
        raise click.UsageError("--kafka-compat takes only the options of Kafka's tool")
    dump = Dump(
        out, selection, jsonl=form == "jsonl", base64=byte_strings == "base64", control=control, batches=batches
    )
    if kafka_compat:
        detail = KafkaDumpOptions(
            print_data=print_data_log or decoder is not None,
            deep=deep_iteration or print_data_log or decoder is not None,
            skip_metadata=skip_record_metadata,
            decoder=decoder,
        )
        show = KafkaDump(out, detail, dump.damaged).file
    else:
        show = dump.file
    # A dump of a folder shows its records; for Kafka's tool a folder stands for each of its files.
    files = (
        file
        for file in expand(paths)
        if isinstance(file, UnknownPathError) or kafka_compat or file.is_named or file.is_segment
    )
    if not is_file(sys.stdout):
        # On a terminal the dump itself shows how far it is.
        for file in files:
            dump.attempt(file, show)
        return dump.code
    listed = list(files)
    with progress("dump", lambda: total_size(file.path for file in listed if isinstance(file, LogFile)), dump.done):
        for file in listed:
            dump.attempt(file, show)
    return dump.code
