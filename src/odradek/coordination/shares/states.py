"""What is written down of share groups' deliveries, and the records of `__share_group_state` that say it.

    snapshot   all that is known of a group's partition; a tombstone removes it
    update     what has changed since: start offset, counts, states of some ranges

After `share.coordinator.snapshot.update.records.per.snapshot` updates a snapshot is written. Records before the oldest
snapshot that counts are not needed any more. A snapshot that is too large for the log is put off, and tried again after
as many more updates; Apache Kafka refuses the change, and from then on all changes of that state.

Source in Kafka: `ShareCoordinatorShard`, `ShareGroupOffset`, `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.state_batches import NO_START_OFFSET, StateBatch, are_in_order, combined, touched
from odradek.coordination.state_log import KeyValue
from odradek.messages.coordinators.share_records import (
    SHARE_SNAPSHOT_TYPE,
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    WrittenBatch,
    decode_share_record,
    encode_share_record,
)
from odradek.messages.uuids import format_uuid

NO_EPOCH = -1
NOT_COUNTED = -1
_RANGE_BYTES = 20
"""A range in a record: two offsets, state, count and tags."""
_FIXED_BYTES = 128
"""Somewhat more than all of a snapshot but the group id and the ranges."""
_LAST_OFFSET = attrgetter("last_offset")
_FENCED_STATE = "The share coordinator rejected the request because the share-group state epoch did not match."


class StateWrite(NamedTuple):
    """What changes in a partition.

    Attributes:
        state_epoch: The epoch of the state that the writer knows; -1 is not compared.
        leader_epoch: The leader epoch of the partition; -1 is not compared.
        start_offset: Its start offset; -1 if it is as before.
        complete_count: How many records from the start offset on are done.
        batches: The states that have changed.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


def coordinator_key(key: ShareKey) -> str:
    """Return the text by whose hash a partition of the topic is chosen."""
    return f"{key.group_id}:{format_uuid(key.topic_id)}:{key.partition}"


def _written(batches: Iterable[StateBatch]) -> tuple[WrittenBatch, ...]:
    return tuple(
        WrittenBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in batches
    )


def _read(batches: Iterable[WrittenBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state) for one in batches
    )


def _in_order(batches: tuple[WrittenBatch, ...]) -> tuple[WrittenBatch, ...]:
    return batches if are_in_order(batches) else _written(combined((), _read(batches), NO_START_OFFSET))


def _updated(
    before: tuple[WrittenBatch, ...], new: Sequence[WrittenBatch], start_offset: int
) -> tuple[WrittenBatch, ...]:
    """Return ranges after an update; only what it touches is merged, as there may be any number of others."""
    found, done = list[WrittenBatch](), 0
    for one in touched(before, _read(new)):
        found += before[done : one.first]
        found += _written(combined(_read(before[one.first : one.end]), one.new, NO_START_OFFSET))
        done = one.end
    found += before[done:]
    if start_offset != NO_START_OFFSET:
        del found[: bisect_left(found, start_offset, key=_LAST_OFFSET)]
        if found and found[0].first_offset < start_offset:
            found[0] = found[0]._replace(first_offset=start_offset)
    return tuple(found)


def _is_cold(state: ShareSnapshot, now_ms: int, interval_ms: int) -> bool:
    return now_ms - state.write_timestamp >= interval_ms


