"""The ZooKeeper store against Apache ZooKeeper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from odradek.errors import OffsetStoreError
from odradek.offsets.known_beside import OTHER_PROGRAM
from odradek.offsets.store import Position, open_store
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, EVENTS_1, OTHER_0, OffsetStoreSuite
from peers.command import run
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


class TestZooKeeperNodes(OffsetStoreSuite):
    """Nodes below each topic are an offset store as any other."""

    topic_names = ("a", "version", "with.dots", "under_score", "da-sh-0", "x" * 249)

    @pytest.fixture
    def address(self, server: ZooKeeperServer, request: pytest.FixtureRequest) -> str:
        topics = ",".join((EVENTS_0.topic, OTHER_0.topic, "many", *self.topic_names))
        node = f"/{request.node.name}/{{topic}}"
        return f"zookeeper://{server.hosts}/?node={node}&topic={topics}&timeout_ms=5000"

    @pytest.fixture
    def server(self, server: ZooKeeperServer) -> ZooKeeperServer:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"zookeeper://127.0.0.1:{free_port()}/?node=/a&topic=events&timeout_ms=2000"


@pytest.mark.every_case
@pytest.mark.parametrize("text", [True, False])
def test_programs_that_keep_a_node_of_a_topic_take_turns(server: ZooKeeperServer, text: bool) -> None:
    chroot = f"/turns-{text}"
    address = f"zookeeper://{server.hosts}{chroot}?node=/consumers/{{topic}}&topic=events"
    events_1 = TopicPartition("events", 1)
    with client_of(server) as then, open_store(address) as store:

        def write(offset: int) -> None:
            node = f"{chroot}/consumers/events"
            if text:
                then.ensure_path(node)
                then.set(node, b"0:%d,1:4" % offset)
                return
            for partition, content in enumerate((b"%d" % offset, b"4")):
                then.ensure_path(f"{node}/{partition}")
                then.set(f"{node}/{partition}", content)

        write(3)
        positions = store.claim()
        assert dict(positions) == {EVENTS_0: Position(3), events_1: Position(4)}
        place = Position(50, 3, "an-id", "batch", "note")
        positions = store.commit({EVENTS_0: place, TopicPartition("events", 2): Position(1)}, expected=positions)
        assert dict(store.load()) == dict(positions)
        if text:
            assert then.get(f"{chroot}/consumers/events")[0] == b"0:50,1:4,2:1"
            assert then.get_children(f"{chroot}/consumers/events") == []
        else:
            assert sorted(then.get_children(f"{chroot}/consumers/events")) == ["0", "1", "2"]
            assert then.get(f"{chroot}/consumers/events/0")[0] == b"50"
        positions = store.delete([TopicPartition("events", 2), TopicPartition("other", 0)], expected=positions)
        write(60)
        assert store.load()[EVENTS_0] == Position(60, topic_id="an-id", batch=OTHER_PROGRAM)
        with pytest.raises(OffsetStoreError, match="says nothing of the topic other"):
            store.commit({TopicPartition("other", 0): Position(70)}, expected=positions)
        positions = store.delete([EVENTS_0, EVENTS_1], expected=positions)
        assert dict(store.load()) == {}
        store.commit({EVENTS_0: Position(5)}, expected=positions)
        # A program that writes its text again is not overlooked.
        write(99)
        assert store.load().offset(EVENTS_0) == 99
        if text:
            then.ensure_path(f"{chroot}/consumers/events/0")
            assert store.load().offset(EVENTS_0) == 99
            # What is below it is older than a text that somebody has spoilt.
            for spoilt in (b"0:9x,1:4", b"0:42;1:7", b"0:42:1:7", b'{"0', b"0"):
                then.set(f"{chroot}/consumers/events", spoilt)
                with pytest.raises(OffsetStoreError, match=re.escape(spoilt.decode())):
                    store.load()
            # That is what some programs leave there: their address.
            for host in (b"2001:db8::1", b"10.0.0.7", b"worker-3.local"):
                then.set(f"{chroot}/consumers/events", host)
                store.load()


@pytest.mark.parametrize("path", ["/shown/orders/0", "/consumers/shown/offsets/orders/0"])
def test_what_only_another_program_has_written_is_shown(server: ZooKeeperServer, path: str) -> None:
    with client_of(server) as then:
        then.create(path, b"42", makepath=True)
    address = "shown" if path.startswith("/consumers") else "?node=/shown/{topic}&topic=orders"
    shown = run("offsets", "show", f"zookeeper://{server.hosts}/{address}", code=0)
    assert shown.stdout.split()[-3:] == ["orders", "0", "42"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("?node=/a", "it must say of which topics"),
        ("?node=/a&topic=a,b", "several topics need several keys"),
        ("?node=a&topic=a", "the address is zookeeper://host:port/?node=/consumers/{topic}&topic=orders"),
        ("?node=/a/../b&topic=a", "'..' cannot be the name of a node"),
        ("./x?node=/a&topic=a", "'.' cannot be the name of a node"),
        ("?node=/{topic}&topic=a/b", "cannot be the name of a node"),
    ],
)
def test_addresses_of_nodes_that_are_refused(options: str, told: str) -> None:
    with pytest.raises(OffsetStoreError, match=re.escape(told)):
        open_store(f"zookeeper://localhost:2181/{options}")


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
