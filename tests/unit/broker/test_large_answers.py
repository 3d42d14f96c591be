"""What a broker holds may be much, and a small request may ask for all of it; but for each thing only once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker import turns
from odradek.broker.connection import Connection
from odradek.broker.groups.shard import Commit
from odradek.broker.protocol import decode_response, encode_request
from odradek.broker.running import serving
from odradek.broker.server import Server
from odradek.broker.turns import whole
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.transactions.metadata import TransactionMetadata
from odradek.messages.coordinators.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from odradek.messages.coordinators.transaction_records import TransactionState
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from peers.broker_thread import answered
from peers.cpu import LongestCallback
from peers.sized_requests import Variety, all_keys, arrays_of, newest
from unit.broker.conftest import LISTENERS
from unit.broker.test_longest_turns import answer, prepare

LIST_GROUPS, DELETE_TOPICS = 16, 20
FEW, MANY = 10, 60
MOST_BYTES_EACH = 1000
"""What an item of a request may add to its answer: the longest name of a topic, and what is said of it."""

LONGER_BY = 15_000
"""So much longer are names than they can be; in any version."""

HELD = 50_000
MOST_STANDARDS = 20

OFFSET = OffsetCommitValue(offset=5, metadata="x" * 4000, commit_timestamp=0)


def commit(server: Server, group: str, value: OffsetCommitValue) -> None:
    server.broker.groups.shard(group).commit([Commit.of(group, TopicPartition("t0", 0), value)])


async def hold_much(server: Server) -> list[UUID]:
    """Makes what requests name large: a group, its offsets, a transaction, a partition's producers; returns ids."""
    broker = server.broker
    ids = await prepare(server)
    members = tuple(MemberMetadata(f"member-{n}", "tests", "/here", 10_000, b"x" * 500, b"y" * 500) for n in range(20))
    shard = broker.groups.shard("t0")
    shard.groups["t0"] = ClassicGroup.from_record(
        "t0", GroupMetadataValue("consumer", 1, "range", "member-0", members, 0)
    )
    shard.commit([Commit.of("t0", TopicPartition("t0", number), OFFSET) for number in range(4)])
    partitions = frozenset(TopicPartition(f"topic-{number}", 0) for number in range(200))
    broker.transactions.states.add("t0", TransactionMetadata(1, 0, 60_000, TransactionState.ONGOING, 0, partitions, 0))
    log = broker.partitions.get("t0", 0).log
    for producer_id in range(100):
        record = Record(value=b"value", timestamp=1)
        log.append_batches(bytearray(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0)))
    return ids


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("key", all_keys())
def test_no_item_of_a_request_makes_its_answer_large(tmp_path: Path, key: int) -> None:
    async def run() -> list[str]:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            ids = await hold_much(server)
            wrong = []
            for growing in arrays_of(key, newest):
                for variety, longer_by in ((Variety.REPEATED, 0), (Variety.UNKNOWN, LONGER_BY)):
                    few, many = (growing.frame(count, variety, ids, longer_by) for count in (FEW, MANY))
                    added = await answer(server, many) - await answer(server, few)
                    if added > MOST_BYTES_EACH * (MANY - FEW) + len(many) - len(few):
                        wrong.append(f"{growing} {variety.value}: {MANY - FEW} items add {added} bytes")
            return wrong

    assert asyncio.run(run()) == []


@pytest.mark.slow
def test_what_is_asked_for_twice_is_answered_once(tmp_path: Path) -> None:
    offsets = {"member_id": None, "member_epoch": -1}
    t0, t1 = {"name": "t0", "partition_indexes": [0, 1, 0]}, {"name": "t1", "partition_indexes": [0]}
    configs = {"resource_type": 2, "resource_name": "t0"}

    async def run() -> None:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            await hold_much(server)

            async def ask(key: int, version: int, **message: Any) -> Any:
                found = await answered(server, bytearray(encode_request(key, version, 1, "tests", message)[4:]))
                return decode_response(key, version, found[4:])[1]

            groups: list[dict[str, Any]] = [{"group_id": "t0", "topics": [t0, t1]}, {"group_id": "t0", "topics": [t0]}]
            (found,) = (await ask(9, 9, groups=[offsets | group for group in groups], require_stable=False)).groups
            assert [[one.partition_index for one in topic.partitions] for topic in found.topics] == [[0, 1], [0]]
            groups.append({"group_id": "t0", "topics": None})
            (found,) = (await ask(9, 9, groups=[offsets | group for group in groups], require_stable=False)).groups
            assert [[one.partition_index for one in topic.partitions] for topic in found.topics] == [[0, 1, 2, 3]]
            (topic,) = (await ask(61, 0, topics=[t0, t0])).topics
            assert [(one.partition_index, len(one.active_producers)) for one in topic.partitions] == [(0, 100), (1, 0)]
            names = ["retention.ms", "segment.ms"], ["retention.ms", "cleanup.policy"]
            describe = partial(ask, 32, 4, include_synonyms=False, include_documentation=False)
            (found,) = (await describe(resources=[configs | {"configuration_keys": some} for some in names])).results
            assert {one.name for one in found.configs} == {"retention.ms", "segment.ms", "cleanup.policy"}
            (found,) = (
                await describe(resources=[configs | {"configuration_keys": some} for some in (*names, None)])
            ).results
            assert len(found.configs) > 20

    asyncio.run(run())


