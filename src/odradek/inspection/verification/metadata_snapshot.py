"""Checks the form of a snapshot of the metadata log, or of `bootstrap.checkpoint`.

    control batch: header | records | control batch: footer      offsets from 0 on without a gap, one leader epoch

Without the footer it is incomplete. The epoch is the one in its name, and 0 in `bootstrap.checkpoint`.

Source in Kafka: `RecordsSnapshotWriter`, `RecordsSnapshotReader`, `BatchFileWriter`.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.errors import FormatError
from odradek.inspection.batches import batches_and_damage, damage_finding
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.log_files import LogFile
from odradek.inspection.offset_order import Lost, OffsetOrder, SegmentPlace
from odradek.messages.metadata.metadata_records import decode_metadata_record
from odradek.records.batch import each_record
from odradek.storage.formats.metadata_snapshot import SNAPSHOT_EPOCH, read_snapshot
from odradek.storage.names import parse_raft_snapshot_file
from odradek.storage.segment.batch_reader import Damage, damage_of, mapped


class MetadataSnapshotCheck:
    """One run over a snapshot.

    Args:
        file: The snapshot.
        decode: Whether to decode every record even if the file is damaged; in a sound file every record is decoded
            anyway.

    Attributes:
        batches: How many batches were read.
    """

    def __init__(self, file: LogFile, *, decode: bool) -> None:
        self._file = file
        self._decode = decode
        name = parse_raft_snapshot_file(file.path.name)
        self._epoch = SNAPSHOT_EPOCH if name is None else name.epoch
        self.batches = 0

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong.

        Raises:
            FormatError: It is not a regular file, is incomplete, or a record of it cannot be read.
            OSError: It cannot be read.
        """
        is_damaged = False
        for finding in self._batches():
            is_damaged = is_damaged or finding.kind is FindingKind.DAMAGE
            yield finding
        if is_damaged:
            return
        for value in read_snapshot(self._file.path).values:
            try:
                decode_metadata_record(value)
            except FormatError as error:
                # A position within the record is of no use to a reader of the file.
                raise FormatError(error.reason, path=self._file.path) from error

    def _batches(self) -> Iterator[Finding]:
        path = self._file.path
        order = OffsetOrder(SegmentPlace(path, 0, is_dense=True), IndexEvidence.none())
        with mapped(path) as data:
            for item in order.batches(batches_and_damage(path, data)):
                if isinstance(item, Finding):
                    yield item
                elif isinstance(item, Damage):
                    yield damage_finding(item)
                elif not isinstance(item, Lost):
                    self.batches += 1
                    if item.partition_leader_epoch != self._epoch:
                        reason = f"leader epoch {item.partition_leader_epoch}, where the snapshot is of {self._epoch}"
                        yield Finding(path, item.position, FindingKind.EPOCH, reason)
                    if self._decode:
                        try:
                            each_record(data, item)
                        except FormatError as error:
                            yield damage_finding(damage_of(path, item, error))
