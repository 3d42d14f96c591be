"""The ZooKeeper store against Apache ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from odradek.errors import OffsetStoreError
from odradek.offsets.known_beside import OTHER_PROGRAM
from odradek.offsets.store import Position, open_store
from odradek.testing.offset_store_suite import EVENTS_0, EVENTS_1, OTHER_0, OffsetStoreSuite
from peers.process import PATIENCE, free_port
from peers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One for all: the tests use groups of their own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def address(server: ZooKeeperServer, request: pytest.FixtureRequest) -> str:
    return f"zookeeper://{server.hosts}/{request.node.name}?timeout_ms=5000"


@contextmanager
def client_of(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.hosts)
    client.start(timeout=10 * PATIENCE)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class TestZooKeeperStore(OffsetStoreSuite):
    unreachable_within_s = OffsetStoreSuite.unreachable_within_s * PATIENCE

    @pytest.fixture
    def address(self, address: str) -> str:
        return address

    @pytest.fixture
    def server(self, server: ZooKeeperServer) -> ZooKeeperServer:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"zookeeper://127.0.0.1:{free_port()}/g?timeout_ms=2000"


def test_the_nodes_as_old_consumers_see_them(address: str, server: ZooKeeperServer) -> None:
    root = "/consumers/test_the_nodes_as_old_consumers_see_them"
    with open_store(address) as store:
        store.commit({EVENTS_0: Position(20, batch="17"), OTHER_0: Position(3)}, expected=store.load())
    with client_of(server) as client:
        assert client.get(f"{root}/offsets/events/0")[0] == b"20"
        assert client.get(f"{root}/offsets/{OTHER_0.topic}/0")[0] == b"3"
        client.set(f"{root}/offsets/events/0", b"5")
    with open_store(address) as store:
        assert dict(store.load()) == {EVENTS_0: Position(5, batch=OTHER_PROGRAM), OTHER_0: Position(3)}


def test_a_group_of_an_old_consumer_is_taken_over(address: str, server: ZooKeeperServer) -> None:
    root = "/consumers/test_a_group_of_an_old_consumer_is_taken_over"
    with client_of(server) as client:
        client.create(f"{root}/offsets/events/0", b"20", makepath=True)
        client.create(f"{root}/owners/events", makepath=True)
    with open_store(address) as store:
        loaded = store.load()
        assert (dict(loaded), loaded.version) == ({EVENTS_0: Position(20)}, None)
        store.commit({EVENTS_0: Position(21), EVENTS_1: Position(1)}, expected=loaded)
        assert dict(store.load()) == {EVENTS_0: Position(21), EVENTS_1: Position(1)}


@pytest.mark.parametrize("content", [b"", b"soon", b"-1", b"9223372036854775808", b"1 "])
def test_what_is_not_an_offset(address: str, server: ZooKeeperServer, content: bytes) -> None:
    with client_of(server) as client:
        client.create(
            f"/consumers/{address.rpartition('/')[2].partition('?')[0]}/offsets/events/0", content, makepath=True
        )
    with open_store(address) as store, pytest.raises(OffsetStoreError, match="events-0"):
        store.load()


@pytest.mark.parametrize(
    "content", [b"", b"7", b"{}", b'{"version": 1, "positions": {}}', b'{"version": "1", "positions": 1}']
)
def test_what_is_not_our_node(address: str, server: ZooKeeperServer, content: bytes) -> None:
    with client_of(server) as client:
        client.create(f"/consumers/{address.rpartition('/')[2].partition('?')[0]}/odradek", content, makepath=True)
    with open_store(address) as store:
        with pytest.raises(OffsetStoreError, match="/odradek"):
            store.load()
        with pytest.raises(OffsetStoreError, match="/odradek"):
            store.claim()


def test_a_chroot_and_a_user(server: ZooKeeperServer) -> None:
    address = f"zookeeper://me:secret@{server.hosts}/kafka/main/own"
    with open_store(address) as store:
        assert "secret" not in store.address
        committed = store.commit({EVENTS_0: Position(20)}, expected=store.load())
        with client_of(server) as client:
            assert client.get("/kafka/main/consumers/own/offsets/events/0")[0] == b"20"
        with open_store(address.replace("me:secret@", "")) as stranger:
            assert dict(stranger.load()) == dict(committed)
            with pytest.raises(OffsetStoreError, match="NoAuth"):
                stranger.commit({EVENTS_0: Position(21)}, expected=committed)
        assert store.load().offset(EVENTS_0) == 20


def test_more_than_a_transaction_takes(address: str) -> None:
    with open_store(address, {"timeout_ms": 3000}) as store:
        with pytest.raises(OffsetStoreError):
            store.commit({EVENTS_0: Position(1, batch="x" * 2_000_000)}, expected=store.load())
        assert dict(store.load()) == {}


@pytest.mark.parametrize(
    "address", ["zookeeper:///group", "zookeeper://host", "zookeeper://host/", "zookeeper://host/.."]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(OffsetStoreError):
        open_store(address)
