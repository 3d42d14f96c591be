"""Share groups in a running broker: restarts, time, deleted topics, disks, and what is kept short."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.broker.running import BrokerThread
from odradek.broker.shares.fetches import FetchLimits, ShareFetch, _Readable
from odradek.coordination.shares.changes import Acknowledgement
from odradek.messages.coordinators.share_records import ShareKey
from odradek.messages.uuids import ZERO_UUID
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.metadata.new_topic import NewTopic
from odradek.storage.names import SHARE_GROUP_STATE_TOPIC
from odradek.storage.segment.log_slice import records_of
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.cpu import LongestCallback
from peers.http import metrics
from unit.broker.conftest import LISTENERS

CREATE_ACLS = 30
SHARE_FETCH, SHARE_ACKNOWLEDGE, INITIALIZE, READ, WRITE = 78, 79, 83, 84, 85
ACCEPT, RELEASE = 1, 2
GROUP = "group"
CONFIG = {**LISTENERS, "share.coordinator.state.topic.num.partitions": 1}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with start(tmp_path / "data", **CONFIG) as running:
        yield running


_clients: list[WireClient] = []


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """Closes the connections of members."""
    yield
    while _clients:
        _clients.pop().close()


class Member:
    """A member of a share group, on a connection of its own."""

    def __init__(self, running: BrokerThread, topic_id: UUID, name: str = "m") -> None:
        self.client = connect(running)
        _clients.append(self.client)
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    def _send(self, key: int, said: list[tuple[int, int, int]], **fields: Any) -> Any:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [one]} for first, last, one in said
        ]
        topics = [
            {"topic_id": self.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}
        ]
        message = {"group_id": GROUP, "member_id": self.name, "topics": topics, "share_session_epoch": self.epoch}
        found = self.client.call(key, 2, {**message, **fields})
        self.epoch += 1
        return found

    def fetch(self, max_wait_ms: int = 2000, **fields: Any) -> list[tuple[int, int, int]]:
        """Returns what it acquires: first and last offset, and the delivery count."""
        limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        answer = self._send(SHARE_FETCH, [], max_wait_ms=max_wait_ms, forgotten_topics_data=[], **{**limits, **fields})
        assert not answer.error_code
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for one in partition.acquired_records
        ]

    def say(self, *said: tuple[int, int, int]) -> int:
        """Acknowledges; returns the error code."""
        return int(self._send(SHARE_ACKNOWLEDGE, [*said]).responses[0].partitions[0].error_code)


def make_topic(running: BrokerThread, *sizes: int, name: str = "t") -> UUID:
    """Creates a topic with batches of some sizes, and begins the state of the group."""
    made = running.call(lambda: running.broker.logs.create_topics([NewTopic(name, 1, {})])[0])
    topic_id: UUID = made.topic_id or ZERO_UUID
    append(running, *sizes, name=name)

    async def begin() -> None:
        await running.broker.share_state.create()
        await running.broker.share_state.initialize(GROUP, topic_id, 0, 0, 0)

    submit(running, begin())
    return topic_id


def append(running: BrokerThread, *sizes: int, name: str = "t") -> None:
    for size in sizes:
        records = [Record(offset=number, timestamp=1, value=b"v") for number in range(size)]
        data = bytearray(build_batch(records))
        running.call(lambda data=data: running.broker.partitions.get(name, 0).append(data))  # type: ignore[misc]


def submit(running: BrokerThread, work: Any) -> None:
    """Runs a coroutine in the broker's loop to its end."""
    task = running.call(lambda: asyncio.ensure_future(work))
    eventually(task.done)
    task.result()


