"""The partition that a record goes to: chosen as Kafka's producer does it, so that both agree on every key.

    a key       murmur2 of its bytes, without the sign, modulo the number of partitions
    no key      any partition, but the same one for all records of a call: they fill one batch instead of many

Source in Kafka: `BuiltInPartitioner`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from odradek.records.kernels.murmur2 import murmur2
from odradek.records.kernels.objects import Record


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, for a topic of `partitions` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_partition(records: Iterable[Record], partitions: int) -> dict[int, list[Record]]:
    """Return the records of each partition that gets any, in the order in which they were given."""
    found: dict[int, list[Record]] = {}
    sticky: int | None = None
    for record in records:
        key = record.key
        if key is None:
            if sticky is None:
                sticky = random.randrange(partitions)
            found.setdefault(sticky, []).append(record)
        else:
            found.setdefault(partition_for_key(key, partitions), []).append(record)
    return dict(sorted(found.items()))
