"""Share groups (KIP-932): what heartbeats change, member after member."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.modern import GroupRecord, State
from odradek.coordination.groups.replay import Group, GroupState
from odradek.coordination.groups.share import ShareGroup, ShareKind, share_topics_record
from odradek.coordination.groups.share_topics import ShareTopics, TopicState
from odradek.messages.coordinators.coordinator_records import decode
from odradek.messages.coordinators.group_records import TYPES
from peers.consumer_groups import GROUP, topic_id
from peers.share_groups import ShareClient, ShareRoom

T, U = topic_id("t"), topic_id("u")


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as caught:
        action()
    return caught.value.error_name


def kinds(records: Iterable[GroupRecord]) -> list[tuple[int, bool]]:
    return [(int(record.type), record.value is not None) for record in records]


def counts(*clients: ShareClient) -> list[int]:
    return sorted(sum(map(len, client.assigned.values())) for client in clients)


def test_partitions_are_initialized_before_they_are_assigned() -> None:
    room, one = ShareRoom({"t": 3}), ShareClient("a", ["t"])
    records = room.beat(one).records
    assert kinds(records) == [(10, True), (11, True), (13, True), (12, True), (14, True), (15, True)]
    assert (one.epoch, one.assigned, room.group.state) == (2, {}, State.STABLE)
    assert room.beat(one).records == []
    room.initialize()
    assert kinds(room.beat(one).records) == [(11, True), (13, True), (12, True), (14, True)]
    assert (one.epoch, one.assigned) == (3, {T: {0, 1, 2}})
    assert room.beat(one).records == []


def test_a_heartbeat_that_says_nothing_new_is_told_no_assignment() -> None:
    room, one = ShareRoom({"t": 3}), ShareClient("a", ["t"])
    room.settle([one])
    assert not room.beat(one, says_all=False).shows_assignment
    assert room.beat(one).shows_assignment


def test_share_states_that_cannot_be_made_are_tried_again_at_once() -> None:
    room, one = ShareRoom({"t": 1}), ShareClient("a", ["t"])
    room.beat(one)
    room.initialize(succeeds=False)
    assert room.group.topics == ShareTopics({}, {}, {})
    assert kinds(room.beat(one).records) == [(15, True)]
    room.settle([one])
    assert one.assigned == {T: {0}}


def test_share_states_that_take_too_long_are_tried_again() -> None:
    room, one = ShareRoom({"t": 1}), ShareClient("a", ["t"])
    room.beat(one)
    room.now_ms += 29_999
    assert room.beat(one).records == []
    room.now_ms += 1
    assert kinds(room.beat(one).records) == [(15, True)]
    assert len(room.lacking) == 2


def test_partitions_of_a_topic_that_was_deleted_meanwhile_are_not_initialized() -> None:
    room, one = ShareRoom({"t": 1, "u": 1}), ShareClient("a", ["t", "u"])
    room.beat(one)
    room.delete_topic("t")
    room.initialize()
    assert room.initialized() == {U: {0}}


def test_members_share_what_there_is() -> None:
    room = ShareRoom({"t": 2})
    clients = [ShareClient(f"m{number}", ["t"]) for number in range(5)]
    room.settle(clients)
    assert counts(*clients) == [1, 1, 1, 1, 2]
    held = Counter(number for client in clients for number in client.assigned[T])
    assert held == {0: 3, 1: 3}


def test_members_get_partitions_of_their_own_if_there_are_enough() -> None:
    room = ShareRoom({"t": 7})
    clients = [ShareClient(f"m{number}", ["t"]) for number in range(3)]
    room.settle(clients)
    assert counts(*clients) == [2, 2, 3]
    assert sum(map(len, (client.assigned[T] for client in clients))) == 7


def test_the_target_counts_for_an_interval() -> None:
    room, one, two = ShareRoom({"t": 2}, interval_ms=60_000), ShareClient("a", ["t"]), ShareClient("b", ["t"])
    room.settle([one])
    assert one.assigned == {}
    room.now_ms += 60_000
    room.settle([one])
    epoch = room.group.target_epoch
    room.beat(two)
    assert (room.group.target_epoch, room.group.epoch, two.assigned) == (epoch, epoch + 1, {})
    room.now_ms += 60_000
    room.settle([one, two])
    assert counts(one, two) == [1, 1]


def test_a_clock_that_was_set_back_does_not_hold_up_assignments() -> None:
    room, one, two = ShareRoom({"t": 2}, interval_ms=60_000), ShareClient("a", ["t"]), ShareClient("b", ["t"])
    room.beat(one)
    room.initialize()
    room.now_ms += 60_000
    room.settle([one])
    room.now_ms -= 86_400_000
    room.settle([one, two])
    assert counts(one, two) == [1, 1]


def test_a_member_that_leaves_is_removed_by_tombstones_and_an_epoch() -> None:
    room, one, two = ShareRoom({"t": 4}), ShareClient("a", ["t"]), ShareClient("b", ["t"])
    room.settle([one, two])
    epoch = room.group.epoch
    assert kinds(room.remove("b").records) == [(14, False), (13, False), (10, False), (11, True)]
    assert room.group.epoch == epoch + 1
    room.settle([one])
    assert counts(one) == [4]
    room.remove("a")
    assert room.group.state is State.EMPTY
    assert refusal(lambda: room.remove("a")) == "UNKNOWN_MEMBER_ID"


def test_epochs() -> None:
    room, one = ShareRoom({"t": 1}), ShareClient("a", ["t"])
    room.settle([one])
    epoch = one.epoch
    for known, error in ((epoch + 1, "FENCED_MEMBER_EPOCH"), (epoch - 2, "FENCED_MEMBER_EPOCH")):
        one.epoch = known
        assert refusal(lambda: room.beat(one)) == error
        assert one.epoch == 0
    one.epoch = epoch - 1
    room.beat(one)
    assert one.epoch == epoch
    assert refusal(lambda: room.beat(ShareClient("b", ["t"], epoch=1))) == "UNKNOWN_MEMBER_ID"
    # A member that joins again keeps what it has.
    one.epoch = 0
    assert (room.beat(one).records, one.epoch) == ([], epoch)


def test_a_full_group_takes_no_more_members() -> None:
    room, one = ShareRoom({"t": 2}, max_size=1), ShareClient("a", ["t"])
    room.settle([one])
    assert refusal(lambda: room.beat(ShareClient("b", ["t"]))) == "GROUP_MAX_SIZE_REACHED"
    room.beat(one)


def test_a_topic_that_grows_is_made_or_is_deleted() -> None:
    room, one = ShareRoom({"t": 2}), ShareClient("a", ["t", "u"])
    room.settle([one])
    room.topics.put("t", 3)
    room.topics.put("u", 1)
    room.settle([one])
    assert one.assigned == {T: {0, 1, 2}, U: {0}}
    epoch = room.group.epoch
    room.topics.put("v", 1)
    room.settle([one])
    assert room.group.epoch == epoch
    room.delete_topic("t")
    room.settle([one])
    assert (one.assigned, room.initialized()) == ({U: {0}}, {U: {0}})
    # A topic of the same name is another topic.
    room.topics.put("t", 1)
    room.settle([one])
    assert one.assigned == {room.topics.id_of("t"): {0}, U: {0}}


def test_other_names_count_at_once() -> None:
    room, one = ShareRoom({"t": 1, "u": 1}, interval_ms=60_000), ShareClient("a", ["t"])
    room.beat(one)
    room.initialize()
    room.now_ms += 60_000
    room.settle([one])
    assert one.assigned == {T: {0}}
    one.names = ["u"]
    room.beat(one)
    assert one.assigned == {}


def test_partitions_that_a_damaged_log_has_are_not_assigned() -> None:
    room, one = ShareRoom({"t": 2}), ShareClient("a", ["t"])
    room.settle([one])
    room.write([share_topics_record(GROUP, ShareTopics({}, {T: TopicState("t", frozenset([0, 7, -1]), 0)}))])
    room.topics.put("u", 1)
    one.names = ["t", "u"]
    room.beat(one)
    assert one.assigned == {T: {0}}


def test_what_clients_may_do_with_it() -> None:
    room = ShareRoom({"t": 1})
    room.settle([ShareClient("a", ["t"])])
    assert refusal(room.group.check_delete) == "NON_EMPTY_GROUP"
    assert refusal(room.group.check_offset_delete) == "GROUP_ID_NOT_FOUND"
    room.remove("a")
    room.group.check_delete()


def test_tombstones_remove_all_of_a_group() -> None:
    room = ShareRoom({"t": 2})
    room.settle([ShareClient("a", ["t"]), ShareClient("b", ["t"])])
    assert {record.encoded()[0] for record in room.log} == {key for key, _ in room.group.tombstones()}
    order = [key[1] for key, _ in room.group.tombstones()]
    assert list(dict.fromkeys(order)) == [14, 13, 12, 10, 15, 11]
    state = loaded([*(record.encoded() for record in room.log), *room.group.tombstones()])
    assert state.groups == {}


# -- topics


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (ShareTopics(), ShareTopics({T: TopicState("t", {0, 1}, 5)})),
        (
            ShareTopics({T: TopicState("t", {2}, 1)}, {U: TopicState("u", {0}, 1)}, {T: "t", U: "u"}),
            ShareTopics({T: TopicState("t", {0, 1, 2}, 5)}, {U: TopicState("u", {0}, 1)}, {U: "u"}),
        ),
    ],
)
def test_topics_that_are_begun(topics: ShareTopics, expected: ShareTopics) -> None:
    assert topics.begun({T: TopicState("t", {0, 1}, 5)}) == expected


def test_topics_go_step_by_step() -> None:
    begun = ShareTopics().begun({T: TopicState("t", frozenset({0, 1}), 5)})
    some = begun.done({T: {0}})
    assert some == ShareTopics({T: TopicState("t", {1}, 5)}, {T: TopicState("t", {0}, 5)})
    done = some.done({T: {1}})
    assert done == ShareTopics({}, {T: TopicState("t", {0, 1}, 5)})
    assert begun.failed({T: {0, 1}}) == ShareTopics({}, {})
    going = done.going({T: "t"})
    assert going == ShareTopics({}, {}, {T: "t"})
    assert going.gone({T}) == ShareTopics({}, {}, {})
    for topics in (begun, done, going):
        assert topics.holds({T, U})
        assert not topics.holds({U})
        assert topics.without({T}) == ShareTopics({}, {}, {})
        assert ShareTopics.of(topics.value(), 5) == topics


# -- histories


def loaded(encoded: Iterable[tuple[bytes, bytes | None]]) -> GroupState:
    state = GroupState(lambda: 0)
    for key, value in encoded:
        number, about, _, content = decode(TYPES, key, value)
        state.replay_share(GroupRecord(ShareKind(number), about, content))
    return state


def copy_of(room: ShareRoom, *, compacted: bool) -> Group | None:
    """Return the group as it is loaded from its log, as bytes."""
    encoded = [record.encoded() for record in room.log]
    if compacted:
        last = {key: place for place, (key, _) in enumerate(encoded)}
        encoded = [one for place, one in enumerate(encoded) if last[one[0]] == place]
    return loaded(encoded).groups.get(GROUP)


def facts(group: Group | None) -> object:
    return isinstance(group, ShareGroup) and (
        group.epoch, group.metadata_hash, group.target_epoch, group.target_ms, dict(sorted(group.members.items())),
        group.targets, group.names, group._shared, group.topics and group.topics.value(),
    )  # fmt: skip


def check(room: ShareRoom) -> None:
    """Check what must be true at any time: members have only what they read, and what is or was initialized."""
    assert facts(copy_of(room, compacted=False)) == facts(room.state.groups.get(GROUP))
    assert facts(copy_of(room, compacted=True)) == facts(room.state.groups.get(GROUP))
    shared = Counter(
        (topic, number)
        for target in room.group.targets.values()
        for topic, numbers in target.items()
        for number in numbers
    )
    known = {(topic, n): count for topic, counts in room.group._shared.items() for n, count in counts.items()}
    assert shared == known


NAMES = [f"t{number}" for number in range(4)]


class History:
    """Members come, go, vanish and change what they read, at random."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        counts = {name: chance.randint(1, 6) for name in NAMES[:3]}
        self.room = ShareRoom(counts, interval_ms=chance.choice([0, 1000, 20_000]))
        self.clients: list[ShareClient] = []
        self.made = 0

    def step(self) -> None:
        chance, room, clients = self.chance, self.room, self.clients
        action = chance.choice(["join", "beat", "beat", "beat", "beat", "leave", "vanish", "topics", "reads", "state"])
        match action:
            case "join" if len(clients) < 7:
                self.made += 1
                clients.append(ShareClient(f"m{self.made}", chance.sample(NAMES, chance.randint(1, 4))))
            case "beat" if clients:
                client = chance.choice(clients)
                try:
                    room.beat(client, says_all=chance.random() < 0.5)
                except RefusedError as error:
                    if error.error_name not in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
                        raise
            case "leave" | "vanish" if clients:
                client = chance.choice(clients)
                if client.member_id in room.group.members:
                    room.remove(client.member_id)
                    if action == "leave":
                        # One that vanishes learns it with its next heartbeat.
                        clients.remove(client)
            case "topics":
                name, count = chance.choice(NAMES), chance.randint(0, 7)
                if count:
                    room.topics.put(name, count)
                else:
                    room.delete_topic(name)
            case "reads" if clients:
                client = chance.choice(clients)
                client.names = chance.sample(NAMES, chance.randint(1, 4))
                client.epoch = 0
            case "state":
                room.initialize(succeeds=chance.random() < 0.7)

    def settle(self) -> None:
        """Let everything come to rest."""
        room, clients = self.room, self.clients
        room.lacking.clear()
        for client in clients:
            client.epoch = 0
            room.beat(client)
        for member_id in set(room.group.members) - {client.member_id for client in clients}:
            room.remove(member_id)
        for _ in range(2):
            room.initialize()
            room.now_ms += 30_000
            for client in clients:
                room.beat(client)
        room.now_ms += 30_000
        room.settle(clients)

    def check_assignment(self) -> None:
        """Check that each member has partitions of what it reads, and that each partition that is read has a member."""
        topics = self.room.topics
        for client in self.clients:
            present = [(name, topics.id_of(name)) for name in client.names if name in topics.counts]
            reads = {topic: set(range(topics.counts[name])) for name, topic in present}
            assert all(topic in reads and numbers <= reads[topic] for topic, numbers in client.assigned.items())
            assert bool(client.assigned) == bool(reads)
        wanted = {
            (topics.id_of(name), number)
            for client in self.clients
            for name in client.names
            for number in range(topics.counts.get(name, 0))
        }
        held = {(t, number) for client in self.clients for t, numbers in client.assigned.items() for number in numbers}
        assert held == wanted
        if len({frozenset(client.names) for client in self.clients}) == 1:
            sizes = counts(*self.clients)
            assert sizes[-1] - sizes[0] <= 1


def history(seed: int) -> None:
    """Check at some steps of a history what must always be true, and at its end that all is shared."""
    one = History(seed)
    chance, room = one.chance, one.room
    latest_ms = room.now_ms
    for step in range(chance.randint(5, 60)):
        room.now_ms += chance.choice([0, 1, 1000, 5_000, 20_000, -30_000])
        latest_ms = max(latest_ms, room.now_ms)
        one.step()
        if step % 10 == 0:
            check(room)
    check(room)
    if one.clients:
        # A clock that was set back keeps the target for as long, in Kafka too.
        room.now_ms = latest_ms + 100_000
        one.settle()
        check(room)
        one.check_assignment()


def test_a_few_histories() -> None:
    for seed in range(3):
        history(seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seeds", [300, pytest.param(10_000, marks=pytest.mark.laboratory)])
def test_histories(seeds: int) -> None:
    for seed in range(seeds):
        history(seed)
