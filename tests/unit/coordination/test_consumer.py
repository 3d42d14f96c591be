"""Consumer groups (KIP-848): what heartbeats change, member after member."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from uuid import UUID

import pytest

from odradek.coordination import patterns
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.consumer import ConsumerGroup, Kind, target_record
from odradek.coordination.groups.heartbeat import Heartbeat, Outcome, Steps
from odradek.coordination.groups.modern import GroupRecord, State
from odradek.coordination.groups.replay import Group, GroupState
from odradek.messages.coordinators.coordinator_records import decode
from odradek.messages.coordinators.group_records import TYPES
from peers.consumer_groups import GROUP, Client, Room, topic_id
from peers.cpu import standard_s

T, U = topic_id("t"), topic_id("u")


def counts(*clients: Client) -> list[int]:
    return sorted(sum(map(len, client.owned.values())) for client in clients)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as caught:
        action()
    return caught.value.error_name


def kinds(records: Iterable[GroupRecord]) -> list[tuple[int, bool]]:
    return [(int(record.type), record.value is not None) for record in records]


def test_the_first_member_gets_all_with_one_heartbeat() -> None:
    room, one = Room({"t": 3}), Client("a", ["t"])
    records = room.beat(one).records
    assert kinds(records) == [(5, True), (3, True), (7, True), (6, True), (8, True)]
    assert (one.epoch, one.assigned, room.group.state) == (2, {T: {0, 1, 2}}, State.STABLE)
    assert room.beat(one).records == []


def test_a_second_member_waits_until_the_first_one_has_given_up() -> None:
    room, one, two = Room({"t": 4}), Client("a", ["t"]), Client("b", ["t"])
    room.step(one)
    room.step(two)
    assert (two.epoch, two.owned, room.group.state) == (3, {}, State.RECONCILING)
    room.beat(one)
    assert (one.epoch, counts(one)) == (2, [4])
    room.step(two)
    assert two.owned == {}
    room.step(one)
    room.step(two)
    assert (one.epoch, two.epoch, counts(one, two), room.group.state) == (3, 3, [2, 2], State.STABLE)


def test_a_member_that_leaves_is_removed_by_tombstones_and_an_epoch() -> None:
    room, one, two = Room({"t": 4}), Client("a", ["t"]), Client("b", ["t"])
    room.settle([one, two])
    epoch = room.group.epoch
    assert kinds(room.leave(two).records) == [(8, False), (7, False), (5, False), (3, True)]
    assert (room.group.epoch, room.group.state) == (epoch + 1, State.ASSIGNING)
    room.settle([one])
    assert counts(one) == [4]
    room.leave(one)
    assert room.group.state is State.EMPTY


def test_a_static_member_comes_back_to_its_partitions() -> None:
    room = Room({"t": 4})
    one, two = Client("a", ["t"], instance_id="i"), Client("b", ["t"])
    room.settle([one, two])
    before, epoch = dict(one.owned), room.group.epoch
    assert kinds(room.leave(one, -2).records) == [(8, True)]
    again = Client("c", ["t"], instance_id="i")
    room.step(again)
    assert (again.owned, room.group.epoch, "a" in room.group.members) == (before, epoch, False)
    assert refusal(lambda: room.step(Client("d", ["t"], instance_id="i"))) == "UNRELEASED_INSTANCE_ID"
    assert refusal(lambda: room.step(Client("d", ["t"], instance_id="i", epoch=epoch))) == "FENCED_INSTANCE_ID"
    assert refusal(lambda: room.step(Client("d", ["t"], instance_id="j", epoch=epoch))) == "UNKNOWN_MEMBER_ID"


def test_a_topic_that_grows_or_is_made_changes_the_assignment() -> None:
    room, one = Room({"t": 2}), Client("a", ["t", "u"])
    room.settle([one])
    epoch = room.group.epoch
    room.topics.put("t", 3)
    room.settle([one])
    assert (room.group.epoch, one.owned) == (epoch + 1, {T: {0, 1, 2}})
    room.topics.put("u", 1)
    room.settle([one])
    assert (room.group.epoch, one.owned) == (epoch + 2, {T: {0, 1, 2}, U: {0}})
    room.topics.put("v", 1)
    room.settle([one])
    assert room.group.epoch == epoch + 2
    room.topics.put("t", 0)
    room.settle([one])
    assert one.owned == {U: {0}}


def test_a_target_counts_for_an_interval() -> None:
    room, one, two = Room({"t": 2}, interval_ms=60_000), Client("a", ["t"]), Client("b", ["t"])
    room.step(one)
    room.step(two)
    assert (room.group.epoch, room.group.target_epoch, two.assigned) == (3, 2, {})
    room.now_ms += 60_000
    room.settle([one, two])
    assert counts(one, two) == [1, 1]


def test_a_pattern_that_is_not_taken_any_more_keeps_the_topics_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    room, one = Room({"ta": 1, "tb": 2}), Client("a", regex="t.*")
    room.settle([one])
    room.resolve()
    room.settle([one])
    epoch = room.group.epoch
    room.topics.put("tc", 1)
    room.now_ms += 10_001
    # It has come from a broker without limits, or with others.
    monkeypatch.setattr(patterns, "MOST_CHOICES", 0)
    room.settle([one])
    assert (room.group.epoch, counts(one)) == (epoch, [3])
    # It is not tried again and again.
    assert room.beat(one).regexes == frozenset()


def test_a_pattern_is_tried_after_the_heartbeat() -> None:
    room, one = Room({"ta": 1, "tb": 2, "xt": 3}), Client("a", regex="t.*")
    assert room.beat(one).regexes == {"t.*"}
    assert one.assigned == {}
    room.resolve()
    room.settle([one])
    assert counts(one) == [3]
    # A new topic counts after ten seconds.
    room.topics.put("tc", 1)
    room.settle([one], 20)
    room.now_ms += 10_001
    room.settle([one])
    assert counts(one) == [4]
    one.regex = ""
    room.settle([one])
    assert (counts(one), room.group.regexes) == ([0], {})


def test_a_pattern_that_is_not_valid_is_refused() -> None:
    room = Room({})
    request = room.request(Client("a", regex="("), 0)._replace(regex_error="missing )")
    beat = Heartbeat(room.group, request, room.topics, room.settings, 0).run()
    assert refusal(lambda: list(beat)) == "INVALID_REGULAR_EXPRESSION"


def test_a_full_group_takes_no_more_members() -> None:
    room, one = Room({"t": 2}, max_size=1), Client("a", ["t"])
    room.settle([one])
    assert refusal(lambda: room.beat(Client("b", ["t"]))) == "GROUP_MAX_SIZE_REACHED"
    room.beat(one)


def test_a_clock_that_was_set_back_holds_up_neither_assignments_nor_patterns() -> None:
    room, one, two = Room({"t": 2}, interval_ms=60_000), Client("a", ["t"]), Client("b", [], regex="u.*")
    room.settle([one, two])
    room.now_ms -= 86_400_000
    room.topics.put("u", 2)
    room.settle([one, two])
    assert (counts(one), counts(two)) == ([2], [2])


@pytest.mark.parametrize("first", ["range", "uniform"])
def test_if_as_many_members_want_each_assignor_kafkas_hashes_decide(first: str) -> None:
    room = Room({"t": 4})
    for number, assignor in enumerate(sorted(["range", "uniform"], key=lambda name: name != first)):
        room.step(Client(f"m{number}", ["t"], assignor=assignor))
    assert room.group.assignor("uniform") == "uniform"


@pytest.mark.parametrize("other", [["t"], ["t", "u"]])
def test_partitions_that_a_damaged_log_has_are_not_assigned(other: list[str]) -> None:
    room, one, two = Room({"t": 2, "u": 2}), Client("a", ["t"]), Client("b", other)
    room.step(one)
    room.group.apply(target_record(GROUP, "a", {T: frozenset([7, -1])}))
    room.settle([one, two])
    held = sorted(number for client in (one, two) for number in client.owned.get(T, ()))
    assert held == [0, 1]


def test_most_members_decide_about_the_assignor() -> None:
    room = Room({"t": 4, "u": 4})
    clients = [Client(name, ["t", "u"], assignor="range") for name in "ab"]
    room.settle(clients)
    assert [client.owned for client in clients] == [{T: {0, 1}, U: {0, 1}}, {T: {2, 3}, U: {2, 3}}]
    assert room.group.assignor("uniform") == "range"


def test_who_may_commit_and_fetch() -> None:
    room, one = Room({"t": 2}), Client("a", ["t"])
    assert room.group.committing_member("", None, -1, is_transactional=False) is None
    room.settle([one])
    group = room.group
    assert refusal(lambda: group.committing_member("", None, -1, is_transactional=False)) == "UNKNOWN_MEMBER_ID"
    assert group.committing_member("", None, -1, is_transactional=True) is None
    assert group.committing_member("a", None, 2, is_transactional=False) is group.members["a"]
    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("a", 2)
    assert refusal(lambda: group.check_offset_fetch("a", 1)) == "STALE_MEMBER_EPOCH"
    assert refusal(lambda: group.check_offset_fetch("b", 2)) == "UNKNOWN_MEMBER_ID"
    assert refusal(group.check_delete) == "NON_EMPTY_GROUP"


def load(room: Room, *, compacted: bool = False) -> GroupState:
    """Return the groups as they are loaded from the log, as bytes."""
    state = GroupState()
    encoded = [record.encoded() for record in room.log]
    if compacted:
        last = {key: place for place, (key, _) in enumerate(encoded)}
        encoded = [one for place, one in enumerate(encoded) if last[one[0]] == place]
    for key, value in encoded:
        number, about, _, content = decode(TYPES, key, value)
        state.replay_consumer(GroupRecord(Kind(number), about, content))
    return state


def facts(group: Group | None) -> object:
    return isinstance(group, ConsumerGroup) and (
        group.epoch, group.metadata_hash, group.target_epoch, group.target_ms, dict(sorted(group.members.items())),
        group.static_members, group.targets, group.regexes, group.names,
        group.regex_names, group.regex_readers, group._owners, group._assignors,
    )  # fmt: skip


def test_tombstones_remove_all_of_a_group() -> None:
    room = Room({"t": 2})
    room.settle([Client("a", ["t"]), Client("b", regex="t")])
    keys = {record.encoded()[0] for record in room.log}
    order = [key[:2] for key, _ in room.group.tombstones()]
    assert keys <= {key for key, _ in room.group.tombstones()}
    assert [number for place, number in enumerate(order) if number not in order[:place]] == [
        number.to_bytes(2, "big") for number in (8, 7, 6, 5, 16, 4, 3)
    ]


NAMES = [f"t{number}" for number in range(4)]


def partitions_of(client: Client) -> list[tuple[UUID, int]]:
    return [(topic, number) for topic, numbers in client.owned.items() for number in numbers]


class TimedRoom(Room):
    """A room that knows the longest turn of the event loop that a request takes, in CPU time."""

    longest_s = 0.0

    def _do(self, steps: Steps) -> Outcome:
        return super()._do(self._timed(steps))

    def _timed(self, steps: Steps) -> Steps:
        while True:
            begun = time.thread_time()
            try:
                next(steps)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
            finally:
                self.longest_s = max(self.longest_s, time.thread_time() - begun)
            yield


@pytest.mark.slow
def test_members_of_ten_thousand_topics_settle_in_short_turns(leftovers_frozen: None) -> None:
    names = [f"topic-{number}" for number in range(10_000)]
    room, members = TimedRoom(dict.fromkeys(names, 1)), [Client(name, names) for name in "abc"]
    assert room.settle(members) <= 3
    assert counts(*members) == [3333, 3333, 3334]
    assert room.longest_s / standard_s() < 40


def end_session(room: Room, client: Client) -> None:
    """End the session of a static member that joins again without having left: only then is it let in, as on Kafka."""
    if client.instance_id is not None and client.epoch == 0 and client.member_id in room.group.members:
        assert refusal(partial(room.beat, client)) == "UNRELEASED_INSTANCE_ID"
        room.expire(room.group.members[client.member_id])


class KilledError(Exception):
    """The broker is killed before it answers."""


class FragileRoom(Room):
    """A room whose broker is killed after it has written for the nth time; another one loads the log.

    What one request changes is one batch, of which a crash leaves all or nothing.
    """

    def __init__(self, topics: dict[str, int], last_write: int) -> None:
        super().__init__(topics)
        self.writes, self._last_write = 0, last_write

    def _do(self, steps: Steps) -> Outcome:
        outcome = super()._do(steps)
        self.writes += bool(outcome.records)
        if outcome.records and self.writes == self._last_write:
            self.state, self.regexes = load(self), frozenset()
            raise KilledError
        return outcome

    def go_on(self, clients: Collection[Client]) -> None:
        """Let clients send heartbeats until they read all partitions, in the group's epoch."""
        for _ in range(10):
            for client in clients:
                with suppress(KilledError):
                    end_session(self, client)
                    self.step(client)
                read = Counter(partition for one in clients for partition in partitions_of(one))
                assert not [name for name, count in read.items() if count > 1], "a partition has two owners"
            with suppress(KilledError):
                self.resolve()
            self.now_ms += 5_000
            counts, epochs = self.topics.counts, {one.epoch for one in clients}
            wanted = {(self.topics.id_of(name), number) for name in counts for number in range(counts[name])}
            if (self.group.state, epochs, set(read)) == (State.STABLE, {self.group.epoch}, wanted):
                return
        raise AssertionError("not settled")


