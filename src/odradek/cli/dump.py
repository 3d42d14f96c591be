"""`odradek dump`: what the files of a log hold, including what a consumer would not get."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, TypeVar

import click

from odradek.arguments import is_broker
from odradek.buffers import Buffer
from odradek.cli.app import ExitCode, describe, exit_code, report
from odradek.cli.options import COMMAND_CONFIG, COUNT, PATHS, Number, bundled
from odradek.cli.progress import is_file, progress, total_size
from odradek.cli.record_options import (
    BASE64,
    KEY,
    REDACT,
    WHOLE_PARTS,
    PartitionFilter,
    partition_options,
    range_options,
    record_format,
    value_options,
)
from odradek.errors import FormatError, OdradekError
from odradek.inspection.ahead import ahead, gathered
from odradek.inspection.log_files import FileKind, LogFile, UnknownPathError, expand
from odradek.inspection.moved_records import MovedRecords, unless_deleted
from odradek.inspection.record_json import CSV_HEADING, Decode, batch_fields, quote, to_json
from odradek.inspection.record_lines import NO_LIMIT, RecordLines
from odradek.inspection.selection import DumpSelection, start_position
from odradek.kafka_version import KAFKA_VERSION
from odradek.records import BatchHeader, Record
from odradek.storage.config_def import MAX_INT32
from odradek.storage.names import TopicPartition, is_internal
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

if TYPE_CHECKING:
    # Imported where only some dumps need it: the time of a small dump is that of its imports.
    from odradek.cli.kafka_dump import KafkaDumpOptions
    from odradek.inspection.decoding import ValueDecoder
    from odradek.places.place import Place

Shown = TypeVar("Shown")


@dataclass(eq=False)
class Dump:
    """One run over files, one after the other.

    Attributes:
        code: The exit code so far.
    """

    selection: DumpSelection
    _: KW_ONLY
    form: str = "text"
    base64: bool = False
    control: bool = False
    batches: bool = False
    key: str | None = None
    limit: int = NO_LIMIT
    redact: Sequence[str] = ()
    raw: bool = False
    values: ValueDecoder | None = None
    code: ExitCode = field(default=ExitCode.CLEAN, init=False)

    def __post_init__(self) -> None:
        self._redacted_paths = [part for part in self.redact if part not in WHOLE_PARTS]
        self._done_bytes = self._position = 0
        self._moved = MovedRecords()

    def done(self) -> int:
        """Return how many bytes of the files were processed."""
        return self._done_bytes + self._position

    def damaged(self, damage: Damage) -> None:
        """Note bytes that cannot be read."""
        self.found(str(damage))

    def found(self, what: str) -> None:
        """Note what is wrong."""
        report(what)
        self.code = max(self.code, ExitCode.FINDINGS)

    def failed(self, error: OSError | OdradekError) -> None:
        """Note what cannot be read, or is not there."""
        report(describe(error))
        self.code = max(self.code, exit_code(error))

    def files(
        self, files: Iterable[LogFile | OdradekError], show: Callable[[LogFile], Iterator[Buffer]]
    ) -> Iterator[Buffer]:
        """Yield what is shown of files. An error is reported, and the dump continues with the next file."""
        for file in files:
            if self.limit <= 0:
                return
            yield from self._attempted(show, file)
            if isinstance(file, LogFile):
                self._position = 0
                self._done_bytes += total_size([file.path])

    def _attempted(self, show: Callable[[Shown], Iterator[Buffer]], what: Shown | OdradekError) -> Iterator[Buffer]:
        try:
            if isinstance(what, OdradekError):
                raise what
            yield from show(what)
        except (OSError, OdradekError) as error:
            self.failed(error)

    def broker(
        self, address: str, wanted: PartitionFilter, config: Mapping[str, str] | None = None
    ) -> Iterator[Buffer]:
        """Yield the lines of what a broker holds. An error ends the partition that it is of."""
        from odradek.places.opening import open_place

        def show(address: str) -> Iterator[Buffer]:
            with open_place(address, config) as source:
                with progress("connecting"):
                    there = source.partitions()
                for error in wanted.missing(there, source.address):
                    self.failed(error)
                for owner in filter(wanted.takes, there):
                    if self.limit > 0:
                        yield from self._attempted(functools.partial(self._partition, source), owner)

        yield from self._attempted(show, address)

    def _partition(self, source: Place, owner: TopicPartition) -> Iterator[Buffer]:
        selection, bounds = self.selection, source.bounds(owner)
        start = max(selection.start_offset or 0, bounds.start_offset)
        end = min(NO_LIMIT if selection.end_offset is None else selection.end_offset, bounds.end_offset)
        if selection.since is not None:
            first = source.find_timestamp(owner, selection.since)
            start = end if first is None else max(start, first)
        if start >= end:
            return
        place = f"{source.address}: {owner}"

        def refused(header: BatchHeader, error: FormatError) -> None:
            self.found(f"{place}: offset {header.base_offset}: {error.reason}")

        lines = self._lines(place, owner, selection, refused)
        # Without a start (None), it is no error if retention deletes the first records meanwhile.
        for part in source.slices(owner, None if start == bounds.start_offset else start, end):
            for table, data in part.tables(self.damaged):
                yield from lines.table(table, data)
            if lines.limit <= 0:
                break
        self.limit = lines.limit
        yield lines.rest()

    def file(self, file: LogFile) -> Iterator[Buffer]:
        """Yield the lines of one file."""
        if file.kind is not FileKind.RECORDS:
            yield from self._entries(file)
        elif not self.selection.skips_segment(file):
            yield from self._moved.read(file, self.selection, self._records)

    def _records(self, file: LogFile, selection: DumpSelection) -> Iterator[Buffer]:
        with mapped(file.path) as data:
            reader = BatchReader(file.path, data, self.damaged, start_position(file, data, selection))
            if self.batches:
                yield from self._batch_lines(file, reader, selection)
            else:
                yield from self._record_lines(file, reader, data, selection)

    def _batch_lines(self, file: LogFile, reader: BatchReader, selection: DumpSelection) -> Iterator[bytes]:
        owner = file.topic_partition
        head = {"topic": owner.topic, "partition": owner.partition} if owner else {"topic": None, "partition": None}
        for header in reader:
            self._position = header.end_position
            if selection.skips_batch(header) or (header.is_control and not self.control):
                continue
            fields = batch_fields(header)
            if self.form == "jsonl":
                line = to_json(head | fields)
            else:
                shown = (f"{name}={_text_value(value)}" for name, value in fields.items())
                line = " ".join([str(owner), *shown] if owner else shown)
            yield line.encode() + b"\n"
            self.limit -= 1
            if self.limit <= 0:
                return

    def _record_lines(
        self, file: LogFile, reader: BatchReader, data: Buffer, selection: DumpSelection
    ) -> Iterator[Buffer]:
        def refused(header: BatchHeader, error: FormatError) -> None:
            self.damaged(damage_of(file.path, header, error))

        lines = self._lines(str(file.path), file.topic_partition, selection, refused)
        for table, _ in reader.tables():
            yield from lines.table(table, data)
            self._position = table.stop_position
            if lines.limit <= 0:
                break
        self.limit = lines.limit
        yield lines.rest()

    def _lines(
        self,
        place: str,
        owner: TopicPartition | None,
        selection: DumpSelection,
        refused: Callable[[BatchHeader, FormatError], None],
    ) -> RecordLines:
        return RecordLines(
            self.form,
            owner,
            selection=selection,
            base64=self.base64,
            control=self.control,
            key=self.key,
            limit=self.limit,
            redact=[part for part in self.redact if part in WHOLE_PARTS],
            decode=self._decode(place, owner),
            json_values=self._embeds_json(owner),
            report=refused,
        )

    def _embeds_json(self, owner: TopicPartition | None) -> bool:
        """Whether values are JSON that is written as it stands."""
        if self.values is None or self._redacted_paths or self._decodes_internal(owner):
            return False
        from odradek.inspection.decoding import decode_json

        return self.values is decode_json

    def _decodes_internal(self, owner: TopicPartition | None) -> bool:
        return owner is not None and is_internal(owner.topic) and not self.raw

    def _decode(self, place: str, owner: TopicPartition | None) -> Decode | None:
        """Return what decodes keys and values of a partition; None if they are shown as they are."""
        decodes = self._decodes_internal(owner)
        if not decodes and self.values is None and not self._redacted_paths:
            return None
        from odradek.inspection.decoding import decode_of

        def cannot_decode(record: Record, error: ValueError) -> None:
            self.found(f"{place}: offset {record.offset}: the value cannot be decoded: {error}")

        topic = owner.topic if owner is not None and decodes else None
        return decode_of(topic, self.values, self._redacted_paths, cannot_decode)

    def _entries(self, file: LogFile) -> Iterator[bytes]:
        from odradek.inspection.entry_listing import entries_of

        for entry in entries_of(file):
            if self.form == "jsonl":
                line = to_json({"file": str(file.path)} | entry)
            else:
                line = f"{quote(str(file.path))} " + " ".join(f"{name}={_text_value(entry[name])}" for name in entry)
            yield line.encode() + b"\n"


def _text_value(value: object) -> str:
    return quote(value) if isinstance(value, str) and not value.isidentifier() else json.dumps(value).strip('"')


def _chosen(
    files: Iterable[LogFile | UnknownPathError], wanted: PartitionFilter, paths: Sequence[str]
) -> Iterator[LogFile | OdradekError]:
    """Yield the files of partitions that are wanted, and the errors; at last those for what is not there."""
    owners = set()
    for file in files:
        if isinstance(file, LogFile) and wanted != PartitionFilter():
            if file.topic_partition is None:
                continue
            owners.add(file.topic_partition)
            if not wanted.takes(file.topic_partition):
                continue
        yield file
    yield from wanted.missing(owners, ", ".join(paths))


def _kafka_options(kafka_compat: bool, max_bytes: int | None, **flags: bool) -> KafkaDumpOptions | None:
    """Return the options of Kafka's tool; None for a dump of our own."""
    if not kafka_compat:
        if max_bytes is not None or any(flags.values()):
            raise click.UsageError("--print-data-log and the options of Kafka's tool need --kafka-compat")
        return None
    from odradek.cli.kafka_dump import ALL_BYTES, Decoder, IndexView, KafkaDumpOptions

    # Of several, the first in the order of Kafka's tool.
    decoder = next((one for one in Decoder if flags[one.value]), None)
    prints_data = flags["print_data_log"] or decoder is not None
    checks = IndexView.SANITY if flags["index_sanity_check"] else IndexView.FINDINGS
    return KafkaDumpOptions(
        print_data=prints_data,
        deep=flags["deep_iteration"] or prints_data,
        skip_metadata=flags["skip_record_metadata"],
        decoder=decoder,
        max_bytes=ALL_BYTES if max_bytes is None else max_bytes,
        indexes=checks if flags["verify_index_only"] or flags["index_sanity_check"] else IndexView.ENTRIES,
    )


