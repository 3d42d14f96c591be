"""Sends one Produce request over a plain socket: for what no client does, such as going on with another's sequence.

request v7    transactional_id null | acks -1 | timeout | 1 topic | 1 partition | records
answer        1 topic | 1 partition | error code | base offset | log append time | log start offset | throttle time
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from peers.process import PATIENCE

PRODUCE_API_KEY = 0
PRODUCE_VERSION = 7


class ProduceAnswer(NamedTuple):
    """What the broker answered."""

    error_code: int
    base_offset: int


def produce_batch(bootstrap_servers: str, topic: str, partition: int, batch: bytes) -> ProduceAnswer:
    """Sends a batch as it is, and waits for the answer."""
    host, _, port = bootstrap_servers.rpartition(":")
    name = topic.encode()
    request = b"".join(
        [
            struct.pack(">hhih", PRODUCE_API_KEY, PRODUCE_VERSION, 1, -1),
            struct.pack(">hhi", -1, -1, 30_000),
            struct.pack(">ih", 1, len(name)) + name,
            struct.pack(">iii", 1, partition, len(batch)) + batch,
        ]
    )
    with socket.create_connection((host, int(port)), timeout=30 * PATIENCE) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            body = stream.read(size)
    error_code, base_offset = struct.unpack_from(">hq", body, 4 + 4 + 2 + len(name) + 4 + 4)
    return ProduceAnswer(error_code, base_offset)