def written(running: BrokerThread, topic_id: UUID) -> list[tuple[int, ...]]:
    """Returns the start offset, and the states that are written down."""
    with connect(running) as client:
        partition = {"partition": 0, "leader_epoch": 0}
        message = {"group_id": GROUP, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
        found = client.call(READ, 0, message).results[0].partitions[0]
    states = [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in found.state_batches
    ]
    return [(found.start_offset,), *states]


def state_log(running: BrokerThread) -> Any:
    return running.broker.logs[SHARE_GROUP_STATE_TOPIC, 0]


@pytest.mark.slow
def test_a_lock_of_thirty_seconds_ends_in_a_millisecond(running: BrokerThread) -> None:
    topic_id = make_topic(running, 3)
    member, other = Member(running, topic_id), Member(running, topic_id, "other")
    assert member.fetch() == [(0, 2, 1)]
    assert other.fetch(0) == []
    advance(running, 29.9)
    assert other.fetch(0) == []
    advance(running, 0.2)
    assert other.fetch() == [(0, 2, 2)]
    assert member.say((0, 2, ACCEPT)) == 121
    assert other.say((0, 2, ACCEPT)) == 0


def test_metrics_tell_what_is_in_flight_and_became_of_records(running: BrokerThread, base: str) -> None:
    member = Member(running, make_topic(running, 6))
    assert member.fetch() == [(0, 5, 1)]
    before = metrics(base)
    assert before['odradek_share_in_flight_messages{group="group",topic="t"}'] == 6
    assert member.say((0, 0, ACCEPT), (1, 2, RELEASE)) == 0
    # What is refused does not count.
    assert member.say((1, 1, ACCEPT)) != 0
    advance(running, 31)
    found = metrics(base)
    assert found['odradek_share_in_flight_messages{group="group",topic="t"}'] == 5
    kinds = {"Accept": 1, "Release": 2, "Reject": 0, "Renew": 0}
    counted = {kind: found[f'odradek_share_record_acknowledgements_total{{ack_type="{kind}"}}'] for kind in kinds}
    assert counted == kinds
    timeouts = "odradek_share_acquisition_lock_timeouts_total"
    assert (before[timeouts], found[timeouts]) == (0, 3)


def test_a_member_that_waits_gets_what_times_out(running: BrokerThread) -> None:
    topic_id = make_topic(running, 3)
    member, other = Member(running, topic_id), Member(running, topic_id, "other")
    member.fetch()
    other.fetch(0)
    limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "max_wait_ms": 60_000}
    message = {"group_id": GROUP, "member_id": "other", "share_session_epoch": 1, "topics": []}
    sent = other.client.send(SHARE_FETCH, 2, {**message, **limits, "forgotten_topics_data": []})
    live = running.broker.shares.find(ShareKey(GROUP, topic_id, 0))
    assert live is not None
    eventually(lambda: live.waiters)
    advance(running, 31)
    answer = other.client.receive(SHARE_FETCH, 2, sent)
    assert answer.responses[0].partitions[0].acquired_records[0].delivery_count == 2


@pytest.mark.slow
def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with start(tmp_path / "data", **CONFIG) as running:
        topic_id = make_topic(running, 6)
        member = Member(running, topic_id)
        assert member.fetch() == [(0, 5, 1)]
        assert member.say((0, 1, ACCEPT), (3, 3, RELEASE)) == 0
        before = written(running, topic_id)
        # As a crash leaves it.
        shutil.copytree(tmp_path / "data", tmp_path / "crashed", ignore=shutil.ignore_patterns(".lock"))
    with start(tmp_path / "crashed", **CONFIG) as running:
        assert written(running, topic_id) == before
        # Offsets 2, 4 and 5 were with the member: that is not written down, so their counts begin again.
        assert sorted(Member(running, topic_id, "other").fetch()) == [(2, 2, 1), (3, 3, 2), (4, 5, 1)]
    with start(tmp_path / "data", **CONFIG) as running:
        # Here the member's session ended in order.
        assert written(running, topic_id) == [(2,), (2, 5, 0, 1)]


def test_a_client_that_disconnects_releases_what_it_has(running: BrokerThread) -> None:
    topic_id = make_topic(running, 2)
    member, other = Member(running, topic_id), Member(running, topic_id, "other")
    other.fetch(0)
    assert member.fetch() == [(0, 1, 1)]
    member.client.close()
    assert other.fetch(5000) == [(0, 1, 2)]
    other.client.close()
    eventually(lambda: running.broker.shares.find(ShareKey(GROUP, topic_id, 0)) is None)
    assert len(running.broker.shares.sessions) == 0


def test_the_states_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    with start(tmp_path / "data", **CONFIG) as running:
        topic_id, other_id = make_topic(running, 2), make_topic(running, 2, name="other")
        member = Member(running, topic_id)
        member.fetch()
        member.client.call(20, 5, {"topic_names": ["t"], "timeout_ms": 1000})
        assert running.broker.shares.find(ShareKey(GROUP, topic_id, 0)) is None
        end = state_log(running).log_end_offset
    with start(tmp_path / "data", **CONFIG) as running:
        assert written(running, other_id) == [(0,)]
        assert state_log(running).log_end_offset == end
        keys = [record.key for record in state_log(running).read() if record.value is None]
        assert len(keys) == 1


