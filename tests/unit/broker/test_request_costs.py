"""Twice the array in a request costs twice as much: no API searches lists in lists.

Costs are counted, not timed: executed lines of Python, and comparisons of the request's values, which C may make too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import odradek
from odradek.broker import turns
from odradek.broker.api import ADVERTISED, Api, Request
from odradek.broker.connection import Connection
from odradek.broker.protocol import RequestHeader, decode_response, encode_request, request_class
from odradek.broker.running import serving
from odradek.broker.server import Server
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from peers.broker_thread import answered
from peers.group_requests import join_message
from peers.sized_requests import SHARE_FETCH, Growing, Variety, all_keys, arrays_of, newest, oldest_and_newest
from unit.broker.conftest import LISTENERS, settings_for

JOIN_GROUP = 11
ONE_PARTITION = {
    **LISTENERS,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}
"""So one log of each internal topic is open, or none is: opening one more is not what an array costs."""
FEW, MANY = 32, 96
MOST = 2.6
"""How much more the last doubling may cost than the one before it: 2 if the cost is linear, 4 if it is quadratic."""
_ALL_OURS = str(Path(odradek.__file__).parent)
_OURS = f"{_ALL_OURS}/broker"
_comparisons = 0

LONG = 100_000
"""So many characters more have texts, where they may have megabytes; nothing that is stored has half as many."""


def _counted_equal(kind: Any) -> Any:
    """Returns the comparison of a type, which counts how often it is made."""

    def equal(value: object, other: object) -> Any:
        global _comparisons
        _comparisons += 1
        return kind.__eq__(value, other)

    return equal


class _Text(str):
    """A text of a request that counts how often it is compared."""

    __slots__ = ()
    __eq__ = _counted_equal(str)
    __hash__ = str.__hash__

    def split(self, *arguments: Any) -> list[str]:
        return [_Text(part) for part in str.split(self, *arguments)]


class _Number(int):
    """A number of a request that counts how often it is compared."""

    __slots__ = ()
    __eq__ = _counted_equal(int)
    __hash__ = int.__hash__


class _Id(UUID):
    """An id of a request that counts how often it is compared."""

    __eq__ = _counted_equal(UUID)
    __hash__ = UUID.__hash__


def _counting(value: Any) -> Any:
    """Returns the body of a request whose values count their comparisons."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, UUID):
        return _Id(int=value.int)
    if type(value).__bases__[0] is int or type(value) is int:
        return _Number(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _counting(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        return type(value)(*map(_counting, value))
    return tuple(map(_counting, value)) if isinstance(value, tuple) else value


class _Cost(NamedTuple):
    lines: int
    comparisons: int


class _Count:
    """Counts the lines that this thread executes, of the files in a folder."""

    def __init__(self, folder: str) -> None:
        self.lines = 0
        self._folder = folder

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._folder not in frame.f_code.co_filename:
            return None
        self.lines += 1
        return self


@contextmanager
def _counted(folder: str = _OURS) -> Iterator[list[_Cost]]:
    global _comparisons
    found: list[_Cost] = []
    count, before, _comparisons = _Count(folder), sys.gettrace(), 0
    sys.settrace(count)
    try:
        yield found
    finally:
        sys.settrace(before)
        found.append(_Cost(count.lines, _comparisons))


async def _rebalance_lines(path: Path, count: int) -> int:
    """Returns how many lines are executed while so many members join, and all join again."""
    config = {**LISTENERS, "group.initial.rebalance.delay.ms": 3000}
    async with serving(path, config, sync="off", background=False) as server:
        await server.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
        server.broker.groups.shard("group")
        connection = Connection(server, "PLAINTEXT", "127.0.0.1", 1 << 20)

        async def join(member_id: str, metadata: bytes) -> Awaitable[Any]:
            message = join_message("group", member_id, protocols={"range": metadata}, rebalance_ms=60_000)
            answer = server.handle(connection, bytearray(encode_request(JOIN_GROUP, 2, 1, "tests", message)[4:]))
            assert isinstance(answer, Awaitable)
            waiting = asyncio.ensure_future(answer)
            await asyncio.sleep(0)
            return waiting

        with _counted() as cost:
            waiting = [await join("", b"") for _ in range(count)]
            # The wait begins once again for members that joined in it.
            server.broker.clock.advance(3)
            server.broker.clock.advance(3)
            answers = [decode_response(JOIN_GROUP, 2, (await one)[4:])[1] for one in waiting]
            waiting = [await join(answer.member_id, b"other") for answer in answers]
            answers = [decode_response(JOIN_GROUP, 2, (await one)[4:])[1] for one in waiting]
        assert {answer.generation_id for answer in answers} == {2}
        connection.close()
    return cost[0].lines


@pytest.mark.slow
def test_each_member_of_a_rebalance_costs_the_same(tmp_path: Path) -> None:
    # Once before, for what is imported.
    asyncio.run(_rebalance_lines(tmp_path / "before", 1))
    first, second, third = (asyncio.run(_rebalance_lines(tmp_path / str(count), count)) for count in (15, 30, 60))
    assert third - second < 2.2 * (second - first)


async def _topics(server: Server, count: int) -> list[UUID]:
    """Creates the topics that are missing, and returns the ids of all of them."""
    wanted = [NewTopic("t0", count, {})] + [NewTopic(f"t{number}", 1, {}) for number in range(1, count)]
    present = server.broker.logs.metadata_image.topics
    await server.broker.topics.create([topic for topic in wanted if topic.name not in present])
    present = server.broker.logs.metadata_image.topics
    return [present[topic.name].topic_id or ZERO_UUID for topic in wanted]


async def _superlinear(server: Server, growing: Growing, variety: Variety, most: int) -> list[str]:
    async def cost(count: int) -> _Cost:
        frame = growing.frame(count, variety, await _topics(server, most))
        with _counted() as found:
            await answered(server, frame, 5)
            if growing.key == SHARE_FETCH:
                # Partitions are loaded, and sessions ended, while nobody waits for that.
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0)
        return found[0]

    # Once before, so that all logs are open.
    await cost(most)
    costs = [await cost(count) for count in (most // 4, most // 2, most)]
    return [
        f"{growing} {variety.value}: {first}, {second}, {third} {what}"
        for what, first, second, third in zip(_Cost._fields, *costs, strict=True)
        if third - second > max(MOST * (second - first), 4 * most)
    ]


def _check_costs(path: Path, monkeypatch: pytest.MonkeyPatch, arrays: list[Growing], most: int) -> None:
    read = Server._read

    def read_counting(
        self: Server, found: Api, connection: Connection, frame: bytearray, header: RequestHeader
    ) -> Request:
        request = read(self, found, connection, frame, header)
        request.body = _counting(request.body)
        return request

    monkeypatch.setattr(Server, "_read", read_counting)
    # On a busy machine a request leaves off more often: what that costs is not the request's own.
    monkeypatch.setattr(turns, "perf_counter", lambda: 0.0)

    async def run() -> list[str]:
        config = {**ONE_PARTITION, **settings_for(arrays[0].key if arrays else -1)}
        async with serving(path / "data", config, sync="off", background=False) as server:
            await server.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
            await server.broker.topics.internal(TRANSACTION_STATE_TOPIC)
            await server.broker.topics.internal(SHARE_GROUP_STATE_TOPIC)
            return [
                line
                for growing in arrays
                for variety in Variety
                for line in await _superlinear(server, growing, variety, most)
            ]

    assert asyncio.run(run()) == []


@pytest.mark.sampled
@pytest.mark.parametrize("key", all_keys())
def test_doubling_an_array_doubles_the_cost(tmp_path: Path, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_costs(tmp_path, monkeypatch, arrays_of(key, newest), FEW)


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("key", all_keys())
def test_doubling_a_large_array_doubles_the_cost(tmp_path: Path, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_costs(tmp_path, monkeypatch, arrays_of(key, oldest_and_newest), MANY)


@pytest.mark.costly
@pytest.mark.sampled
@pytest.mark.parametrize("key", all_keys())
def test_a_long_text_is_not_gone_through(tmp_path: Path, key: int) -> None:
    (version,) = newest(ADVERTISED[key][1])
    if not request_class(key, version).__flexible__:
        pytest.skip("its texts cannot be long")

    async def run() -> int:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            await server.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
            await server.broker.topics.internal(TRANSACTION_STATE_TOPIC)
            await server.broker.topics.internal(SHARE_GROUP_STATE_TOPIC)
            ids = await _topics(server, 1)
            costs = []
            for longer_by in (LONG // 2, LONG // 2, LONG):
                frame = Growing(key, "", version, ()).frame(1, Variety.UNKNOWN, ids, longer_by)
                with _counted(_ALL_OURS) as found:
                    await answered(server, frame, 5)
                costs.append(found[0].lines)
            return costs[2] - costs[1]

    assert asyncio.run(run()) < LONG // 4
