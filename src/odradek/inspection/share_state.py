"""How far share groups are (KIP-932), as `__share_group_state` has it.

Source in Kafka: `ShareCoordinatorShard.replay`, `GroupCoordinatorService` (`describeShareGroupOffsets`: the lag).
"""

from __future__ import annotations

from contextlib import suppress

from odradek.coordination.lag import has_share_lag, share_lag
from odradek.coordination.shares.state_batches import NO_START_OFFSET
from odradek.coordination.shares.states import DeliveryStates
from odradek.coordination.state_log import KeyValue
from odradek.inspection.group_description import SharedPartition, StateBatch
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.share_records import ShareKey, ShareSnapshot
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.log.log import Log
from odradek.storage.log.replay import replay

_NO_SNAPSHOTS = 1 << 31
"""After how many updates a snapshot is written: nothing is written here."""


class ShareStates:
    """The states of all share groups, by the records of `__share_group_state`."""

    def __init__(self) -> None:
        self._states = DeliveryStates(_NO_SNAPSHOTS)

    def load(self, log: Log) -> None:
        """Take over the records of a partition.

        Raises:
            FormatError: A batch or a record is damaged.
        """
        replay(log, self._replay)

    def _replay(self, record: Record, batch: BatchHeader) -> None:
        if not batch.is_control:
            with suppress(UnknownCoordinatorRecordError):
                self._states.replay(record.key, record.value, record.offset or 0)

    def of_partition(self, key: ShareKey) -> ShareSnapshot | None:
        """Return the state of a partition, or None."""
        return self._states.states.get(key)

    def begun(self, key: ShareKey, group_epoch: int, start_offset: int, now_ms: int) -> KeyValue:
        """Return the record that begins the state of a partition anew, as when an administrator alters its offset."""
        before = self.of_partition(key)
        state_epoch = group_epoch if before is None else max(group_epoch, before.state_epoch)
        return self._states.initialize(key, state_epoch, start_offset, now_ms)

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """Return the records that remove the states of a group."""
        return self._states.delete([key for key in self._states.states if key.group_id == group_id])


def shared_partition(state: ShareSnapshot | None, end_offset: int | None) -> SharedPartition:
    """Return what a state says of a partition that ends at an offset; None if that is not known."""
    if state is None:
        return SharedPartition(None, None, ())
    start = None if state.start_offset == NO_START_OFFSET else state.start_offset
    lag = None
    if end_offset is not None and has_share_lag(state.start_offset, state.delivery_complete_count):
        lag = share_lag(state.start_offset, state.delivery_complete_count, end_offset)
    batches = (
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in state.state_batches
    )
    return SharedPartition(start, lag, tuple(batches))
