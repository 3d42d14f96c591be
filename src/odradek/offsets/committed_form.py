"""Positions as committed offsets of a group: what Kafka has no field for goes into the metadata string.

    offset 20, leader epoch 3, metadata {"version":"5f0c...","topic_id":"dKIu...","batch":"17"}

The version of a group is a digest of all of its offsets and metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from odradek.errors import OffsetStoreError
from odradek.kafka.committed_offset import CommittedOffset
from odradek.offsets.store import Position, Positions
from odradek.storage.names import TopicPartition

MAX_METADATA_BYTES = 4096
"""The broker's default `offset.metadata.max.bytes`."""

Stored = Mapping[TopicPartition, CommittedOffset]


def stored_form(address: str, name: TopicPartition, position: Position, version: str) -> CommittedOffset:
    """Return the offset to commit for a position.

    Raises:
        OffsetStoreError: What goes into the metadata is too long.
    """
    known = position.metadata()
    known.pop("leader_epoch", None)
    text = json.dumps({"version": version, **known}, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise OffsetStoreError(f"{address}, {name}: more than {MAX_METADATA_BYTES} bytes of metadata")
    return CommittedOffset(position.offset, position.leader_epoch, text)


def touched(address: str, stored: Stored, version: str) -> dict[TopicPartition, CommittedOffset]:
    """Return one of the stored offsets, unchanged but for a new version."""
    if not stored:
        return {}
    name = min(stored)
    return {name: stored_form(address, name, _position(address, name, stored[name]), version)}


def positions_of(address: str, stored: Stored) -> Positions:
    """Return the positions that offsets stand for.

    Raises:
        OffsetStoreError: An offset is no position.
    """
    positions = {name: _position(address, name, committed) for name, committed in sorted(stored.items())}
    return Positions(positions, version_of(stored))


def holds(stored: Stored, version: str) -> bool:
    """Whether a commit of this version is among the offsets."""
    return any(_metadata_of(committed).get("version") == version for committed in stored.values())


def version_of(stored: Stored) -> str | None:
    """Return the version of a group; None if it has no offsets."""
    if not stored:
        return None
    lines = [repr((*name, *committed)) for name, committed in sorted(stored.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _position(address: str, name: TopicPartition, committed: CommittedOffset) -> Position:
    known = _metadata_of(committed)
    fields = {field: known.get(field) for field in ("topic_id", "batch", "note")}
    fields["leader_epoch"] = committed.leader_epoch
    return Position.parse(committed.offset, fields, where=f"{address}, {name}")


def _metadata_of(committed: CommittedOffset) -> dict[str, object]:
    """Return the metadata that a store of this kind wrote with an offset; none if another program wrote it."""
    try:
        known = json.loads(committed.metadata)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) and isinstance(known.get("version"), str) else {}