def reconcile(last_write: int) -> int:
    """Let members come and go and topics change, with a broker that is killed; return how often it wrote."""
    room = FragileRoom({"t": 4, "u": 2}, last_write)
    static, plain, pattern = Client("a", ["t", "u"], None, "i"), Client("b", ["t", "u"]), Client("c", regex="t|u")
    clients: list[Client] = []

    def leave() -> None:
        clients.remove(plain)
        # If its request has no answer, it may send it again, but need not.
        with suppress(KilledError):
            room.leave(plain)

    changes: list[Callable[[], object]] = [
        partial(clients.append, static), partial(clients.append, plain), partial(clients.append, pattern),
        partial(room.topics.put, "t", 7), partial(room.topics.put, "u", 0), leave,
    ]  # fmt: skip
    for change in changes:
        change()
        room.go_on(clients)
    return room.writes


@pytest.mark.slow
def test_a_broker_may_be_killed_after_each_write_of_a_reconciliation() -> None:
    writes = reconcile(0)
    assert writes > 15
    for last_write in range(1, writes + 1):
        reconcile(last_write)


class History:
    """Members come, go, vanish and change what they read, at random."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.room = Room(
            {name: chance.randint(1, 6) for name in NAMES[:3]}, interval_ms=chance.choice([0, 1000, 20_000])
        )
        self.clients: list[Client] = []
        self.made = 0

    def step(self) -> None:
        chance, room, clients = self.chance, self.room, self.clients
        match chance.choice(["join", "beat", "beat", "beat", "beat", "revoke", "leave", "vanish", "topics", "reads"]):
            case "join" if len(clients) < 6:
                self.made += 1
                is_static = chance.random() < 0.3
                read = chance.sample(NAMES, chance.randint(0, 4))
                regex = chance.choice([None, None, "t.*", "t[01]"])
                assignor = chance.choice([None, None, "range", "uniform"])
                clients.append(Client(f"m{self.made}", read, regex, f"i{self.made}" if is_static else None, assignor))
            case "beat" if clients:
                self.beat(chance.choice(clients))
            case "revoke" if clients:
                chance.choice(clients).revoke()
            case "leave" if clients:
                self.leave(chance.choice(clients))
            case "vanish" if clients:
                client = chance.choice(clients)
                if client.member_id in room.group.members:
                    room.expire(room.group.members[client.member_id])
                    # The client learns it with its next heartbeat; its session is over, so it must not read on.
                    client.owned, client.assigned = {}, {}
            case "topics":
                room.topics.put(chance.choice(NAMES), chance.randint(0, 7))
            case "reads" if clients:
                chance.choice(clients).names = chance.sample(NAMES, chance.randint(0, 4))

    def beat(self, client: Client) -> None:
        if self.chance.random() < 0.3:
            client.revoke()
        epoch, assigned = client.epoch, client.assigned
        try:
            self.room.beat(client)
            if epoch > 0 and self.chance.random() < 0.2:
                # The answer does not arrive.
                client.epoch, client.assigned = epoch, assigned
                return
        except RefusedError as error:
            if error.error_name not in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "UNRELEASED_INSTANCE_ID"):
                raise
        if self.chance.random() < 0.6:
            self.room.resolve()
        # A client gives up first, and only then reads what is new.
        if self.chance.random() < 0.8:
            client.revoke()
            for topic, numbers in client.assigned.items():
                client.owned.setdefault(topic, set()).update(numbers)

    def leave(self, client: Client) -> None:
        if client.epoch <= 0 or client.member_id not in self.room.group.members:
            return
        if client.instance_id is not None and self.chance.random() < 0.7:
            self.room.leave(client, -2)
            self.made += 1
            client.member_id = f"m{self.made}"
        else:
            self.room.leave(client)
            self.clients.remove(client)

    def owned(self) -> Counter[tuple[UUID, int]]:
        return Counter(partition for client in self.clients for partition in partitions_of(client))

    def check_commits(self) -> None:
        """Check that a client may commit what it reads; what others read only in the member's own epoch."""
        group = self.room.group
        read = {partition: client for client in self.clients for partition in partitions_of(client)}
        for client in self.clients:
            member = group.members.get(client.member_id)
            if member is None:
                assert not client.owned
                continue
            for (topic, number), reader in read.items():
                try:
                    member.check_commit_epoch(client.epoch, topic, number)
                    is_refused = False
                except RefusedError:
                    is_refused = True
                assert not (is_refused and reader is client), "a commit is refused"
                assert is_refused or reader is client or client.epoch == member.member_epoch, "a stale commit counts"

    def settle(self) -> None:
        """Let everything come to rest; a clock that was set back has moved on."""
        room, clients = self.room, self.clients
        for client in clients:
            if client.member_id not in room.group.members:
                client.epoch, client.owned, client.assigned = 0, {}, {}
        for _ in range(2):
            for client in clients:
                try:
                    room.step(client)
                except RefusedError:
                    end_session(room, client)
                    room.step(client)
            room.resolve()
            room.now_ms += 30_000
        present = {client.member_id for client in clients}
        for member_id in list(room.group.members):
            if member_id not in present:
                room.expire(room.group.members[member_id])
        room.settle(clients, 2 * len(clients) + 4)

    def read(self) -> set[tuple[UUID, int]]:
        """Return the partitions that the clients want to read."""
        topics, reads = self.room.topics, set()
        for client in self.clients:
            matched = self.room.group.regexes.get(client.regex or "")
            wanted = {*client.names, *(matched.topics if matched is not None else ())}
            reads |= {(topics.id_of(name), number) for name in wanted for number in range(topics.counts.get(name, 0))}
        return reads


def history(seed: int) -> None:
    """Check at each step of a history what must always be true, and at its end that all is read."""
    one = History(seed)
    chance, room = one.chance, one.room
    latest_ms = room.now_ms
    for step in range(chance.randint(5, 60)):
        room.now_ms += chance.choice([0, 1, 1000, 5_000, 20_000, -30_000])
        latest_ms = max(latest_ms, room.now_ms)
        one.step()
        assert not [name for name, count in one.owned().items() if count > 1], "a partition has two owners"
        one.check_commits()
        if step % 10 == 0:
            for compacted in (False, True):
                assert facts(load(room, compacted=compacted).groups.get(GROUP)) == facts(room.state.groups.get(GROUP))
    if one.clients:
        # A clock that was set back keeps the target for as long, in Kafka too.
        room.now_ms = latest_ms + 100_000
        one.settle()
        assert one.owned().keys() == one.read()


def test_a_few_histories() -> None:
    for seed in range(3):
        history(seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seeds", [200, pytest.param(10_000, marks=pytest.mark.laboratory)])
def test_histories(seeds: int) -> None:
    for seed in range(seeds):
        history(seed)
