"""How far a Spark stream is behind, from Spark's own report of its progress.

    {"sources": [{"endOffset": {"events": {"0": 1200}}, "latestOffset": {"events": {"0": 1500}}, ...}], ...}      300

Spark lets a Python source report `latestOffset` and no metrics of its own, such as the `maxOffsetsBehindLatest` of its
Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek.errors import OffsetStoreError
from odradek.offsets.stream_offsets import parse_stream_offsets
from odradek.storage.names import TopicPartition


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a stream had not read at the end of a batch.

    Args:
        progress: `query.lastProgress`, which is None before the first batch, or an element of `query.recentProgress`.

    Returns:
        The offsets behind, by partition; of sources that read no topics nothing is known.
    """
    behind = {}
    for source in () if progress is None else progress["sources"]:
        end, latest = _positions(source["endOffset"]), _positions(source["latestOffset"])
        behind.update({name: max(0, latest[name] - offset) for name, offset in end.items() if name in latest})
    return behind


def _positions(offsets: object) -> dict[TopicPartition, int]:
    try:
        content = json.loads(offsets) if isinstance(offsets, str) else offsets
        return {name: place.offset for name, place in parse_stream_offsets(content).items()}
    except (OffsetStoreError, ValueError):
        return {}
