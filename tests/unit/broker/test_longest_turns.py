"""No request of a megabyte keeps the event loop for long, whatever the API: its longest callback, in CPU time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import pytest

from odradek.broker.running import serving
from odradek.broker.server import Server
from odradek.errors import ProtocolError
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from peers.broker_thread import answered
from peers.cpu import LongestCallback
from peers.sized_requests import Growing, Variety, all_keys, arrays_of, oldest_and_newest
from unit.broker.conftest import LISTENERS, settings_for

Versions: TypeAlias = Callable[[range], list[int]]

TOPICS = 32
REQUEST_BYTES = 1_000_000
TEXT_BYTES = 25_000
"""So long may a text be in any version, and so long is the list of a setting that grows."""

MOST_ITEMS = 99_000
MOST_STANDARDS = 40
"""Of `peers.cpu`: twice what may be, since other tests run beside this one, in the same caches."""


MOST_S = 5
MOST_CPU_S = 2
FIRST_CPU_S = 1
"""After that a request with many items has had all of its turns but the last ones, and has them again and again: the
last ones are seen of a tenth of the items, in twice the time."""


REFUSED, NOT_ENDED = -1, -2


async def prepare(server: Server) -> list[UUID]:
    """Creates topics, and returns the ids of those that are not internal."""
    topics = server.broker.topics
    await topics.internal(CONSUMER_OFFSETS_TOPIC)
    await topics.internal(TRANSACTION_STATE_TOPIC)
    await topics.internal(SHARE_GROUP_STATE_TOPIC)
    await topics.create([NewTopic(f"t{number}", 1 if number else TOPICS, {}) for number in range(TOPICS)])
    present = server.broker.logs.metadata_image.topics
    return [present[f"t{number}"].topic_id or ZERO_UUID for number in range(TOPICS)]


async def answer(server: Server, frame: bytearray, most_cpu_s: float = math.inf) -> int:
    """Has a request answered; returns the size of the answer, or that there is none."""
    end = time.thread_time() + most_cpu_s
    work = asyncio.ensure_future(answered(server, frame, MOST_S))
    while not work.done() and time.thread_time() < end:
        await asyncio.wait([work], timeout=0.05)
    work.cancel()
    try:
        found = await work
    except ProtocolError:
        return REFUSED
    except (TimeoutError, asyncio.CancelledError):
        return NOT_ENDED
    return 0 if found is None else found.size_bytes


async def measure(server: Server, longest: LongestCallback, growing: Growing, variety: Variety, ids: list[UUID]) -> str:
    """Returns what keeps the loop for too long."""
    bytes_each = (len(growing.frame(1010, variety, ids)) - len(growing.frame(10, variety, ids))) / 1000
    is_text = growing.path[-1] == "value"
    count = min(MOST_ITEMS, int((TEXT_BYTES if is_text else REQUEST_BYTES) / bytes_each))
    # Once before, for what is imported.
    await answer(server, growing.frame(1, variety, ids))
    for items, most, most_cpu_s in (
        (count, MOST_STANDARDS, FIRST_CPU_S),
        (count // 10, MOST_STANDARDS / 4, MOST_CPU_S),
    ):
        frame = growing.frame(items, variety, ids)
        await asyncio.sleep(0)
        longest.clear()
        size = await answer(server, frame, most_cpu_s)
        await asyncio.sleep(0)
        taken = longest.standards
        if taken > most:
            return f"{taken:.0f} standards: {growing} {variety.value}, {items} items"
        if size != NOT_ENDED:
            break
        # Its last turns are those of fewer items, and not a tenth as long.
    return ""


def too_long(
    path: Path, key: int, longest: LongestCallback, versions: Versions, varieties: Iterable[Variety]
) -> list[str]:
    """Returns which requests of an API keep the loop for too long."""

    async def run() -> list[str]:
        async with serving(path, {**LISTENERS, **settings_for(key)}, sync="off", background=False) as server:
            ids = await prepare(server)
            arrays = arrays_of(key, versions)
            return [await measure(server, longest, one, variety, ids) for one in arrays for variety in varieties]

    return [line for line in asyncio.run(run()) if line]


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("key", all_keys())
def test_no_request_keeps_the_loop(tmp_path: Path, key: int, longest: LongestCallback) -> None:
    varieties = [Variety.KNOWN, Variety.REPEATED]
    assert too_long(tmp_path / "data", key, longest, lambda versions: [versions[0]], varieties) == []


@pytest.mark.laboratory
@pytest.mark.parametrize("key", all_keys())
def test_no_request_of_any_kind_keeps_the_loop(tmp_path: Path, key: int, longest: LongestCallback) -> None:
    assert too_long(tmp_path / "data", key, longest, oldest_and_newest, Variety) == []
