"""Partitions of many records at once, as Kafka's default partitioner gives them."""

from __future__ import annotations

import pyarrow as pa

from odradek.records.partitioner import partition_for_key


def key_partitions(keys: pa.Array, partitions: int) -> pa.Array:
    """Return the partitions of keys, text or bytes, of a topic with `partitions` partitions; null for a null key."""
    encoded = keys.cast(pa.binary()).dictionary_encode()
    targets = [partition_for_key(key, partitions) for key in encoded.dictionary.to_pylist()]
    return pa.array(targets, pa.int32()).take(encoded.indices)
