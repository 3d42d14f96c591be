"""Positions as committed offsets of a group: what Kafka has no field for goes into the metadata string.

    offset 20, leader epoch 3, metadata {"version":"5f0c...","topic_id":"dKIu...","batch":"17"}

The version of a group is a digest of all of its offsets and metadata.

A broker that deletes a topic also forgets the offsets of it, and nothing would tell the topic that is created again
from the one that was read. So the ids of a group's topics are kept once more, beside offsets of `__consumer_offsets`,
a topic that no broker deletes:

    __consumer_offsets-0    offset 0, metadata {"version":"5f0c...","topic_ids":{"events":"dKIu..."}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping

from odradek.errors import OffsetStoreError
from odradek.kafka.committed_offset import CommittedOffset
from odradek.offsets.store import Position, Positions, is_same_topic, new_version
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

MAX_METADATA_BYTES = 4096
"""The broker's default `offset.metadata.max.bytes`."""
_TOPIC_IDS = "topic_ids"

Offsets = dict[TopicPartition, CommittedOffset]


class CommittedGroup:
    """The offsets of a group, as its coordinator has them, and what becomes of them by a commit.

    Args:
        address: The store's, for errors.
        stored: The offsets.
        ids_now: Returns the ids of those of some topics that exist; None for ids that are not known.
    """

    def __init__(
        self,
        address: str,
        stored: Mapping[TopicPartition, CommittedOffset],
        ids_now: Callable[[Collection[str]], Mapping[str, str | None]],
    ) -> None:
        self._address = address
        self._ids_now = ids_now
        self._version_before: str | None = None
        self.stored = stored

    def since(self, before: CommittedGroup | None) -> CommittedGroup:
        """Return the group, which keeps its version if since an earlier look only topics were deleted.

        Their offsets went with them, and nobody has committed. A claim or a commit by another store would show: in the
        offsets that are left, or in those that keep the ids of topics, whose topic is never deleted.
        """
        if before is None or any(before.stored.get(name) != committed for name, committed in self.stored.items()):
            return self
        ids = before._topic_ids()
        gone = {name.topic for name in before.stored.keys() - self.stored.keys()}
        now = self._ids_now(sorted(gone)) if gone else {}
        if all(topic in ids and not (topic in now and is_same_topic(ids[topic], now[topic])) for topic in gone):
            self._version_before = before.version
        return self

    @property
    def version(self) -> str | None:
        """The version of the group; None if it has no offsets."""
        if not self.stored:
            return None
        if self._version_before is not None:
            return self._version_before
        lines = [repr((*name, *committed)) for name, committed in sorted(self.stored.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def holds(self, version: str) -> bool:
        """Whether a commit of this version is among the offsets."""
        return any(_metadata_of(committed).get("version") == version for committed in self.stored.values())

    def with_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> CommittedGroup:
        """Return the group after a commit of offsets, and the removal of those that are None."""
        left = {name: offset for name, offset in {**self.stored, **offsets}.items() if offset is not None}
        return CommittedGroup(self._address, left, self._ids_now)

    def positions(self) -> Positions:
        """Return the positions that the offsets stand for.

        A topic that was deleted, and its offsets with it, has a position in its partition 0, which shows that the group
        has read a topic of that name and id.

        Raises:
            OffsetStoreError: An offset is no position.
        """
        found = {
            name: self._position(name, committed)
            for name, committed in sorted(self.stored.items())
            if _noted(name, committed) is None
        }
        topics = {topic for topic, _ in found}
        lost = {topic: id_ for topic, id_ in self._topic_ids().items() if topic not in topics}
        now = self._ids_now(list(lost)) if lost else {}
        for topic, id_ in lost.items():
            # If a topic still has its id, somebody removed only the offsets.
            if topic not in now or not is_same_topic(id_, now[topic]):
                found[TopicPartition(topic, 0)] = Position(0, topic_id=id_)
        return Positions(found, self.version)

    def committed(
        self, positions: Mapping[TopicPartition, Position], version: str, *, keeps_ids: bool = True
    ) -> Offsets:
        """Return the offsets to commit for positions; without any, one that only has the new version.

        Args:
            positions: The positions.
            version: The new version.
            keeps_ids: Whether the ids of topics are kept beside the offsets.

        Raises:
            OffsetStoreError: What goes into the metadata is too long.
        """
        before = self._topic_ids()
        new = {name.topic: position.topic_id for name, position in positions.items() if position.topic_id is not None}
        ids = {**before, **new} if keeps_ids else before
        offsets = {name: self._stored_form(name, position, version) for name, position in positions.items()}
        if not offsets and not before and self.stored:
            name = min(self.stored)
            return {name: self._stored_form(name, self._position(name, self.stored[name]), version)}
        return offsets if ids == before and offsets else {**self._notes(ids, version), **offsets}

    def forgetting(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offsets to commit when positions are deleted: without the ids of topics that have no other one."""
        gone = {name.topic for name in partitions} - {name.topic for name in self.stored if name not in partitions}
        ids = {topic: id_ for topic, id_ in self._topic_ids().items() if topic not in gone}
        return {} if ids == self._topic_ids() else self._notes(ids, new_version())

    def _topic_ids(self) -> dict[str, str]:
        notes = (_noted(*each) for each in self.stored.items())
        return {topic: id_ for note in notes if note is not None for topic, id_ in note.items() if isinstance(id_, str)}

    def _notes(self, ids: Mapping[str, str], version: str) -> Offsets:
        """Return the offsets that keep the ids of topics, in as many partitions as the limit of metadata takes."""
        notes: list[dict[str, str]] = []
        for topic, id_ in sorted(ids.items()):
            if not notes or len(_note_text({**notes[-1], topic: id_}, version).encode()) > MAX_METADATA_BYTES:
                notes.append({})
            notes[-1][topic] = id_
        # Notes that are no longer needed become empty.
        notes += [{}] * (sum(_noted(*each) is not None for each in self.stored.items()) - len(notes))
        return {
            TopicPartition(CONSUMER_OFFSETS_TOPIC, number): CommittedOffset(0, None, _note_text(note, version))
            for number, note in enumerate(notes)
        }

    def _stored_form(self, name: TopicPartition, position: Position, version: str) -> CommittedOffset:
        known = position.metadata()
        known.pop("leader_epoch", None)
        text = json.dumps({"version": version, **known}, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MAX_METADATA_BYTES:
            raise OffsetStoreError(f"{self._address}, {name}: more than {MAX_METADATA_BYTES} bytes of metadata")
        return CommittedOffset(position.offset, position.leader_epoch, text)

    def _position(self, name: TopicPartition, committed: CommittedOffset) -> Position:
        known = _metadata_of(committed)
        fields = {field: known.get(field) for field in ("topic_id", "batch", "note")}
        fields["leader_epoch"] = committed.leader_epoch
        return Position.parse(committed.offset, fields, where=f"{self._address}, {name}")


def _note_text(ids: Mapping[str, str], version: str) -> str:
    return json.dumps({"version": version, _TOPIC_IDS: ids}, ensure_ascii=False, separators=(",", ":"))


def _noted(name: TopicPartition, committed: CommittedOffset) -> dict[str, object] | None:
    """Return the ids that an offset keeps; None if it is a reader's."""
    ids = _metadata_of(committed).get(_TOPIC_IDS) if name.topic == CONSUMER_OFFSETS_TOPIC else None
    return ids if isinstance(ids, dict) else None


def _metadata_of(committed: CommittedOffset) -> dict[str, object]:
    """Return the metadata that a store of this kind wrote with an offset; none if another program wrote it."""
    try:
        known = json.loads(committed.metadata)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) and isinstance(known.get("version"), str) else {}