_KAFKA_COMPAT = bundled(
    "kafka",
    _kafka_options,
    click.option("--kafka-compat", is_flag=True, help=f"Print the output of Kafka {KAFKA_VERSION}'s kafka-dump-log."),
    click.option("--print-data-log", is_flag=True, help="With --kafka-compat: keys and values too."),
    click.option("--deep-iteration", is_flag=True, help="With --kafka-compat: also a line for each record."),
    click.option("--skip-record-metadata", is_flag=True, help="With --kafka-compat: keys and values only."),
    click.option("--offsets-decoder", is_flag=True, help="With --kafka-compat: decode __consumer_offsets."),
    click.option("--transaction-log-decoder", is_flag=True, help="With --kafka-compat: decode __transaction_state."),
    click.option("--cluster-metadata-decoder", is_flag=True, help="With --kafka-compat: decode __cluster_metadata."),
    click.option("--share-group-state-decoder", is_flag=True, help="With --kafka-compat: decode __share_group_state."),
    click.option(
        "--max-bytes",
        type=Number(0, MAX_INT32),
        help="With --kafka-compat: the batches in the first N bytes of a file.",
    ),
    click.option("--verify-index-only", is_flag=True, help="With --kafka-compat: compare indexes with their segments."),
    click.option(
        "--index-sanity-check", is_flag=True, help="With --kafka-compat: check indexes as Kafka does at start."
    ),
)


