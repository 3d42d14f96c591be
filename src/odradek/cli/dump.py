"""`odradek dump`: what the files of a log hold, including what a consumer would not get."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from typing_extensions import Buffer

from odradek.cli.app import ExitCode, describe, report
from odradek.cli.options import PATHS, Existing
from odradek.cli.progress import is_file, progress, total_size
from odradek.cli.record_options import partition_options, range_options
from odradek.errors import FormatError, OdradekError
from odradek.inspection.ahead import ahead, gathered
from odradek.inspection.log_files import FileKind, LogFile, UnknownPathError, expand
from odradek.inspection.moved_records import MovedRecords, unless_deleted
from odradek.inspection.record_json import CSV_HEADING, Decode, batch_fields, quote, to_json
from odradek.inspection.record_lines import NO_LIMIT, RecordLines
from odradek.inspection.selection import DumpSelection, start_position
from odradek.records import BatchHeader, Record
from odradek.sources.source import is_broker
from odradek.storage.names import TopicPartition, is_internal
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

if TYPE_CHECKING:
    # Imported where only some dumps need it: the time of a small dump is that of its imports.
    from odradek.inspection.decoding import ValueDecoder
    from odradek.sources.source import Source

Shown = TypeVar("Shown")
_WHOLE_PARTS = ("key", "value", "headers")


class Dump:
    """One run over files, one after the other.

    Attributes:
        code: The exit code so far.
    """

    def __init__(
        self,
        selection: DumpSelection,
        *,
        form: str = "text",
        base64: bool = False,
        control: bool = False,
        batches: bool = False,
        key: str | None = None,
        limit: int = NO_LIMIT,
        redact: Sequence[str] = (),
        raw: bool = False,
        values: ValueDecoder | None = None,
    ) -> None:
        self._selection = selection
        self._form = form
        self._base64 = base64
        self._control = control
        self._batches = batches
        self._key = key
        self._limit = limit
        self._redact = [part for part in redact if part in _WHOLE_PARTS]
        self._redacted_paths = [part for part in redact if part not in _WHOLE_PARTS]
        self._raw = raw
        self._values = values
        self.code = ExitCode.CLEAN
        self._done_bytes = 0
        self._position = 0
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

    def files(
        self, files: Iterable[LogFile | UnknownPathError], show: Callable[[LogFile], Iterator[Buffer]]
    ) -> Iterator[Buffer]:
        """Yield what is shown of files. An error is reported, and the dump continues with the next file."""
        for file in files:
            if self._limit <= 0:
                return
            yield from self._attempted(show, file)
            if isinstance(file, LogFile):
                self._position = 0
                self._done_bytes += total_size([file.path])

    def _attempted(self, show: Callable[[Shown], Iterator[Buffer]], what: Shown | UnknownPathError) -> Iterator[Buffer]:
        try:
            if isinstance(what, UnknownPathError):
                raise what
            yield from show(what)
        except FormatError as error:
            self.found(describe(error))
        except (OSError, OdradekError) as error:
            report(describe(error))
            self.code = ExitCode.INPUT_OUTPUT

    def broker(self, address: str, topics: Collection[str], partitions: Collection[int]) -> Iterator[Buffer]:
        """Yield the lines of what a broker holds. An error ends the partition that it is of."""
        from odradek.sources.source import open_source

        def show(address: str) -> Iterator[Buffer]:
            with open_source(address) as source:
                for topic, description in source.topics().items():
                    for number in description.partitions:
                        owner = TopicPartition(topic, number)
                        if self._limit > 0 and _is_wanted(owner, topics, partitions):
                            yield from self._attempted(functools.partial(self._partition, source), owner)

        yield from self._attempted(show, address)

    def _partition(self, source: Source, owner: TopicPartition) -> Iterator[Buffer]:
        selection, bounds = self._selection, source.bounds(owner)
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
            yield from lines.slice(part.data, part.position, part.end_position, part.origin)
            if lines.limit <= 0:
                break
        self._limit = lines.limit
        yield lines.rest()

    def file(self, file: LogFile) -> Iterator[Buffer]:
        """Yield the lines of one file."""
        if file.kind is not FileKind.RECORDS:
            yield from self._entries(file)
        elif not self._selection.skips_segment(file):
            yield from self._moved.read(file, self._selection, self._records)

    def _records(self, file: LogFile, selection: DumpSelection) -> Iterator[Buffer]:
        with mapped(file.path) as data:
            reader = BatchReader(file.path, data, self.damaged, start_position(file, data, selection))
            if self._batches:
                yield from self._batch_lines(file, reader, selection)
            else:
                yield from self._record_lines(file, reader, data, selection)

    def _batch_lines(self, file: LogFile, reader: BatchReader, selection: DumpSelection) -> Iterator[bytes]:
        owner = file.topic_partition
        head = {"topic": owner.topic, "partition": owner.partition} if owner else {"topic": None, "partition": None}
        for header in reader:
            self._position = header.end_position
            if selection.skips_batch(header) or (header.is_control and not self._control):
                continue
            fields = batch_fields(header)
            if self._form == "jsonl":
                line = to_json(head | fields)
            else:
                shown = (f"{name}={_text_value(value)}" for name, value in fields.items())
                line = " ".join([str(owner), *shown] if owner else shown)
            yield line.encode() + b"\n"
            self._limit -= 1
            if self._limit <= 0:
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
        self._limit = lines.limit
        yield lines.rest()

    def _lines(
        self,
        place: str,
        owner: TopicPartition | None,
        selection: DumpSelection,
        refused: Callable[[BatchHeader, FormatError], None],
    ) -> RecordLines:
        return RecordLines(
            self._form,
            owner,
            selection=selection,
            base64=self._base64,
            control=self._control,
            key=self._key,
            limit=self._limit,
            redact=self._redact,
            decode=self._decode(place, owner),
            json_values=self._embeds_json(owner),
            report=refused,
        )

    def _embeds_json(self, owner: TopicPartition | None) -> bool:
        """Whether values are JSON that is written as it stands."""
        if self._values is None or self._redacted_paths or self._decodes_internal(owner):
            return False
        from odradek.inspection.decoding import decode_json

        return self._values is decode_json

    def _decodes_internal(self, owner: TopicPartition | None) -> bool:
        return owner is not None and is_internal(owner.topic) and not self._raw

    def _decode(self, place: str, owner: TopicPartition | None) -> Decode | None:
        """Return what decodes keys and values of a partition; None if they are shown as they are."""
        decodes = self._decodes_internal(owner)
        if not decodes and self._values is None and not self._redacted_paths:
            return None
        from odradek.inspection.decoding import internal_decode, redacted_decode, values_decode

        def cannot_decode(record: Record, error: ValueError) -> None:
            self.found(f"{place}: offset {record.offset}: the value cannot be decoded: {error}")

        decode: Decode | None = None
        if owner is not None and decodes:
            decode = internal_decode(owner.topic)
        if decode is None and self._values is not None:
            decode = values_decode(self._values, cannot_decode)
        return redacted_decode(self._redacted_paths, decode) if self._redacted_paths else decode

    def _entries(self, file: LogFile) -> Iterator[bytes]:
        from odradek.inspection.entry_listing import entries_of

        for entry in entries_of(file):
            if self._form == "jsonl":
                line = to_json({"file": str(file.path)} | entry)
            else:
                line = f"{quote(str(file.path))} " + " ".join(f"{name}={_text_value(entry[name])}" for name in entry)
            yield line.encode() + b"\n"


def _text_value(value: object) -> str:
    return quote(value) if isinstance(value, str) and not value.isidentifier() else json.dumps(value).strip('"')


def _value_decoder(kind: str, schema: Path | None, message: str | None) -> ValueDecoder:
    from odradek.cli.value_schemas import value_decoder

    return value_decoder(kind, schema, message)


def _checked_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    for part in parts:
        root, *names = part.split(".")
        if root not in _WHOLE_PARTS or (names and root == "headers") or not all(names):
            raise click.BadParameter(
                f"{part!r} is neither key, value nor headers, nor a path such as value.card.number"
            )
    return parts


def _is_wanted(owner: TopicPartition, topics: Collection[str], partitions: Collection[int]) -> bool:
    if partitions and owner.partition not in partitions:
        return False
    return not topics or any(fnmatchcase(owner.topic, pattern) for pattern in topics)


def _chosen(
    files: Iterable[LogFile | UnknownPathError], topics: Collection[str], partitions: Collection[int]
) -> Iterator[LogFile | UnknownPathError]:
    """Yield the files of partitions that are wanted, and the errors."""
    for file in files:
        if isinstance(file, LogFile) and (topics or partitions):
            owner = file.topic_partition
            if owner is None or not _is_wanted(owner, topics, partitions):
                continue
        yield file


@click.command("dump")
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl", "csv"]),
    default="text",
    help="One line for each record, for people or for programs; or a table.",
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
@range_options
@click.option("--key", metavar="PATTERN", help="Only records with this key: * is any text, ? one character.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Only the first N records.")
@partition_options
@click.option(
    "--redact",
    multiple=True,
    metavar="PART",
    callback=lambda _context, _option, parts: _checked_parts(parts),
    help="Leave out key, value, headers, or a part of a JSON value: value.card.number.",
)
@click.option("--raw", is_flag=True, help="The records of Kafka's own topics as bytes, not decoded.")
@click.option("--values", type=click.Choice(["json", "avro", "protobuf"]), help="Decode the values.")
@click.option("--schema", type=Existing(folder=False), help="With --values: an Avro schema, or a FileDescriptorSet.")
@click.option("--message", metavar="NAME", help="With --values protobuf: the full name of the message.")
@click.option("--kafka-compat", is_flag=True, help="Print the output of Kafka 4.3.1's kafka-dump-log.")
@click.option("--print-data-log", is_flag=True, help="With --kafka-compat: keys and values too.")
@click.option("--deep-iteration", is_flag=True, help="With --kafka-compat: also a line for each record.")
@click.option("--skip-record-metadata", is_flag=True, help="With --kafka-compat: keys and values only.")
@click.option("--offsets-decoder", is_flag=True, help="With --kafka-compat: decode __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="With --kafka-compat: decode __transaction_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="With --kafka-compat: decode __cluster_metadata.")
@click.option("--share-group-state-decoder", is_flag=True, help="With --kafka-compat: decode __share_group_state.")
@click.option(
    "--max-bytes",
    type=click.IntRange(0, (1 << 31) - 1),
    metavar="N",
    help="With --kafka-compat: the batches in the first N bytes of a file.",
)
@click.option("--verify-index-only", is_flag=True, help="With --kafka-compat: compare indexes with their segments.")
@click.option("--index-sanity-check", is_flag=True, help="With --kafka-compat: check indexes as Kafka does at start.")
def command(
    paths: tuple[str, ...],
    form: str,
    byte_strings: str,
    control: bool,
    batches: bool,
    offsets: tuple[int | None, int | None] | None,
    since: int | None,
    until: int | None,
    key: str | None,
    limit: int | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    redact: tuple[str, ...],
    raw: bool,
    values: str | None,
    schema: Path | None,
    message: str | None,
    kafka_compat: bool,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    cluster_metadata_decoder: bool,
    share_group_state_decoder: bool,
    max_bytes: int | None,
    verify_index_only: bool,
    index_sanity_check: bool,
) -> int:
    """Show what the files of a log hold.

    A PATH is a file (a segment, also .deleted, .cleaned or .swap; an index, a snapshot, a checkpoint), the folder of a
    partition, a log directory, a pattern, or a broker: kafka://HOST:PORT[/TOPIC]. A folder's records are shown in the
    order of partitions and offsets: all that the files hold, also below the log start offset. Damage is reported on
    stderr with its position, and the dump continues after it; the exit code is then 1.

    Example: odradek dump /var/lib/kafka/data/events-0 --since 2026-11-01 --format jsonl
    """
    decoders = (offsets_decoder, transaction_log_decoder, cluster_metadata_decoder, share_group_state_decoder)
    is_decoded = any(decoders)
    limited = (max_bytes is not None, verify_index_only, index_sanity_check)
    if not kafka_compat and any((print_data_log, deep_iteration, skip_record_metadata, is_decoded, *limited)):
        raise click.UsageError("--print-data-log and the options of Kafka's tool need --kafka-compat")
    start_offset, end_offset = offsets or (None, None)
    selection = DumpSelection(start_offset, end_offset, since, until)
    others = (batches, control, form != "text", byte_strings != "auto", key, limit is not None, redact, raw, values)
    if kafka_compat and (selection != DumpSelection() or any(others)):
        raise click.UsageError("--kafka-compat takes only the options of Kafka's tool")
    if batches and (form == "csv" or key is not None or redact or values):
        raise click.UsageError("--batches shows headers of batches, as text or jsonl, and no keys or values")
    if values is None and (schema is not None or message is not None):
        raise click.UsageError("--schema and --message need --values")
    dump = Dump(
        selection,
        form=form,
        base64=byte_strings == "base64",
        control=control,
        batches=batches,
        key=key,
        limit=NO_LIMIT if limit is None else limit,
        redact=redact,
        raw=raw,
        values=None if values is None else _value_decoder(values, schema, message),
    )
    show = dump.file
    if kafka_compat:
        from odradek.cli.kafka_dump import Decoder, IndexView, KafkaDump, KafkaDumpOptions

        detail = KafkaDumpOptions(
            print_data=print_data_log or is_decoded,
            deep=deep_iteration or print_data_log or is_decoded,
            skip_metadata=skip_record_metadata,
            decoder=Decoder.of(
                offsets=offsets_decoder,
                transactions=transaction_log_decoder,
                cluster_metadata=cluster_metadata_decoder,
                share_state=share_group_state_decoder,
            ),
        )
        if max_bytes is not None:
            detail = replace(detail, max_bytes=max_bytes)
        if verify_index_only or index_sanity_check:
            detail = replace(detail, indexes=IndexView.SANITY if index_sanity_check else IndexView.FINDINGS)
        show = functools.partial(unless_deleted, KafkaDump(detail, dump.damaged, dump.found).file)
    if form == "csv":
        sys.stdout.buffer.write(CSV_HEADING)
    brokers = [path for path in paths if is_broker(path)]
    if brokers and (batches or kafka_compat):
        raise click.UsageError("--batches and --kafka-compat are for files")
    for address in brokers:
        # In this thread, so that a signal ends the wait for a broker.
        _write(gathered(dump.broker(address, topics, partitions)))
    # A dump of a folder shows its records; for Kafka's tool a folder stands for each of its files.
    files: Iterable[LogFile | UnknownPathError] = (
        file
        for file in _chosen(expand(path for path in paths if path not in brokers), topics, partitions)
        if isinstance(file, UnknownPathError) or kafka_compat or file.is_named or file.is_segment
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
