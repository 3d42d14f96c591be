"""The Redis store against Redis."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from odradek.cli.app import main
from odradek.errors import OffsetStoreError
from odradek.offsets.redis_ranges import is_list_of_ranges, read_ranges
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, OffsetStoreSuite
from peers.process import PATIENCE, free_port
from peers.redis import RedisServer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all: the tests use groups of their own, and what a kill leaves behind is to be seen by the next."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def address(server: RedisServer, request: pytest.FixtureRequest) -> str:
    return f"redis://127.0.0.1:{server.port}/2?group={request.node.name}"


RANGES = {
    "plain": ["events,0,0,90", "events,0,90,100", "my-events,1,5,7"],
    "colons": ["events:0:0:100", "my-events:1:5:7"],
    "objects": [
        '{"topic": "events", "partition": 0, "fromOffset": 0, "untilOffset": 100}',
        '{"topic": "my-events", "partition": "1", "from": 5, "until": "7"}',
    ],
    "sparks": [
        "OffsetRange(topic: 'events', partition: 0, range: [0 -> 100])",
        "OffsetRange(topic: my-events, partition: 1, range: [5 -> 7])",
    ],
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_of_an_older_program_are_taken_over(server: RedisServer, name: str) -> None:
    wanted = {EVENTS_0: Position(100), TopicPartition("my-events", 1): Position(7)}
    with closing(redis.Redis(port=server.port, db=3)) as client:
        client.flushdb()
        client.rpush("list", *RANGES[name])
        client.sadd("set", *RANGES[name])
        text = f"[{','.join(RANGES[name])}]" if name == "objects" else "\n".join(RANGES[name])
        client.set("text", text)
        client.set("arrays", '[["events", 0, 0, 100], ["my-events", 1, 5, 7]]')
        for key in ("list", "set", "text", "arrays"):
            address = f"redis://127.0.0.1:{server.port}/3?list={key}"
            assert is_list_of_ranges(address)
            assert read_ranges(address) == wanted
        result = CliRunner().invoke(
            main,
            [
                "offsets",
                "copy",
                f"redis://127.0.0.1:{server.port}/3?list=list",
                f"redis://:@127.0.0.1:{server.port}/3?group=g",
            ],
        )
        assert result.exit_code == 0, result.output
        with open_store(f"redis://127.0.0.1:{server.port}/3?group=g") as store:
            assert dict(store.load()) == wanted


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "there is no such key"),
        ({"events:0": "5"}, "a hash is no list of ranges"),
        ("events,0,5", "'events,0,5' is no range, such as events,0,100,120"),
        ('{"topic": "events"}', "is no range, such as"),
        ('{"topic"', "is neither a range nor JSON"),
        ("[1, 2, 3, 4]", "is no range, such as"),
    ],
)
def test_what_is_no_list_of_ranges_is_told(server: RedisServer, value: Any, told: str) -> None:
    with closing(redis.Redis(port=server.port, db=4)) as client:
        client.flushdb()
        if isinstance(value, dict):
            client.hset("key", mapping=value)
        elif value is not None:
            client.set("key", value)
    with pytest.raises(OffsetStoreError, match=re.escape(told)):
        read_ranges(f"redis://127.0.0.1:{server.port}/4?list=key")


class TestRedisStore(OffsetStoreSuite):
    unreachable_within_s = OffsetStoreSuite.unreachable_within_s * PATIENCE

    @pytest.fixture
    def address(self, address: str) -> str:
        return address

    @pytest.fixture
    def server(self, server: RedisServer) -> RedisServer:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"redis://127.0.0.1:{free_port()}/0?group=g&timeout_ms=2000"


def test_the_hash_as_others_see_it(address: str, server: RedisServer) -> None:
    with open_store(address) as store:
        committed = store.commit({EVENTS_0: Position(20, batch="17")}, expected=store.load())
    with closing(redis.Redis(port=server.port, db=2, decode_responses=True)) as client:
        key = "odradek:offsets:test_the_hash_as_others_see_it"
        assert client.hgetall(key) == {
            "version": committed.version,
            "events:0": "20",
            "events:0:metadata": '{"batch":"17"}',
        }
        client.hset(key, "events:1", "-7")
        with open_store(address) as store, pytest.raises(OffsetStoreError, match="events:1"):
            store.load()
        client.delete(key)
        client.set(key, "something else")
        with open_store(address) as store:
            with pytest.raises(OffsetStoreError, match="WRONGTYPE"):
                store.load()
            with pytest.raises(OffsetStoreError, match="WRONGTYPE"):
                store.claim()


def test_a_server_that_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # Without a time-out of its own it would wait for ever.
        with open_store(f"redis://127.0.0.1:{silent.getsockname()[1]}/0?group=g", {"timeout_ms": 1000}) as store:
            with pytest.raises(OffsetStoreError):
                store.load()
