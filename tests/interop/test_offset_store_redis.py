"""The Redis store against Redis."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import odradek
from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.known_beside import OTHER_PROGRAM
from odradek.offsets.redis_hash import RedisHashStore
from odradek.offsets.store import Position, open_store
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, OTHER_0, OffsetStoreSuite
from peers.command import run
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
    # There two calls wait in vain.
    impatience = "&timeout_ms=3000" if "server_is_killed" in request.node.name else ""
    return f"redis://127.0.0.1:{server.port}/2?group={request.node.name}{impatience}"


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
            with open_store(address) as store:
                assert dict(store.load()) == wanted
        place = f"127.0.0.1:{server.port}/3"
        run("offsets", "copy", f"redis://{place}?list=list", f"redis://:@{place}?group=g", code=0)
        with open_store(f"redis://127.0.0.1:{server.port}/3?group=g") as store:
            assert dict(store.load()) == wanted


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "?list=key has no positions: nothing is stored there"),
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
    result = run("offsets", "show", f"redis://127.0.0.1:{server.port}/4?list=key")
    assert (result.exit_code, result.stdout) == (3, "")
    assert told in result.stderr


class TestRedisRanges(OffsetStoreSuite):
    """A key that a program of then and one of now write in turns is an offset store as any other."""

    topic_names = ("a", "version", "with.dots", "under_score", "da-sh-0", "x" * 249)

    @pytest.fixture
    def address(self, address: str) -> str:
        return address.replace("?group=", "?list=")

    @pytest.fixture
    def server(self, server: RedisServer) -> RedisServer:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"redis://127.0.0.1:{free_port()}/0?list=key&timeout_ms=2000"


PYTHON_2 = "[{'topic': u'events', 'partition': 0, 'fromOffset': 100L, 'untilOffset': 120L}]"


def test_a_program_of_then_and_one_of_now_take_turns(server: RedisServer) -> None:
    address = f"redis://127.0.0.1:{server.port}/5?list=wordcount"
    events_1 = TopicPartition("events", 1)
    with closing(redis.Redis(port=server.port, db=5, decode_responses=True)) as then:
        then.flushdb()
        then.set("wordcount", PYTHON_2)
        with open_store(address) as store:
            positions = store.claim()
            assert dict(positions) == {EVENTS_0: Position(120)}
            assert then.get("wordcount") == PYTHON_2
            place = Position(150, 3, "an-id", "batch", "note")
            positions = store.commit({EVENTS_0: place, events_1: Position(7)}, expected=positions)
        text = then.get("wordcount")
        assert text == str(
            [
                {"topic": "events", "partition": 0, "fromOffset": 120, "untilOffset": 150},
                {"topic": "events", "partition": 1, "fromOffset": 7, "untilOffset": 7},
            ]
        )
        with open_store(address) as store:
            assert dict(store.load()) == {EVENTS_0: place, events_1: Position(7)}
            then.set("wordcount", str(text).replace("150", "160"))
            # What was known of 150 is not known of 160, but for the topic; and whoever had loaded that has a conflict.
            other = Position(160, topic_id="an-id", batch=OTHER_PROGRAM)
            assert dict(store.load()) == {EVENTS_0: other, events_1: Position(7)}
            with pytest.raises(CommitConflictError):
                store.commit({EVENTS_0: Position(170)}, expected=positions)
            store.delete([EVENTS_0, events_1], expected=store.load())
            assert then.get("wordcount") is None
            assert dict(store.load()) == {}


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [(["set", "LIST", "events-0=90"], 90), (["copy", "GROUP", "LIST", "--overwrite"], 77), (["show", "LIST"], 120)],
)
def test_the_commands_take_such_a_key(server: RedisServer, arguments: list[str], offset: int) -> None:
    addresses = {kind: f"redis://127.0.0.1:{server.port}/6?{kind.lower()}=g" for kind in ("LIST", "GROUP")}
    with closing(redis.Redis(port=server.port, db=6, decode_responses=True)) as then:
        then.flushdb()
        then.set("g", PYTHON_2)
        with open_store(addresses["GROUP"]) as store:
            store.commit({EVENTS_0: Position(77)}, expected=store.load())
        result = run("offsets", *(addresses.get(word, word) for word in arguments))
        assert result.exit_code == 0, result.output
        assert result.output.split()[-3:] == ["events", "0", str(offset)]
        assert f"'untilOffset': {offset}" in str(then.get("g"))


def test_a_key_that_is_only_read(server: RedisServer) -> None:
    with closing(redis.Redis(port=server.port, db=7)) as client:
        client.flushdb()
        client.rpush("list", "events,0,0,90")
        client.set("lines", "events,0,0,90")
        client.set("long", b"[" + b" " * (16 << 20))
    for key in ("list", "lines"):
        with open_store(f"redis://127.0.0.1:{server.port}/7?list={key}") as store:
            assert dict(store.load()) == {EVENTS_0: Position(90)}
            with pytest.raises(OffsetStoreError, match=rf"list={key}: it has ranges in a form that is only read"):
                store.claim()
    with open_store(f"redis://127.0.0.1:{server.port}/7?list=long") as store:
        with pytest.raises(OffsetStoreError, match="the key has more than 16 MB"):
            store.load()


class TestRedisHashes(OffsetStoreSuite):
    """So are hashes, or texts, of a topic each."""

    topic_names = ("a", "version", "with.dots", "under_score", "da-sh-0", "x" * 249)

    @pytest.fixture
    def address(self, address: str) -> str:
        topics = ",".join((EVENTS_0.topic, OTHER_0.topic, "many", *self.topic_names))
        return f"{address.replace('?group=', '?hash={topic}_')}&topic={topics}"

    @pytest.fixture
    def server(self, server: RedisServer) -> RedisServer:
        return server

    @pytest.fixture
    def unreachable_address(self) -> str:
        return f"redis://127.0.0.1:{free_port()}/0?hash=key&topic=events&timeout_ms=2000"


ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.every_case
@pytest.mark.parametrize(("key", "text"), [("offset:{topic}:kitchen", False), ("{topic}_kafkaOffset", True)])
def test_programs_that_keep_a_hash_or_a_text_of_a_topic_take_turns(server: RedisServer, key: str, text: bool) -> None:
    address = f"redis://127.0.0.1:{server.port}/8?hash={key}&topic=orders,clicks"
    orders, clicks = (key.replace("{topic}", topic) for topic in ("orders", "clicks"))
    with closing(redis.Redis(port=server.port, db=8, decode_responses=True)) as then:
        then.flushdb()

        def write(offset: int) -> None:
            if text:
                then.set(orders, json.dumps({"0": offset, "1": 4}))
            else:
                then.hset(orders, "0", str(offset))
                then.hset(orders, "1", "4")

        write(42)
        with open_store(address) as store:
            positions = store.claim()
            assert dict(positions) == {ORDERS_0: Position(42), ORDERS_1: Position(4)}
            place = Position(50, 3, "an-id", "batch", "note")
            positions = store.commit({ORDERS_0: place, TopicPartition("clicks", 7): Position(1)}, expected=positions)
            assert dict(store.load()) == dict(positions)
            assert json.loads(str(then.get(orders))) if text else then.hgetall(orders) == {"0": "50", "1": "4"}
            # What is there for the first time is a hash.
            assert then.hgetall(clicks) == {"7": "1"}
            write(60)
            other = Position(60, topic_id="an-id", batch=OTHER_PROGRAM)
            assert store.load()[ORDERS_0] == other
            with pytest.raises(CommitConflictError):
                store.commit({ORDERS_0: Position(70)}, expected=positions)
            with pytest.raises(OffsetStoreError, match="says nothing of the topic other"):
                store.commit({TopicPartition("other", 0): Position(70)}, expected=store.load())
            positions = store.delete([ORDERS_0, TopicPartition("other", 0)], expected=store.load())
            assert (json.loads(str(then.get(orders))) if text else then.hgetall(orders)) in ({"1": 4}, {"1": "4"})
            store.delete([ORDERS_1], expected=positions)
            assert then.get(orders) == "{}" if text else then.keys(orders) == []


def test_a_lost_answer_does_not_hide_what_another_program_wrote(server: RedisServer) -> None:
    address = f"redis://127.0.0.1:{server.port}/11?hash=offset:{{topic}}&topic=orders"
    with closing(redis.Redis(port=server.port, db=11, decode_responses=True)) as then, open_store(address) as store:
        assert isinstance(store, RedisHashStore)
        then.flushdb()
        then.hset("offset:orders", "0", "42")
        replace, others = store._replace, [None, "99"]

        def lost(**arguments: Any) -> Any:
            replace(**arguments)
            if (offset := others.pop(0)) is not None:
                then.hset("offset:orders", "0", offset)
            store._replace = replace
            raise redis.ConnectionError("the answer is lost")

        store._replace = lost  # type: ignore[assignment]
        positions = store.commit({ORDERS_0: Position(50)}, expected=store.load())
        assert dict(positions) == {ORDERS_0: Position(50)}
        store._replace = lost  # type: ignore[assignment]
        with pytest.raises(CommitConflictError):
            store.commit({ORDERS_0: Position(60)}, expected=positions)
        assert then.hgetall("offset:orders") == {"0": "99"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "topic=orders has no positions: nothing is stored there"),
        ({"orders-0": "5"}, "the hash has a field b'orders-0', which is no partition"),
        ({"00": "5"}, "the hash has a field b'00', which is no partition"),
        ({"2147483648": "5"}, "which is no partition"),
        ({"0": "-5"}, "offsets and leader epochs must be integers, not b'-5'"),
        ("0:5,1", "is no text of offsets, such as 0:3,1:4"),
        ('{"0": {"a": 1}}', "is no text of offsets"),
        ('{"0": 1.5}', "is no text of offsets"),
        ('{"0": 1, "0": 2}', "is no text of offsets"),
        ('{"0": ' + "9" * 30 + "}", "is no text of offsets"),
        (["0", "5"], "a list holds no offsets by partition"),
        ("x" * (16 << 20) + "x", "has more than 16 MB, or 200,000 fields"),
    ],
    ids=lambda given: str(given)[:20],
)
def test_what_is_no_hash_of_offsets_is_told(server: RedisServer, value: Any, told: str) -> None:
    with closing(redis.Redis(port=server.port, db=9)) as client:
        client.flushdb()
        if isinstance(value, dict):
            client.hset("key", mapping=value)
        elif isinstance(value, list):
            client.rpush("key", *value)
        elif value is not None:
            client.set("key", value)
    result = run("offsets", "show", f"redis://127.0.0.1:{server.port}/9?hash=key&topic=orders")
    assert (result.exit_code, result.stdout) == (3, "")
    assert told in result.stderr


def test_a_job_says_that_it_found_nothing_where_an_older_program_should_have_left_something(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=1)
    address = f"redis://127.0.0.1:{server.port}/10?hash=kitchn&topic=orders"
    with closing(redis.Redis(port=server.port, db=10)) as then:
        then.flushdb()
    work = Job(
        {"path": str(tmp_path / "data"), "subscribe": "orders"},
        address,
        sinks=(ConsoleSinkSpec("SELECT * FROM records"),),
    )
    assert Pipeline(work).run() == 0
    told = f"{address} has no positions: the job begins at offsets.reset, earliest"
    assert told in caplog.messages
    caplog.clear()
    # Now it has some.
    assert Pipeline(work).run() == 0
    assert not caplog.messages


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("hash=key", "it must say of which topics"),
        ("hash=key&topic=a,b", "several topics need several keys"),
        ("topic=a", "unknown option topic"),
        ("hash=&topic=a", "Redis's address is redis://host:port/db?hash=name"),
    ],
)
def test_addresses_of_hashes_that_are_refused(options: str, told: str) -> None:
    with pytest.raises(OffsetStoreError, match=re.escape(told)):
        open_store(f"redis://localhost:6379/0?{options}")


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