async def hold_many(server: Server) -> None:
    """Creates many groups, each with an offset, many transactional ids, and a topic of many partitions."""
    broker = server.broker
    await broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
    await broker.topics.internal(TRANSACTION_STATE_TOPIC)
    await broker.topics.create([NewTopic("t0", 1, {}), NewTopic("t1", 1000, {})])
    now_ms = broker.clock.now_ms()
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=now_ms)
    transaction = TransactionMetadata(1, 0, 60_000, TransactionState.EMPTY, now_ms)
    for number in range(HELD):
        commit(server, f"g{number}", value)
        broker.transactions.states.add(f"t{number}", transaction)


SMALL: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (16, 5, {"states_filter": [], "types_filter": []}),
    (66, 0, {"state_filters": [], "producer_id_filters": []}),
    (3, 12, {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}),
    (20, 4, {"topic_names": ["t0"], "timeout_ms": 10_000}),
)
"""Requests of a few bytes that are about all that there is."""


@pytest.mark.slow
def test_no_small_request_keeps_the_loop_for_all_that_there_is(tmp_path: Path, longest: LongestCallback) -> None:
    async def run() -> dict[str, float]:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            await hold_many(server)
            found = {}
            for key, version, message in SMALL:
                frame = bytearray(encode_request(key, version, 1, "tests", message)[4:])
                # Frozen, because collecting what the test itself made takes long.
                gc.collect()
                gc.freeze()
                await asyncio.sleep(0)
                longest.clear()
                assert await answer(server, frame) > 0
                await asyncio.sleep(0)
                found[f"API key {key}"] = longest.standards
            longest.clear()
            server.broker.clock.advance(8 * 24 * 3600)
            while server.broker.groups.count:
                await asyncio.sleep(0)
            return {**found, "expiry": longest.standards}

    try:
        found = asyncio.run(run())
    finally:
        gc.unfreeze()
    assert {name: round(ms) for name, ms in found.items() if ms > MOST_STANDARDS} == {}


@pytest.mark.slow
def test_an_offset_that_is_committed_after_the_deletion_stays(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            groups = server.broker.groups
            await server.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
            names = [name for name in map("g{}".format, range(5000)) if groups.partition_for(name) == 0]
            for name in names:
                commit(server, name, OFFSET)
            work = groups.topics_deleted({"t0": None})
            next(work)
            commit(server, names[-1], OFFSET)
            whole(work)
            assert [group for group, _, _ in groups.committed()] == [names[-1]]

    asyncio.run(run())


def test_groups_that_are_removed_while_they_are_listed_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_FIRST_S", 0)

    async def run() -> None:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            groups = server.broker.groups
            await server.broker.topics.internal(CONSUMER_OFFSETS_TOPIC)
            for name in ("g0", "g1", "g2"):
                commit(server, name, OFFSET)
            connection = Connection(server, "PLAINTEXT", "127.0.0.1", 1 << 20)
            found = server.handle(connection, bytearray(encode_request(LIST_GROUPS, 2, 1, "tests", {})[4:]))
            whole(groups.shard("g1").delete_group("g1"))
            assert isinstance(found, Awaitable)
            answered = await found
            connection.close()
            assert answered is not None
            listed = decode_response(LIST_GROUPS, 2, answered[4:])[1].groups
            assert {group.group_id for group in listed} == {"g0", "g2"}

    asyncio.run(run())


def test_a_transactional_id_that_is_used_again_is_not_forgotten_by_a_round_that_takes_long(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            await server.broker.topics.internal(TRANSACTION_STATE_TOPIC)
            states = server.broker.transactions.states
            unused = TransactionMetadata(5, 0, 1, TransactionState.EMPTY, last_update_ms=0)
            expired = [states.add(name, unused) for name in ("a", "b")]
            await states.forget(expired, 1)
            again = states.add("a", replace(unused, producer_id=6))
            await states.forget(expired, 1)
            assert list(states) == [again]

    asyncio.run(run())