def test_a_topic_that_was_deleted_while_nobody_looked_loses_its_states_when_they_are_loaded(tmp_path: Path) -> None:
    with start(tmp_path / "data", **CONFIG) as running:
        make_topic(running, 2)
        other_id = make_topic(running, 2, name="other")
    with start(tmp_path / "data", **CONFIG) as running, connect(running) as client:
        client.call(20, 5, {"topic_names": ["t"], "timeout_ms": 1000})
        written(running, other_id)
        eventually(lambda: any(record.value is None for record in state_log(running).read()))


def test_records_that_are_not_needed_are_deleted(running: BrokerThread) -> None:
    topic_id = make_topic(running)
    for epoch in range(1, 4):
        submit(running, running.broker.share_state.initialize(GROUP, topic_id, 0, epoch, epoch))
    advance(running, 301)
    eventually(lambda: state_log(running).log_start_offset == 3)
    assert written(running, topic_id) == [(3,)]


@pytest.mark.slow
def test_a_state_that_no_record_can_hold_is_told_and_changed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every_third = {"share.coordinator.snapshot.update.records.per.snapshot": 3}
    with start(tmp_path / "data", **CONFIG, **every_third) as running:
        topic_id = make_topic(running, *[1] * 60)
        logs = running.broker.logs
        running.call(lambda: logs.alter_topic_config(SHARE_GROUP_STATE_TOPIC, {"max.message.bytes": "600"}))
        member = Member(running, topic_id)
        assert member.fetch()
        for number in range(1, 60, 2):
            assert member.say((number, number, ACCEPT)) == 0
        told = [one.getMessage() for one in caplog.records if "max.message.bytes" in one.getMessage()]
        assert len(told) == 1
        assert "group group" in told[0]
        assert len(written(running, topic_id)) > 30
        for number in range(0, 60, 2):
            assert member.say((number, number, ACCEPT)) == 0
        # It fits again; then the records before it are deleted.
        end = state_log(running).log_end_offset
        advance(running, 301)
        eventually(lambda: state_log(running).log_start_offset > end - 5)


def test_a_partition_that_is_not_written_gets_a_snapshot_now_and_then(running: BrokerThread) -> None:
    topic_id = make_topic(running)
    end = state_log(running).log_end_offset
    advance(running, 301)
    eventually(lambda: state_log(running).log_end_offset == end + 1)
    assert written(running, topic_id) == [(0,)]


@pytest.mark.slow
def test_many_states_are_merged_in_short_turns(
    leftovers_frozen: None, longest: LongestCallback, running: BrokerThread
) -> None:
    topic_id = make_topic(running)
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    batches = [dict(zip(names, (2 * n, 2 * n, 2, 1), strict=True)) for n in range(20_000)]
    partition = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": batches}
    message = {"group_id": GROUP, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
    with connect(running) as client:
        longest.clear()
        assert not client.call(WRITE, 1, message).results[0].partitions[0].error_code
    assert longest.standards < 40
    assert len(written(running, topic_id)) == 20_001


@pytest.mark.slow
def test_a_group_of_many_members_shares_a_partition(running: BrokerThread) -> None:
    topic_id = make_topic(running, *[1] * 40)
    members = [Member(running, topic_id, f"m{number}") for number in range(8)]
    found: list[int] = []
    for _ in range(5):
        for member in members:
            for first, last, count in member.fetch(max_records=1):
                assert count == 1
                found += range(first, last + 1)
                assert member.say((first, last, ACCEPT)) == 0
    assert sorted(found) == list(range(40))
    assert written(running, topic_id) == [(39,), (39, 39, 2, 1)]


def test_there_are_no_share_groups_where_the_feature_is_off(running: BrokerThread, client: WireClient) -> None:
    message = {"group_id": GROUP, "member_id": "m", "share_session_epoch": 1, "topics": []}
    assert client.call(SHARE_ACKNOWLEDGE, 2, message).error_code.name == "share_session_not_found"
    running.call(lambda: running.broker.logs.metadata_image.features.pop("share.version"))
    for key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 1, "batch_size": 1, "forgotten_topics_data": []}
        assert client.call(key, 2, {**message, **limits}).error_code.name == "unsupported_version"


def test_a_group_that_begins_anew_forgets_what_it_was_delivering(running: BrokerThread) -> None:
    topic_id = make_topic(running, 6)
    member = Member(running, topic_id)
    assert member.fetch() == [(0, 5, 1)]
    assert member.say((0, 3, ACCEPT)) == 0
    submit(running, running.broker.share_state.initialize(GROUP, topic_id, 0, 0, 0))
    # What it says now is of a delivery that does not count any more.
    assert member.say((4, 5, ACCEPT)) != 0
    assert written(running, topic_id) == [(0,)]
    assert member.fetch() == [(0, 5, 1)]


