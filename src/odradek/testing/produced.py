"""The partitions that a test's records go to: the same ones in each run.

A key leads to the partition that Kafka's own producer takes. Records without a key go to partition 0, where Kafka's own
producer takes one at random.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.records import Record
from odradek.records.partitioner import partition_for_key


def by_partition(
    values: Iterable[bytes | Record | None], key: bytes | None, partition: int | None, partitions: int
) -> dict[int, list[Record]]:
    """Return the records for each partition, in their order.

    Args:
        values: Values, or whole records.
        key: The key of those that are values.
        partition: Where all of them go; None leaves it to the keys.
        partitions: How many partitions the topic has.
    """
    found: dict[int, list[Record]] = {}
    for value in values:
        record = value if isinstance(value, Record) else Record(key, value)
        by_key = 0 if record.key is None else partition_for_key(record.key, partitions)
        found.setdefault(by_key if partition is None else partition, []).append(record)
    return found
