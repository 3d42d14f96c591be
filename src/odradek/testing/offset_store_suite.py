"""A conformance suite for offset stores, to run against a store of your own.

Derive a class whose name starts with `Test`, define how the store is opened, and pytest runs the tests:

    class TestMyStore(OffsetStoreSuite):
        @pytest.fixture
        def address(self, tmp_path):
            return f"mystore://{tmp_path}"

        open_store = staticmethod(my_open_store)

Each test gets the address of a group that was never used. Tests for which a store lacks something (a server to kill, an
address where nothing listens) are skipped, with the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

import pytest

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.store import MAX_OFFSET, OffsetStore, Position, Positions, open_store
from odradek.storage.names import TopicPartition
from odradek.testing import committers
from odradek.testing.committers import EVENTS_0, EVENTS_1, PATIENCE_S

__all__ = ["EVENTS_0", "EVENTS_1", "OTHER_0", "OffsetStoreSuite", "StoreServer"]

OTHER_0 = TopicPartition("other.topic_with-all_signs", 0)


class StoreServer(Protocol):
    """The server of a store, for the tests that kill it and start it again."""

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""

    def start(self) -> None:
        """Start it again on the same address and data, and return when it answers."""


def _answered(call: Callable[[], Positions]) -> Positions:
    """Repeat a call until a server that was started again answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except OffsetStoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _commit_in_the_end(store: OffsetStore, positions: dict[TopicPartition, Position], expected: Positions) -> Positions:
    """Commit as a pipeline does: an unanswered commit may have happened, and is then not repeated."""

    def attempt() -> Positions:
        loaded = store.load()
        if all(loaded.get(name) == place for name, place in positions.items()):
            return loaded
        return store.commit(positions, expected=expected)

    try:
        return store.commit(positions, expected=expected)
    except CommitConflictError:
        raise
    except OffsetStoreError:
        return _answered(attempt)