def test_a_group_that_was_deleted_and_made_again_begins_at_its_start(running: BrokerThread) -> None:
    topic_id = make_topic(running, 6)
    member = Member(running, topic_id)
    assert member.fetch() == [(0, 5, 1)]
    submit(running, running.broker.share_state.delete(GROUP, topic_id, 0))
    submit(running, running.broker.share_state.initialize(GROUP, topic_id, 0, 0, 2))
    assert member.say((0, 5, ACCEPT)) != 0
    assert written(running, topic_id) == [(2,)]
    assert member.fetch() == [(2, 5, 1)]


@pytest.mark.slow
def test_what_is_dropped_while_it_is_acknowledged_is_not_written(running: BrokerThread) -> None:
    topic_id = make_topic(running, 20_000)
    assert Member(running, topic_id).fetch() == [(0, 19_999, 1)]
    said = [Acknowledgement(offset, offset, [ACCEPT]) for offset in range(20_000)]

    async def act() -> bool:
        shares = running.broker.shares
        live = shares.find(ShareKey(GROUP, topic_id, 0))
        assert live is not None
        acting = asyncio.ensure_future(live.acknowledge("m", said))
        await asyncio.sleep(0)
        assert not acting.done()
        shares._drop(live)
        return isinstance((await asyncio.gather(acting, return_exceptions=True))[0], ApiError)

    task = running.call(lambda: asyncio.ensure_future(act()))
    eventually(task.done)
    assert task.result()
    assert written(running, topic_id) == [(0,)]
    assert Member(running, topic_id, "other").fetch() == [(0, 19_999, 1)]


def test_nothing_is_acquired_of_what_was_dropped_meanwhile(running: BrokerThread) -> None:
    topic_id = make_topic(running, 3)
    Member(running, topic_id, "other").fetch(0, max_records=0)
    member = Member(running, topic_id)
    assert member.fetch() == [(0, 2, 1)]
    assert member.say((0, 2, RELEASE)) == 0
    shares, key = running.broker.shares, (topic_id, 0)
    live = shares.find(ShareKey(GROUP, *key))
    assert live is not None
    assert live.share is not None
    readable = _Readable(key, live, live.share)
    running.call(lambda: shares._drop(live))
    fetch = ShareFetch(shares, GROUP, "m", [key], FetchLimits(1 << 20, 1, 500, 500, False))
    assert running.call(lambda: fetch._acquire(readable, 1 << 20, 500, at_least_one=True))[1] == 0


