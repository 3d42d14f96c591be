"""Measures how long one client waits while another one sends the worst request of 1 MB of each API.

    python benchmarks/broker_waits.py [--bytes 1000000] [--only KEY ...]

For each array of the newest version of each API a request is sent whose array fills it: with names that there are, that
there are not, or the same one again and again. Meanwhile a second client asks for the API versions, one request after
the other; its longest wait counts.
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from odradek.errors import ProtocolError
from odradek.testing.wire import WireClient
from peers.odradek_broker import OdradekBroker
from peers.sized_requests import Growing, Variety, all_keys, arrays_of, newest

TOPICS = 32
MOST_ITEMS = 45_000
FOUND_COORDINATORS, API_VERSIONS, METADATA, CREATE_TOPICS = 10, 18, 3, 19


class Wait(NamedTuple):
    """What a request cost: how long the other client waited, and how long the answer took."""

    request: str
    items: int
    longest_ms: float
    answered_ms: float


def prepare(client: WireClient) -> list[UUID]:
    """Creates topics, and returns their ids."""
    topic = {"replication_factor": 1, "assignments": [], "configs": []}
    topics: list[dict[str, Any]] = [
        {**topic, "name": f"t{number}", "num_partitions": 1 if number else TOPICS} for number in range(TOPICS)
    ]
    client.call(CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 60_000, "validate_only": False})
    for kind in range(2):
        client.call(FOUND_COORDINATORS, 4, {"key_type": kind, "coordinator_keys": ["t0"]})
    asked = {"topics": [{"name": topic["name"], "topic_id": None} for topic in topics]}
    options = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    found = {topic.name: topic.topic_id for topic in client.call(METADATA, 12, {**asked, **options}).topics}
    return [found[topic["name"]] for topic in topics]


class Other:
    """A client that sends one small request after the other, in a thread."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._ends = threading.Event()
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            begun = time.perf_counter()
            self._client.call(API_VERSIONS, 0, {})
            self.longest_s = max(self.longest_s, time.perf_counter() - begun)
            time.sleep(0.001)

    def __enter__(self) -> Other:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def measure(growing: Growing, variety: Variety, ids: list[UUID], size: int, port: int) -> Wait:
    """Sends a request of so many bytes."""
    bytes_each = (len(growing.frame(1010, variety, ids)) - len(growing.frame(10, variety, ids))) / 1000
    count = min(MOST_ITEMS, int(size / bytes_each))
    frame = bytes(growing.frame(count, variety, ids))
    connect = partial(WireClient, "127.0.0.1", port, timeout_s=15)
    with connect() as client, connect() as second, Other(second) as other:
        begun = time.perf_counter()
        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
        try:
            client.receive_frame()
        except (ProtocolError, ConnectionError, TimeoutError) as error:
            print(f"{growing} {variety.value}: {error}", file=sys.stderr)
        answered = time.perf_counter() - begun
    return Wait(f"{growing} {variety.value}", count, other.longest_s * 1000, answered * 1000)


def main() -> None:
    """Prints the longest wait for each API."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--only", type=int, nargs="*")
    arguments = parser.parse_args()
    print(f"{'request':60}{'items':>8}{'others wait ms':>16}{'answered ms':>13}")
    for key in arguments.only or all_keys():
        with TemporaryDirectory() as folder, OdradekBroker(Path(folder) / "data") as broker:
            with WireClient("127.0.0.1", broker.port) as client:
                ids = prepare(client)
            waits = [
                measure(growing, variety, ids, arguments.bytes, broker.port)
                for growing in arrays_of(key, newest)
                for variety in Variety
            ]
        for wait in sorted(waits, key=lambda wait: -wait.longest_ms)[:1]:
            print(f"{wait.request:60}{wait.items:8}{wait.longest_ms:16.0f}{wait.answered_ms:13.0f}", flush=True)


if __name__ == "__main__":
    main()
