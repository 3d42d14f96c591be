"""What Kafka's own dump tool prints, byte for byte.

    Dumping t-0/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 1 count: 2 ... position: 0 CreateTime: 5 size: 90 magic: 2 ... isvalid: true
    | offset: 0 CreateTime: 5 keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: hello

Its format is ambiguous: a value may hold a line break, and so a line that looks like a record. Programs should use
`--format jsonl`. If Kafka's tool would end in a stack trace, the damage is reported and the dump continues.

Source in Kafka: `DumpLogSegments`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any

from odradek.buffers import Buffer
from odradek.errors import CorruptIndexError, FormatError
from odradek.inspection.entry_listing import read_transaction_index
from odradek.inspection.log_files import FileKind, LogFile
from odradek.inspection.verification.run import Verification
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError, refusal_text
from odradek.messages.coordinators.group_records import SHOWN_GROUP_TYPES, group_record_json
from odradek.messages.coordinators.share_records import SHARE_TYPES, share_record_json
from odradek.messages.coordinators.transaction_records import TYPES as TRANSACTION_TYPES
from odradek.messages.coordinators.transaction_records import transaction_record_json
from odradek.messages.metadata.control_records import control_record_json
from odradek.messages.metadata.metadata_records import metadata_record_json
from odradek.records import BatchHeader, Record, read_records, scan_batches
from odradek.records.compression import Codec, Decompressor
from odradek.records.control import ControlRecordType, parse_control_key, parse_end_transaction_marker
from odradek.records.kernels.lines import LineFormatter
from odradek.records.large_section import open_section
from odradek.records.payload import records_section
from odradek.records.scan import Status
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.producer_snapshot import read_snapshot
from odradek.storage.formats.time_index import TimeIndex
from odradek.storage.formats.transaction_index import parse_transaction_index
from odradek.storage.names import BOOTSTRAP_CHECKPOINT, parse_raft_snapshot_file
from odradek.storage.regular_files import file_size
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
# Only after the name of a field: within a string a backslash is before each quotation mark.
_FLOAT = re.compile(r'(?<=[A-Za-z]":)-?[0-9]+(?:\.[0-9]+(?:e[+-][0-9]+)?|e[+-][0-9]+)')
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class Decoder(Enum):
    """How keys and values are decoded, unless they are text, by the option that asks for it."""

    OFFSETS = "offsets_decoder"
    TRANSACTIONS = "transaction_log_decoder"
    CLUSTER_METADATA = "cluster_metadata_decoder"
    SHARE_STATE = "share_group_state_decoder"


_COORDINATORS = {
    Decoder.OFFSETS: group_record_json,
    Decoder.TRANSACTIONS: transaction_record_json,
    Decoder.SHARE_STATE: share_record_json,
}
_TYPES = {
    Decoder.OFFSETS: SHOWN_GROUP_TYPES,
    Decoder.TRANSACTIONS: TRANSACTION_TYPES,
    Decoder.SHARE_STATE: SHARE_TYPES,
}


class IndexView(Enum):
    """What is shown of an index."""

    ENTRIES = "its entries"
    FINDINGS = "whether its entries fit to the segment"
    SANITY = "whether Kafka would make it again when it starts"


ALL_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class KafkaDumpOptions:
    """The options of Kafka's tool; `max_bytes` is of a file of records, 2^31 - 1 for all of it."""

    print_data: bool = False
    deep: bool = False
    skip_metadata: bool = False
    decoder: Decoder | None = None
    max_bytes: int = ALL_BYTES
    indexes: IndexView = IndexView.ENTRIES

    def formatter(self) -> LineFormatter | None:
        """Return what prints plain batches; None if records have to be decoded."""
        if self.decoder is not None:
            return None
        return LineFormatter(
            open_section,
            "kafka",
            b"",
            is_deep=self.deep,
            prints_data=self.print_data,
            skips_metadata=self.skip_metadata,
        )