@click.command("dump")
@PATHS
@record_format("text", "jsonl", "csv", what="One line for each record, for people or for programs, or a table")
@BASE64
@click.option("--control", is_flag=True, help="Also the broker's own control records, such as transaction markers.")
@click.option("--batches", is_flag=True, help="One line for each batch: its header.")
@range_options
@KEY
@click.option("--limit", type=COUNT, help="Only the first N records.")
@partition_options
@REDACT
@click.option("--raw", is_flag=True, help="The records of Kafka's own topics as bytes, not decoded.")
@value_options
@_KAFKA_COMPAT
@COMMAND_CONFIG
def command(
    paths: tuple[str, ...],
    form: str,
    base64: bool,
    control: bool,
    batches: bool,
    selection: DumpSelection,
    key: str | None,
    limit: int | None,
    wanted: PartitionFilter,
    redact: tuple[str, ...],
    raw: bool,
    values: ValueDecoder | None,
    kafka: KafkaDumpOptions | None,
    config: dict[str, str] | None,
) -> int:
    """Show what the files of a log hold.

    A PATH is a file (a segment, also .deleted, .cleaned or .swap; an index, a snapshot, a checkpoint), the folder of a
    partition, a log directory, a pattern, or a broker: kafka://HOST:PORT[/TOPIC]. A folder's records are shown in the
    order of partitions and offsets: all that the files hold, also below the log start offset. Damage is reported on
    stderr with its position, and the dump continues after it; the exit code is then 1.

    Example: odradek dump /var/lib/kafka/data/events-0 --since 2026-11-01 --format jsonl
    """
    others = (batches, control, form != "text", base64, key, limit is not None, redact, raw, values)
    if kafka is not None and (selection != DumpSelection() or any(others)):
        raise click.UsageError("--kafka-compat takes only the options of Kafka's tool")
    if batches and (form not in ("text", "jsonl") or key is not None or redact or values):
        raise click.UsageError("--batches shows headers of batches, as text or jsonl, and no keys or values")
    dump = Dump(
        selection,
        form=form,
        base64=base64,
        control=control,
        batches=batches,
        key=key,
        limit=NO_LIMIT if limit is None else limit,
        redact=redact,
        raw=raw,
        values=values,
    )
    show = dump.file
    if kafka is not None:
        from odradek.cli.kafka_dump import KafkaDump

        show = functools.partial(unless_deleted, KafkaDump(kafka, dump.damaged, dump.found).file)
    if form == "csv":
        sys.stdout.buffer.write(CSV_HEADING)
    brokers = [path for path in paths if is_broker(path)]
    names = [path for path in paths if path not in brokers]
    if brokers and (batches or kafka is not None):
        raise click.UsageError("--batches and --kafka-compat are for files")
    for address in brokers:
        # In this thread, so that a signal ends the wait for a broker.
        _write(gathered(dump.broker(address, wanted, config)))
    # A dump of a folder shows its records; for Kafka's tool a folder stands for each of its files.
    files: Iterable[LogFile | OdradekError] = (
        file
        for file in (_chosen(expand(names), wanted, names) if names else ())
        if isinstance(file, OdradekError) or kafka is not None or file.is_named or file.is_segment
    )
    if not is_file(sys.stdout):
        # On a terminal the dump itself shows how far it is.
        _write(ahead(gathered(dump.files(files, show))))
        return dump.code
    listed = list(files)
    with progress("dump", lambda: total_size(file.path for file in listed if isinstance(file, LogFile)), dump.done):
        _write(ahead(gathered(dump.files(listed, show))))
    return dump.code


def _write(blocks: Iterator[Buffer]) -> None:
    out = sys.stdout.buffer
    for block in blocks:
        out.write(block)
