"""The Redis store against Redis."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position, open_store
from odradek.testing.offset_store_suite import EVENTS_0, OffsetStoreSuite
from peers.jars import PeerMissingError
from peers.process import free_port
from peers.redis import RedisServer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all: the tests use groups of their own, and what a kill leaves behind is to be seen by the next."""
    try:
        server = RedisServer(tmp_path_factory.mktemp("redis"))
    except PeerMissingError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def address(server: RedisServer, request: pytest.FixtureRequest) -> str:
    return f"redis://127.0.0.1:{server.port}/2?group={request.node.name}"


class TestRedisStore(OffsetStoreSuite):
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
        started = time.monotonic()
        with open_store(f"redis://127.0.0.1:{silent.getsockname()[1]}/0?group=g", {"timeout_ms": 1000}) as store:
            with pytest.raises(OffsetStoreError):
                store.load()
        assert time.monotonic() - started < 5