def java_text(data: bytes) -> str:
    """Decode UTF-8 as Java does, with U+FFFD for malformed bytes."""
    # Java replaces an encoded surrogate by one U+FFFD, Python by up to three.
    return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _line(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"


def optional_long(value: int | None) -> str:
    """Return what Java's `OptionalLong` prints."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


class KafkaDump:
    """Prints files as Kafka's tool does.

    Args:
        options: The tool's options.
        report: Called with each damage.
        found: Called with what is wrong with an index, in words.
    """

    def __init__(
        self, options: KafkaDumpOptions, report: Callable[[Damage], None], found: Callable[[str], None]
    ) -> None:
        self._options, self._report, self._found = options, report, found
        self._printers: dict[FileKind, Callable[[LogFile], Iterator[Buffer]]] = {
            FileKind.RECORDS: self._records,
            FileKind.OFFSET_INDEX: self._offset_index,
            FileKind.TIME_INDEX: self._time_index,
            FileKind.TRANSACTION_INDEX: self._transaction_index,
            FileKind.PRODUCER_SNAPSHOT: self._producer_snapshot,
        }

    def file(self, file: LogFile) -> Iterator[Buffer]:
        """Yield what is printed of one file; files that Kafka's tool does not know are left out."""
        if file.kind not in self._printers:
            return
        # The printers open any file of such a name: check first that it is a regular one.
        file_size(file.path)
        yield _line(f"Dumping {file.path}")
        yield from self._printers[file.kind](file)

    def _offset_index(self, file: LogFile) -> Iterator[Buffer]:
        index = OffsetIndex(file.path, file.base_offset)
        if not index.count:
            yield _line(f"{file.path} is empty.")
        elif self._options.indexes is IndexView.SANITY:
            index.check_size()
            yield self._sane(file, index.last_entry().offset)
        elif self._options.indexes is IndexView.FINDINGS:
            self._verify(file)
        else:
            for entry in index.entries():
                yield _line(f"offset: {entry.offset} position: {entry.position}")
        index.close()

    def _time_index(self, file: LogFile) -> Iterator[Buffer]:
        index = TimeIndex(file.path, file.base_offset)
        if self._options.indexes is IndexView.SANITY:
            index.check_size()
            last = index.last_entry()
            if index.count and last.timestamp < index.entry(0).timestamp:
                reason = f"the last timestamp, {last.timestamp}, is below the first, {index.entry(0).timestamp}"
                raise CorruptIndexError(reason, path=file.path)
            yield self._sane(file, last.offset)
        elif self._options.indexes is IndexView.FINDINGS:
            self._verify(file)
        else:
            for entry in index.entries():
                yield _line(f"timestamp: {entry.timestamp} offset: {entry.offset}")
        index.close()

    @staticmethod
    def _sane(file: LogFile, last_offset: int) -> bytes:
        """Return the line for an index in which Kafka finds nothing wrong when it starts."""
        if last_offset < file.base_offset:
            raise CorruptIndexError(f"the last offset, {last_offset}, is below {file.base_offset}", path=file.path)
        return _line(f"{file.path} passed sanity check.")

    def _verify(self, file: LogFile) -> None:
        """Compare an index with its segment, as `odradek verify` does."""
        for finding in Verification().findings(replace(file, is_named=True)):
            if finding.path == file.path:
                self._found(str(finding))

    def _transaction_index(self, file: LogFile) -> Iterator[Buffer]:
        for entry in parse_transaction_index(read_transaction_index(file), path=file.path):
            yield _line(
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )

    def _producer_snapshot(self, file: LogFile) -> Iterator[Buffer]:
        for entry in read_snapshot(file.path):
            first = entry.current_transaction_first_offset
            text = (
                f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
                f"coordinatorEpoch: {entry.coordinator_epoch} "
                f"currentTxnFirstOffset: {optional_long(None if first < 0 else first)} "
                f"lastTimestamp: {entry.last_timestamp} "
            )
            if entry.last_offset >= 0:
                text += (
                    f"firstSequence: {_first_sequence(entry.last_sequence, entry.offset_delta)} "
                    f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                    f"offsetDelta: {entry.offset_delta} timestamp: {entry.last_timestamp}"
                )
            yield _line(text)

    def _records(self, file: LogFile) -> Iterator[Buffer]:
        snapshot = parse_raft_snapshot_file(file.path.name)
        if file.path.name == BOOTSTRAP_CHECKPOINT:
            yield _line("KRaft bootstrap snapshot")
        elif snapshot is not None:
            yield _line(f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}")
        else:
            yield _line(f"Log starting offset: {file.base_offset}")
        most = self._options.max_bytes
        with mapped(file.path, most) as data:
            is_cut = len(data) < file_size(file.path)
            trailing = 0

            def damaged(damage: Damage) -> None:
                nonlocal trailing
                if damage.is_truncation:
                    if is_cut:
                        # The batch goes on after what was asked for.
                        return
                    trailing = damage.size_bytes if most == ALL_BYTES else 0
                self._report(damage)

            formatter = self._options.formatter()
            for table, is_valid in BatchReader(file.path, data, damaged, keep_bad_checksums=True).tables():
                index = 0
                while index < len(table):
                    status: int = Status.BAD_RECORD
                    if formatter is not None and is_valid:
                        status, index = formatter.format(table, index, data)
                        if formatter.is_full:
                            yield formatter.take()
                    if status == Status.BAD_RECORD:
                        if formatter is not None:
                            yield formatter.take()  # what comes before this batch
                        yield from self._batch(file, data, table.header(index), is_valid=is_valid)
                        index += 1
                    elif status == Status.OK:
                        break
            if formatter is not None:
                yield formatter.take()
            if trailing:
                yield _line(f"Found {trailing} invalid bytes at the end of {file.path.name}")

    def _batch(self, file: LogFile, data: Buffer, header: BatchHeader, *, is_valid: bool) -> Iterator[bytes]:
        """Yield the lines of a batch that the kernel leaves to us."""
        yield _line(_batch_line(header, is_valid=is_valid))
        if not self._options.deep:
            return
        try:
            records = read_records(data, header, check_crc=False)
            details = list(_record_details(data, header, records))
        except FormatError as error:
            self._report(damage_of(file.path, header, error))
            return
        for record, detail in zip(records, details, strict=True):
            parts = []
            if not self._options.skip_metadata:
                timestamp = -1 if record.timestamp is None else record.timestamp
                parts.append(
                    f"offset: {record.offset} {header.timestamp_type or 'NoTimestampType'}: {timestamp} "
                    f"keySize: {_size(record.key)} valueSize: {_size(record.value)}{detail}"
                )
                if header.is_control:
                    parts.append(_control_text(record))
            if self._options.print_data and not header.is_control:
                key, payload = self._decode(record)
                if key is not None:
                    parts.append(f"key: {key}")
                if payload is not None:
                    parts.append(f"payload: {payload}")
            yield _line(f"| {' '.join(parts)}" if parts else "")

    def _decode(self, record: Record) -> tuple[str | None, str | None]:
        if self._options.decoder is None:
            key = None if record.key is None else java_text(record.key)
            return key, None if record.value is None else java_text(record.value)
        if self._options.decoder is Decoder.CLUSTER_METADATA:
            try:
                return None, _json(metadata_record_json(record.value))
            except FormatError as error:
                return None, f"Error at {record.offset}, skipping. {error.reason}"
        try:
            key_json, value_json = _COORDINATORS[self._options.decoder](record.key, record.value)
            return _json(key_json), "<DELETE>" if value_json is None else _json(value_json)
        except UnknownCoordinatorRecordError as error:
            return f"Unknown record type {error.type} at offset {record.offset}, skipping.", None
        except FormatError as error:
            text = refusal_text(_TYPES[self._options.decoder], record.key, record.value, error)
            return f"Error at offset {record.offset}, skipping. {text}", None


def _java_number(found: re.Match[str]) -> str:
    """Return a number of JSON as Java's `Double.toString` writes it: 1.0E7."""
    text = found[0]
    number = Decimal(text)
    if not number or Decimal("1e-3") <= abs(number) < 10_000_000:
        return text
    sign, digits, exponent = number.normalize().as_tuple()
    first, *others = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{len(others) + int(exponent)}"


def _json(value: dict[str, Any]) -> str:
    text = _FLOAT.sub(_java_number, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    # Jackson writes the digits of an escape as capitals: \u001F.
    return _ESCAPE.sub(lambda escape: escape[0] if escape[1] is None else f"\\u{escape[1].upper()}", text)


def _name(name: str) -> str:
    return name if name.isascii() else java_text(name.encode("utf-8", "surrogateescape"))


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    first = last_sequence - offset_delta
    return first if first >= 0 else first + 0x8000_0000


def _record_details(data: Buffer, header: BatchHeader, records: list[Record]) -> Iterator[str]:
    """Yield what is printed of each record besides offset, time and sizes."""
    if header.magic == 2:
        for record in records:
            sequence = -1
            if header.base_sequence >= 0 and record.offset is not None:
                sequence = (header.base_sequence + (record.offset - header.base_offset)) & 0x7FFF_FFFF
            yield f" sequence: {sequence} headerKeys: [{','.join(_name(name) for name, _ in record.headers)}]"
        return
    section: Buffer = data
    inner = [header]
    if header.codec:
        section = records_section(data, header, Decompressor())
        inner = list(scan_batches(section, check_crc=False))
    for message in inner:
        scan = scan_batches(section, message.position, message.end_position)
        yield f" isValid: {_boolean(next(iter(scan), None) is not None)} crc: {message.crc}"


def _control_text(record: Record) -> str:
    kind = parse_control_key(record.key)
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = parse_end_transaction_marker(record.key, record.value)
        return f"endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    decoded = control_record_json(record)
    if decoded is not None:
        name, fields = decoded
        return f"{name}{':' if kind is ControlRecordType.LEADER_CHANGE else ''} {_json(fields)}"
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return f"controlType: {kind.name if kind is not None else 'UNKNOWN'}({number})"


def _batch_line(header: BatchHeader, *, is_valid: bool) -> str:
    codec = header.codec
    tail = (
        f" position: {header.position} {header.timestamp_type or 'NoTimestampType'}: {header.max_timestamp} "
        f"size: {header.size_bytes} magic: {header.magic} "
        f"compresscodec: {Codec(codec).name.lower() if codec in list(Codec) else codec} "
        f"crc: {header.crc} isvalid: {_boolean(is_valid)}"
    )
    if header.magic < 2:
        return f"offset: {header.last_offset}{tail}"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_boolean(header.is_transactional)} isControl: {_boolean(header.is_control)} "
        f"deleteHorizonMs: {optional_long(header.delete_horizon_ms)}{tail}"
    )