class OffsetStoreSuite:
    """The tests. Override the fixtures and attributes that your store needs."""

    open_store: Callable[[str], OffsetStore] = staticmethod(open_store)
    """Opens the store at an address. Other processes call it too, so it must be picklable."""

    topic_names: tuple[str, ...] = (
        "a",
        "version",
        "with.dots",
        "under_score",
        "da-sh-0",
        "x" * 249,
        "Größe",
        "话题",
        "a b",
    )
    """Names of topics that the store must keep apart; leave out names that it does not allow."""

    partitions_count = 1_000
    """How many partitions a large group has."""

    claims_empty_groups = True
    """Whether a claim of a group without positions has an effect. In Kafka it has none: there is nowhere to keep it."""

    unreachable_within_s = 20.0
    """How long a call may take when nothing answers."""

    @pytest.fixture
    def address(self) -> str:
        """The address of a group that has no positions."""
        raise NotImplementedError("derive a class and override the fixture `address`")

    @pytest.fixture
    def unreachable_address(self) -> str:
        """An address where nothing answers."""
        pytest.skip("this store has no server")

    @pytest.fixture
    def server(self) -> StoreServer:
        """The server that holds `address`."""
        pytest.skip("this store has no server to kill")

    def prepare(self, address: str, partitions: Iterable[TopicPartition]) -> None:
        """Do what must be done before positions of these partitions can be stored, such as creating topics."""

    @contextmanager
    def _opened(self, address: str, *partitions: TopicPartition) -> Iterator[OffsetStore]:
        self.prepare(address, partitions)
        with self.open_store(address) as store:
            yield store

    def delete_topic(self, address: str, topic: str) -> None:
        """Delete a topic, if the store is in the cluster that has it."""

    def test_nothing_was_stored(self, address: str) -> None:
        with self.open_store(address) as store:
            loaded = store.load()
            assert dict(loaded) == {}
            assert loaded.version is None
            assert loaded.offset(EVENTS_0) is None

    def test_commit_and_reload(self, address: str) -> None:
        self.prepare(address, [EVENTS_0, EVENTS_1, OTHER_0])
        wanted = {EVENTS_0: Position(20), EVENTS_1: Position(0), OTHER_0: Position(7)}
        with self.open_store(address) as store:
            committed = store.commit(wanted, expected=store.load())
            assert dict(committed) == wanted
            assert dict(store.load()) == wanted
            assert store.load().version == committed.version is not None

    def test_reopened(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as store:
            committed = store.commit({EVENTS_0: Position(20)}, expected=store.load())
        with self.open_store(address) as store:
            loaded = store.load()
            assert dict(loaded) == {EVENTS_0: Position(20)}
            assert loaded.version == committed.version
            again = store.commit({EVENTS_0: Position(21)}, expected=loaded)
            assert again.offset(EVENTS_0) == 21

    def test_the_commit_is_expected_by_the_next(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as store:
            positions = store.load()
            versions = set()
            for offset in range(1, 11):
                positions = store.commit({EVENTS_0: Position(offset)}, expected=positions)
                versions.add(positions.version)
            assert len(versions) == 10
            assert dict(store.load()) == {EVENTS_0: Position(10)}

    def test_all_that_is_known_of_a_position(self, address: str) -> None:
        self.prepare(address, [EVENTS_0, EVENTS_1, OTHER_0])
        wanted = {
            EVENTS_0: Position(20, leader_epoch=3, topic_id="dKIuuZKCRVeBmhWn1mgBXg", batch='query 17/4 "ü"\'\n'),
            EVENTS_1: Position(4, leader_epoch=0),
            OTHER_0: Position(5, batch="", note='{"error": "…"}'),
        }
        with self.open_store(address) as store:
            store.commit(wanted, expected=store.load())
        with self.open_store(address) as store:
            assert dict(store.load()) == wanted

    def test_what_was_known_is_replaced(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as store:
            first = store.commit({EVENTS_0: Position(20, 3, "dKIuuZKCRVeBmhWn1mgBXg", "1")}, expected=store.load())
            store.commit({EVENTS_0: Position(21)}, expected=first)
            assert dict(store.load()) == {EVENTS_0: Position(21)}

    def test_a_partial_commit_keeps_the_others(self, address: str) -> None:
        with self._opened(address, EVENTS_0, EVENTS_1, OTHER_0) as store:
            first = store.commit({EVENTS_0: Position(1, batch="a"), OTHER_0: Position(2)}, expected=store.load())
            second = store.commit({EVENTS_1: Position(3), OTHER_0: Position(4)}, expected=first)
            wanted = {EVENTS_0: Position(1, batch="a"), EVENTS_1: Position(3), OTHER_0: Position(4)}
            assert dict(second) == wanted
            assert dict(store.load()) == wanted

    def test_delete(self, address: str) -> None:
        with self._opened(address, EVENTS_0, EVENTS_1, OTHER_0) as store:
            stored = {EVENTS_0: Position(1, 2, batch="a"), EVENTS_1: Position(2), OTHER_0: Position(3, topic_id="x")}
            first = store.commit(stored, expected=store.load())
            left = store.delete([EVENTS_0, EVENTS_1], expected=first)
            assert dict(left) == dict(store.load()) == {OTHER_0: Position(3, topic_id="x")}
            for late in (store.delete, lambda _, expected: store.commit({EVENTS_0: Position(9)}, expected=expected)):
                with pytest.raises(CommitConflictError):
                    late([OTHER_0], expected=first)
            both = store.commit({EVENTS_0: Position(5)}, expected=left)
            assert dict(store.load()) == dict(both) == {EVENTS_0: Position(5), OTHER_0: Position(3, topic_id="x")}
            # A partition without a position is skipped.
            assert dict(store.delete([EVENTS_0, EVENTS_1, OTHER_0], expected=both)) == {}
            assert dict(store.load()) == {}
            store.commit({EVENTS_0: Position(1)}, expected=store.load())
            assert dict(store.load()) == {EVENTS_0: Position(1)}

    def test_a_deleted_topic_is_remembered(self, address: str) -> None:
        """A reader that starts again must see that a topic with this name is not the one that it has read."""
        with self._opened(address, EVENTS_0, OTHER_0) as store:
            places = {EVENTS_0: Position(20, topic_id="AAAAAAAAAAAAAAAAAAAAEQ"), OTHER_0: Position(3, topic_id="x")}
            store.commit(places, expected=store.load())
        for _ in range(2):
            self.delete_topic(address, EVENTS_0.topic)
            with self.open_store(address) as store:
                found = _answered(store.claim)
                assert found[EVENTS_0].topic_id == places[EVENTS_0].topic_id
                assert found[OTHER_0] == places[OTHER_0]
                assert store.load().version == found.version
            self.prepare(address, [EVENTS_0])
        with self.open_store(address) as store:
            assert dict(store.load()) == dict(found)
            left = store.delete([EVENTS_0], expected=store.load())
            assert dict(left) == dict(store.load()) == {OTHER_0: places[OTHER_0]}
            assert dict(store.delete([OTHER_0], expected=left)) == dict(store.load()) == {}

    def test_a_deleted_topic_is_no_commit_of_another_reader(self, address: str) -> None:
        self.prepare(address, [EVENTS_0, OTHER_0])
        places = {EVENTS_0: Position(20, topic_id="AAAAAAAAAAAAAAAAAAAAEQ"), OTHER_0: Position(3, topic_id="x")}
        with self.open_store(address) as store, self.open_store(address) as other:
            held = store.commit(places, expected=_answered(store.claim))
            self.delete_topic(address, EVENTS_0.topic)
            for _ in range(2):
                assert store.load().version == held.version
            held = store.commit({OTHER_0: Position(4, topic_id="x")}, expected=held)
            assert held[OTHER_0].offset == 4
            _answered(other.claim)
            with pytest.raises(CommitConflictError):
                store.commit({OTHER_0: Position(5, topic_id="x")}, expected=held)

    def test_large_offsets(self, address: str) -> None:
        self.prepare(address, [EVENTS_0, EVENTS_1, OTHER_0])
        wanted = {EVENTS_0: Position(MAX_OFFSET), EVENTS_1: Position(2**53 + 1), OTHER_0: Position(2**31, 2**31 - 1)}
        with self.open_store(address) as store:
            store.commit(wanted, expected=store.load())
            assert dict(store.load()) == wanted

    def test_names_of_topics(self, address: str) -> None:
        names = [TopicPartition(topic, partition) for topic in self.topic_names for partition in (0, 10)]
        self.prepare(address, names)
        wanted = {name: Position(offset) for offset, name in enumerate(names)}
        with self.open_store(address) as store:
            store.commit(wanted, expected=store.load())
            assert dict(store.load()) == wanted

    def test_many_partitions(self, address: str) -> None:
        names = [TopicPartition("many", partition) for partition in range(self.partitions_count)]
        self.prepare(address, names)
        with self.open_store(address) as store:
            first = store.commit(
                {name: Position(name.partition, 1, batch="b1") for name in names}, expected=store.load()
            )
            assert dict(store.load()) == dict(first)
            second = store.commit({name: Position(name.partition + 1, 1, batch="b2") for name in names}, expected=first)
            assert dict(store.load()) == dict(second)
            assert len(second) == self.partitions_count

    def test_rewound_on_purpose(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as store:
            first = store.commit({EVENTS_0: Position(20)}, expected=store.load())
            store.commit({EVENTS_0: Position(5)}, expected=first)
            assert store.load().offset(EVENTS_0) == 5

    def test_conflict(self, address: str) -> None:
        with self._opened(address, EVENTS_0, EVENTS_1) as one, self.open_store(address) as other:
            seen_by_one, seen_by_other = one.load(), other.load()
            one.commit({EVENTS_0: Position(20)}, expected=seen_by_one)
            with pytest.raises(CommitConflictError):
                other.commit({EVENTS_0: Position(10), EVENTS_1: Position(10)}, expected=seen_by_other)
            assert dict(other.load()) == {EVENTS_0: Position(20)}
            other.commit({EVENTS_1: Position(10)}, expected=other.load())
            assert dict(one.load()) == {EVENTS_0: Position(20), EVENTS_1: Position(10)}

    def test_conflict_over_different_partitions(self, address: str) -> None:
        with self._opened(address, EVENTS_0, EVENTS_1) as one, self.open_store(address) as other:
            seen_by_one, seen_by_other = one.load(), other.load()
            one.commit({EVENTS_0: Position(20)}, expected=seen_by_one)
            with pytest.raises(CommitConflictError):
                other.commit({EVENTS_1: Position(10)}, expected=seen_by_other)

    def test_a_zombie_stays_dead(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as zombie, self.open_store(address) as successor:
            old = zombie.commit({EVENTS_0: Position(10)}, expected=zombie.load())
            new = successor.commit({EVENTS_0: Position(20)}, expected=successor.load())
            for offset in (11, 20, 30):
                with pytest.raises(CommitConflictError):
                    zombie.commit({EVENTS_0: Position(offset)}, expected=old)
            newer = successor.commit({EVENTS_0: Position(21)}, expected=new)
            with pytest.raises(CommitConflictError):
                zombie.commit({EVENTS_0: Position(22)}, expected=old)
            assert dict(successor.load()) == dict(newer) == {EVENTS_0: Position(21)}

    def test_a_position_that_came_back_is_not_the_old_version(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as zombie, self.open_store(address) as successor:
            old = zombie.commit({EVENTS_0: Position(10)}, expected=zombie.load())
            there = successor.commit({EVENTS_0: Position(20)}, expected=successor.load())
            successor.commit({EVENTS_0: Position(10)}, expected=there)
            with pytest.raises(CommitConflictError):
                zombie.commit({EVENTS_0: Position(11)}, expected=old)

    def test_nothing_stored_is_a_version_too(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as store:
            store.commit({EVENTS_0: Position(10)}, expected=store.load())
            with pytest.raises(CommitConflictError):
                store.commit({EVENTS_0: Position(0)}, expected=Positions())

    def test_claim(self, address: str) -> None:
        with self._opened(address, EVENTS_0) as zombie, self.open_store(address) as successor:
            old = zombie.commit({EVENTS_0: Position(10, batch="1")}, expected=zombie.load())
            claimed = successor.claim()
            assert dict(claimed) == {EVENTS_0: Position(10, batch="1")}
            with pytest.raises(CommitConflictError):
                zombie.commit({EVENTS_0: Position(11)}, expected=old)
            successor.commit({EVENTS_0: Position(12)}, expected=claimed)
            assert dict(zombie.load()) == {EVENTS_0: Position(12)}

    def test_claim_of_an_empty_group(self, address: str) -> None:
        if not self.claims_empty_groups:
            pytest.skip("this store has nowhere to keep the claim of an empty group")
        with self.open_store(address) as zombie, self.open_store(address) as successor:
            old = zombie.load()
            claimed = successor.claim()
            assert dict(claimed) == {}
            with pytest.raises(CommitConflictError):
                zombie.commit({EVENTS_0: Position(11)}, expected=old)
            successor.commit({EVENTS_0: Position(12)}, expected=claimed)

    def test_of_many_threads_one_wins_each_round(self, address: str) -> None:
        self.prepare(address, [EVENTS_0])
        rounds, count = 10, 4
        barrier = threading.Barrier(count)
        outcomes: list[list[str]] = [[] for _ in range(count)]

        def run(own: list[str]) -> None:
            own.extend(committers.race(self.open_store, address, barrier, rounds))

        committers.in_threads(*(partial(run, own) for own in outcomes))
        committers.check_race(outcomes, rounds)
        with self.open_store(address) as store:
            assert store.load().offset(EVENTS_0) == rounds

    def test_of_many_processes_one_wins_each_round(self, address: str) -> None:
        self.prepare(address, [EVENTS_0])
        rounds, count = 10, 3
        barrier = committers.SPAWN.Barrier(count)
        with ExitStack() as running:
            arguments = (committers.race_in_process, self.open_store, address, barrier, rounds)
            children = [running.enter_context(committers.child(*arguments)) for _ in range(count)]
            outcomes = [receiver.recv() if receiver.poll(PATIENCE_S) else [] for _, receiver in children]
        committers.check_race(outcomes, rounds)
        with self.open_store(address) as store:
            assert store.load().offset(EVENTS_0) == rounds

    def test_no_commit_is_lost_among_many(self, address: str) -> None:
        self.prepare(address, [EVENTS_0])
        commits, threads = 5, 3
        failures: list[Exception] = []

        def commit() -> None:
            try:
                with self.open_store(address) as store:
                    for _ in range(commits):
                        committers.add_one(store)
            except Exception as error:
                failures.append(error)

        committers.in_threads(*[commit] * threads)
        assert failures == []
        with self.open_store(address) as store:
            assert store.load().offset(EVENTS_0) == commits * threads

    def test_a_killed_committer(self, address: str) -> None:
        self.prepare(address, [EVENTS_0, EVENTS_1])
        for delay_s in (0.0, 0.003, 0.02):
            with self.open_store(address) as store:
                acknowledged = store.load().offset(EVENTS_0) or 0
            with committers.child(committers.commit_until_killed, self.open_store, address) as (running, receiver):
                assert receiver.poll(PATIENCE_S), "the committer never committed"
                time.sleep(delay_s)  # not for anything to happen: it spreads the kills over a commit
                running.kill()
                running.join(PATIENCE_S)
                while receiver.poll():
                    acknowledged = receiver.recv()
            with self.open_store(address) as store:
                loaded = store.load()
                assert acknowledged <= (loaded.offset(EVENTS_0) or 0) <= acknowledged + 1
                assert loaded.offset(EVENTS_0) == loaded.offset(EVENTS_1), "half a commit"
                store.commit({EVENTS_0: Position(0), EVENTS_1: Position(0)}, expected=loaded)

    def test_closed_twice(self, address: str) -> None:
        store = self.open_store(address)
        store.load()
        store.close()
        store.close()

    def test_the_server_is_killed_between_commits(self, address: str, server: StoreServer) -> None:
        with self._opened(address, EVENTS_0) as store:
            positions = store.commit({EVENTS_0: Position(1, batch="1")}, expected=store.load())
            server.kill()
            server.start()
            positions = _commit_in_the_end(store, {EVENTS_0: Position(2, batch="2")}, positions)
            server.kill()
            started = time.monotonic()
            with pytest.raises(OffsetStoreError) as caught:
                store.commit({EVENTS_0: Position(3)}, expected=positions)
            assert not isinstance(caught.value, CommitConflictError)
            with pytest.raises(OffsetStoreError):
                store.load()
            assert time.monotonic() - started < 2 * self.unreachable_within_s
            server.start()
            assert _answered(store.load).offset(EVENTS_0) == 2
            assert dict(store.load()) == {EVENTS_0: Position(2, batch="2")}
            store.commit({EVENTS_0: Position(4)}, expected=store.load())
        with self.open_store(address) as store:
            assert dict(store.load()) == {EVENTS_0: Position(4)}

    def test_nothing_answers(self, unreachable_address: str) -> None:
        started = time.monotonic()
        with self.open_store(unreachable_address) as store:
            with pytest.raises(OffsetStoreError):
                store.load()
            with pytest.raises(OffsetStoreError) as caught:
                store.commit({EVENTS_0: Position(1)}, expected=Positions())
            assert not isinstance(caught.value, CommitConflictError)
        assert time.monotonic() - started < 2 * self.unreachable_within_s