class DeliveryStates:
    """The states in one partition of `__share_group_state`.

    Args:
        updates_per_snapshot: How many updates come between two snapshots.

    Attributes:
        states: All that is known of each group's partition, as a snapshot says it.
        put_off: Those whose snapshot was too large.
    """

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self.states: dict[ShareKey, ShareSnapshot] = {}
        self._leader_epochs: dict[ShareKey, int] = {}
        self._state_epochs: dict[ShareKey, int] = {}
        self._updates: dict[ShareKey, int] = {}
        self._snapshot_offsets: dict[ShareKey, int] = {}
        self._last_tombstone = 0
        self.put_off: set[ShareKey] = set()

    # -- replaying

    def replay(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take over a record.

        Raises:
            UnknownCoordinatorRecordError: Its type is not known; Kafka ignores it.
            FormatError: It is damaged.
        """
        record = decode_share_record(key, value)
        about: ShareKey = record.key
        if record.type == SHARE_SNAPSHOT_TYPE:
            self._replay_snapshot(about, record.value, offset)
        elif record.value is not None:
            self._replay_update(about, record.value)

    def _replay_snapshot(self, key: ShareKey, value: ShareSnapshot | None, offset: int) -> None:
        self.put_off.discard(key)
        if value is None:
            for known in (self.states, self._leader_epochs, self._state_epochs, self._updates, self._snapshot_offsets):
                known.pop(key, None)
            self._last_tombstone = offset
            return
        self._saw_leader_epoch(key, value.leader_epoch)
        self._state_epochs[key] = max(value.state_epoch, self._state_epochs.get(key, value.state_epoch))
        self.states[key] = value._replace(state_batches=_in_order(value.state_batches))
        self._snapshot_offsets[key] = offset
        if self._updates.get(key, 0) >= self._updates_per_snapshot:
            self._updates[key] = 0

    def _replay_update(self, key: ShareKey, value: ShareUpdate) -> None:
        self._saw_leader_epoch(key, value.leader_epoch)
        self._updates[key] = self._updates.get(key, 0) + 1
        before = self.states.get(key)
        if before is None:
            self.states[key] = ShareSnapshot(
                value.snapshot_epoch,
                0,
                value.leader_epoch,
                value.start_offset,
                0,
                0,
                _in_order(value.state_batches),
                value.delivery_complete_count,
            )
            return
        start = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
        self.states[key] = before._replace(
            start_offset=start,
            delivery_complete_count=value.delivery_complete_count,
            leader_epoch=before.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
            state_batches=_updated(before.state_batches, value.state_batches, start),
        )

    def _saw_leader_epoch(self, key: ShareKey, leader_epoch: int) -> None:
        self._leader_epochs[key] = max(leader_epoch, self._leader_epochs.get(key, leader_epoch))

    # -- checking

    def _known(self, key: ShareKey, what: str) -> ShareSnapshot:
        found = self.states.get(key)
        if found is None:
            reason = f"{what} operation on uninitialized share partition not allowed."
            raise RefusedError(ShareErrorCode.INVALID_REQUEST, reason)
        return found

    def _check_leader_epoch(self, key: ShareKey, leader_epoch: int) -> None:
        if leader_epoch != NO_EPOCH and self._leader_epochs.get(key, leader_epoch) > leader_epoch:
            reason = "The leader epoch in the request is older than the epoch on the broker."
            raise RefusedError(ShareErrorCode.FENCED_LEADER_EPOCH, reason)

    def _check_state_epoch(self, key: ShareKey, state_epoch: int) -> None:
        if state_epoch != NO_EPOCH and self._state_epochs.get(key, state_epoch) > state_epoch:
            raise RefusedError(ShareErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE)

    # -- changing: what is returned is to be written and replayed

    def check_initialize(self, key: ShareKey, state_epoch: int) -> None:
        """Check whether a state may be replaced by a new one.

        Raises:
            RefusedError: It is newer.
        """
        self._check_state_epoch(key, state_epoch)

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int) -> KeyValue:
        """Return the record that restarts a state."""
        before = self.states.get(key)
        snapshot_epoch = 0 if before is None else before.snapshot_epoch + 1
        count = NOT_COUNTED if start_offset == NO_START_OFFSET else 0
        value = ShareSnapshot(snapshot_epoch, state_epoch, 0, start_offset, now_ms, now_ms, (), count)
        return encode_share_record(key, value)

    def check_write(self, key: ShareKey, write: StateWrite) -> None:
        """Check whether a change may be written.

        Raises:
            RefusedError: There is no state, or a newer one.
        """
        self._known(key, "Write")
        self._check_leader_epoch(key, write.leader_epoch)
        self._check_state_epoch(key, write.state_epoch)

    def write(self, key: ShareKey, write: StateWrite, now_ms: int, most_bytes: int) -> KeyValue:
        """Return the record of a change; a snapshot, when one is due, if it has at most so many bytes."""
        return self._record(key, write, self.states[key].leader_epoch, now_ms, most_bytes)

    def _record(self, key: ShareKey, write: StateWrite, leader_epoch: int, now_ms: int, most_bytes: int) -> KeyValue:
        if self._is_snapshot_due(key):
            snapshot = self._snapshot(key, write, leader_epoch, now_ms)
            if sum(len(part or b"") for part in snapshot) <= most_bytes:
                return snapshot
            self.put_off.add(key)
        batches = _written(combined((), write.batches, write.start_offset))
        epoch = self.states[key].snapshot_epoch
        update = ShareUpdate(epoch, leader_epoch, write.start_offset, batches, write.complete_count)
        return encode_share_record(key, update)

    def _is_snapshot_due(self, key: ShareKey) -> bool:
        updates, most = self._updates.get(key, 0), self._updates_per_snapshot
        # To make one takes as long as the state is large: one that was put off is not tried with each update.
        return updates >= most and (key not in self.put_off or updates % max(most, 1) == 0)

    def _snapshot(self, key: ShareKey, write: StateWrite, leader_epoch: int, now_ms: int) -> KeyValue:
        before = self.states[key]
        start = before.start_offset if write.start_offset == NO_START_OFFSET else write.start_offset
        batches = _written(combined(_read(before.state_batches), write.batches, start))
        snapshot = ShareSnapshot(
            before.snapshot_epoch + 1,
            before.state_epoch,
            leader_epoch,
            start,
            now_ms,
            now_ms,
            batches,
            write.complete_count,
        )
        return encode_share_record(key, snapshot)

    def check_read(self, key: ShareKey, leader_epoch: int) -> ShareSnapshot:
        """Return a state.

        Raises:
            RefusedError: The state does not exist, or the reader's leader epoch is old.
        """
        found = self._known(key, "Read")
        self._check_leader_epoch(key, leader_epoch)
        return found

    def read(self, key: ShareKey, leader_epoch: int, now_ms: int, most_bytes: int) -> list[KeyValue]:
        """Return the record, if any, that says that a leader of this epoch has read a state."""
        if leader_epoch in (NO_EPOCH, self._leader_epochs.get(key)):
            return []
        found = self.states[key]
        unchanged = StateWrite(found.state_epoch, leader_epoch, found.start_offset, found.delivery_complete_count, ())
        return [self._record(key, unchanged, leader_epoch, now_ms, most_bytes)]

    def delete(self, keys: Iterable[ShareKey]) -> list[KeyValue]:
        """Return the records that remove states, for the states that exist."""
        return [encode_share_record(key, None) for key in keys if key in self.states]

    # -- keeping the log short

    def cold(self, now_ms: int, interval_ms: int) -> Generator[None, None, list[ShareKey]]:
        """Return what was not written for a while, if anything is written at all. A generator, which yields often."""
        found, is_anything_written = list[ShareKey](), False
        for key, one in list(self.states.items()):
            is_anything_written = is_anything_written or one.create_timestamp == one.write_timestamp
            if _is_cold(one, now_ms, interval_ms):
                found.append(key)
            yield
        return found if is_anything_written else []

    def cold_snapshots(self, keys: Iterable[ShareKey], now_ms: int, interval_ms: int) -> list[KeyValue]:
        """Return snapshots of some states, if they were still not written for a while."""
        return [
            encode_share_record(key, one._replace(snapshot_epoch=one.snapshot_epoch + 1, write_timestamp=now_ms))
            for key in keys
            if (one := self.states.get(key)) is not None and _is_cold(one, now_ms, interval_ms)
        ]

    def most_bytes(self, key: ShareKey) -> int:
        """Return how large the record of a snapshot is at most."""
        found = self.states.get(key)
        ranges = 0 if found is None else len(found.state_batches)
        return _FIXED_BYTES + len(key.group_id.encode(errors="surrogatepass")) + _RANGE_BYTES * ranges

    @property
    def needed_from(self) -> int:
        """The offset of the first record that is still needed."""
        return min(self._snapshot_offsets.values(), default=self._last_tombstone)
