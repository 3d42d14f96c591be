"""The connections to a cluster, where there is none."""

from __future__ import annotations

import contextlib
import gc
import socket
from pathlib import Path

import pytest
from kafka import errors

from odradek.kafka.cluster import Cluster


def _sockets() -> set[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.slow
def test_a_socket_that_does_not_connect_is_closed_and_not_left_to_the_collector() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        cluster = Cluster([f"127.0.0.1:{port}"], "test", {"reconnect_backoff_ms": 10}, max_response_bytes=1000)
        gc.collect()
        gc.disable()
        try:
            before = _sockets()
            with pytest.raises(errors.KafkaError):
                cluster.connected(300)
            cluster.close()
            assert _sockets() <= before
        finally:
            gc.enable()