async def _turns() -> None:
    """Lets everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.sampled
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_write_that_waits_behind_a_new_beginning_does_not_count(
    running: BrokerThread, is_deleted: bool, is_dropped: bool
) -> None:
    topic_id = make_topic(running, 6)
    assert Member(running, topic_id).fetch() == [(0, 5, 1)]
    shares, states, key = running.broker.shares, running.broker.share_state, ShareKey(GROUP, topic_id, 0)

    async def act() -> tuple[Any, ...]:
        shard, live = await states._shard(key), shares.find(key)
        assert live is not None
        works = [states.delete(*key)] if is_deleted else []
        works += [states.initialize(*key, 0, 0), live.acknowledge("m", [Acknowledgement(0, 5, [ACCEPT])])]
        async with shard.changing:
            tasks = []
            for work in works:
                tasks.append(asyncio.ensure_future(work))
                await _turns()
            if is_dropped:
                shares._drop(live)
        return tuple(await asyncio.gather(*tasks, return_exceptions=True))

    task = running.call(lambda: asyncio.ensure_future(act()))
    eventually(task.done)
    *begun, refused = task.result()
    assert begun == [None] * len(begun)
    assert isinstance(refused, ApiError)
    assert refused.error_code == ErrorCode.not_leader_or_follower
    assert written(running, topic_id) == [(0,)]
    assert Member(running, topic_id, "other").fetch() == [(0, 5, 1)]


def test_a_partition_whose_state_begins_anew_while_it_is_loaded_is_loaded_again(running: BrokerThread) -> None:
    topic_id = make_topic(running, 6)
    key = ShareKey(GROUP, topic_id, 0)
    shares, states = running.broker.shares, running.broker.share_state

    async def act() -> int:
        await states.initialize(*key, 5, 0)
        shard = await states._shard(key)
        async with shard.changing:
            live = shares.get(key)
            await _turns()
            task = asyncio.ensure_future(states.initialize(*key, 5, 3))
            await _turns()
        await task
        while live.share is None:
            await asyncio.sleep(0)
        return live.share.start_offset

    task = running.call(lambda: asyncio.ensure_future(act()))
    eventually(task.done)
    assert task.result() == 3


@pytest.mark.slow
def test_many_cold_states_are_written_in_portions_so_that_the_log_is_pruned(running: BrokerThread) -> None:
    topic_id = make_topic(running)
    states, number = running.broker.share_state, 300
    keys = [ShareKey("g" * 10_000, topic_id, partition) for partition in range(number)]

    async def begin() -> None:
        shard = await states._shard(keys[0])
        for first in range(0, number, 50):
            some = keys[first : first + 50]
            await states._change(shard, lambda found: [found.initialize(key, 0, 0, 0) for key in some])  # noqa: B023

    submit(running, begin())
    log = state_log(running)
    end = log.log_end_offset
    advance(running, 301)
    eventually(lambda: log.log_end_offset == end + end)
    sizes = [batch.size_bytes for part in log.slices(end) for _, batch in records_of(part)]
    assert max(sizes) <= 1 << 15
    advance(running, 301)
    eventually(lambda: log.log_start_offset >= end)


def test_the_end_of_a_session_does_not_release_what_the_next_one_acquires(running: BrokerThread) -> None:
    topic_id, other_id = make_topic(running, 3, 3), make_topic(running, 3, 3, name="other")
    member = Member(running, topic_id)
    topics = [
        {"topic_id": one, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
        for one in (topic_id, other_id)
    ]
    # More bytes than one topic has: it waits until the states of both are read.
    limits = {"min_bytes": running.broker.logs["t", 0].size_bytes + 1, "max_wait_ms": 600_000}
    # All of the first topic, and half of the second one.
    assert member.fetch(topics=topics, max_records=9, batch_size=9, **limits) == [(0, 5, 1), (0, 2, 1)]
    shares, key = running.broker.shares, ShareKey(GROUP, other_id, 0)
    live = shares.find(key)
    assert live is not None
    share = live.share
    assert share is not None

    async def act() -> None:
        shard = await running.broker.share_state._shard(key)
        async with shard.changing:
            shares.end_session((GROUP, "m"))
            await _turns()
            # The first topic's write waits; a new session goes on meanwhile.
            fetch = ShareFetch(shares, GROUP, "m", [(other_id, 0)], FetchLimits(1 << 20, 1, 500, 500, False))
            await fetch.answer(0)
        await shares._tasks.ended()

    submit(running, act())
    found = [(one.first_offset, one.last_offset, one.delivery_state) for one in share.states()]
    assert found == [(0, 2, 0), (3, 5, 1)]


@pytest.mark.slow
def test_what_was_deleted_from_the_log_in_many_pieces_is_passed(running: BrokerThread) -> None:
    number = 10_000
    topic_id = make_topic(running, number, 3)
    member, other = Member(running, topic_id), Member(running, topic_id, "other")
    assert member.fetch() == [(0, number - 1, 1)]
    assert member.say(*[(offset, offset, RELEASE) for offset in range(1, number, 2)]) == 0
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": number}]}]
    member.client.call(21, 2, {"topics": topics, "timeout_ms": 1000})
    assert other.fetch() == [(number, number + 2, 1)]
    assert other.say((number, number + 2, ACCEPT)) == 0
    assert written(running, topic_id) == [(number,), (number, number + 2, 2, 1)]


def test_a_member_that_waits_gets_nothing_that_it_may_not_read_any_more(tmp_path: Path) -> None:
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with start(tmp_path / "data", **CONFIG, **authorizer) as running, connect(running) as admin:
        member = Member(running, make_topic(running))
        assert member.fetch(0) == []
        limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "max_wait_ms": 30_000}
        message = {"group_id": GROUP, "member_id": "m", "share_session_epoch": 1, "topics": []}
        waits = member.client.send(SHARE_FETCH, 2, {**message, **limits, "forgotten_topics_data": []})
        acl = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:*"}
        acl |= {"host": "*", "operation": 3, "permission_type": 2}
        assert not admin.call(CREATE_ACLS, 3, {"creations": [acl]}).results[0].error_code
        append(running, 3)
        [row] = member.client.receive(SHARE_FETCH, 2, waits).responses[0].partitions
    assert (row.error_code, row.acquired_records, row.records or b"") == (29, (), b"")
