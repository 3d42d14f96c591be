"""Measures a large consumer group (KIP-848) beside Apache Kafka 4.3.1: time until it has settled, and the broker's CPU.

    python benchmarks/consumer_groups.py [--members 1000] [--partitions 10000] [--rounds 3] [--only odradek|kafka]

Members are heartbeats over a few connections, by one thread, each as Java's consumer sends them: every five seconds, as
the broker says, and at once after its assignment has changed, with what it has then. Each round has a new group.

    join       all join at once, until each has its share, in the same epoch
    steady     heartbeats that change nothing, for so many seconds
    replace    a tenth of them leave, and as many others join, until all have their share again
    shrink     a tenth of them leave, and nobody comes

The brokers take turns, round by round: what else the machine does then costs both alike. The first round is the one in
which a JVM compiles. The client's own CPU is told, too: where it is the larger part of
the time, the client was the limit.
"""

from __future__ import annotations

import argparse
import heapq
import os
import selectors
import shutil
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from odradek.broker.protocol import decode_response, encode_request
from odradek.testing.wire import WireClient
from peers import broker_load as load
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker

LIST_OFFSETS, FIND_COORDINATOR, CREATE_TOPICS, HEARTBEAT = 2, 10, 19, 68
VERSION = 1
LARGEST_TOPIC = 1000
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_S = 300.0
GROUP_ID_NOT_FOUND = 69
_SIZE = struct.Struct(">i")
_UNCHANGED: dict[str, Any] = {
    "rebalance_timeout_ms": -1,
    "instance_id": None,
    "rack_id": None,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}
"""What a heartbeat says of all that has not changed."""


def cpu_s(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Member:
    """A member: what it knows, and what it has."""

    __slots__ = ("connection", "epoch", "heard_s", "held", "is_gone", "member_id", "reports")

    def __init__(self, member_id: str, connection: Connection) -> None:
        self.member_id = member_id
        self.connection = connection
        self.epoch = 0
        self.heard_s = time.perf_counter()
        self.held: dict[UUID, list[int]] = {}
        self.reports = False
        self.is_gone = False

    @property
    def count(self) -> int:
        """How many partitions it has."""
        return sum(map(len, self.held.values()))


class Connection:
    """A connection, and the members whose answers are awaited on it, in their order."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.awaited: deque[Member] = deque()
        self._received = bytearray()

    def answers(self) -> Iterator[tuple[Member, Any]]:
        """Receive, and return the answers that are complete."""
        self._received += self.socket.recv(1 << 18)
        while len(self._received) >= 4:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            yield self.awaited.popleft(), decode_response(HEARTBEAT, VERSION, frame)[1]


class Group:
    """A group under load. It belongs to one thread; a context manager that closes its connections."""

    def __init__(self, port: int, group_id: str, topics: Sequence[str], partitions: int, connections: int) -> None:
        self._group_id = group_id
        self._topics = list(topics)
        self._partitions = partitions
        self._due: list[tuple[float, int, Member]] = []
        self._number = 0
        self._members: list[Member] = []
        self._epochs: Counter[int] = Counter()
        self._held = 0
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()
        self._connections: list[Connection] = []
        for _ in range(connections):
            connection = Connection(port)
            self._stack.callback(connection.socket.close)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._connections.append(connection)
        self.heartbeats = 0

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()
        self._selector.close()

    def join(self, count: int) -> None:
        """Let members join at once."""
        for _ in range(count):
            self._number += 1
            connection = self._connections[self._number % len(self._connections)]
            member = Member(f"member-{self._number:06}", connection)
            self._members.append(member)
            self._epochs[0] += 1
            self._later(member, 0)

    def leave(self, count: int) -> None:
        """Let the oldest members leave."""
        leaving, self._members = self._members[:count], self._members[count:]
        for member in leaving:
            self._epochs[member.epoch] -= 1
            self._held -= member.count
            member.is_gone = True
            self._send(member, {"member_epoch": -1})

    def end(self) -> None:
        """Let all members leave: when their sessions were over, that would cost the next round."""
        self.leave(len(self._members))
        self.run(lambda: not any(connection.awaited for connection in self._connections))

    @property
    def is_settled(self) -> bool:
        """Whether all members are in one epoch, and each has its share of the partitions."""
        share = self._partitions // len(self._members)
        return (
            self._held == self._partitions
            and +self._epochs == Counter({max(self._epochs): len(self._members)})
            and not any(member.reports or member.count not in (share, share + 1) for member in self._members)
        )

    def check(self) -> None:
        """Check that no partition is with two members."""
        held = [(topic, one) for member in self._members for topic, ones in member.held.items() for one in ones]
        assert len(held) == len(set(held)) == self._partitions

    def run(self, until: Callable[[], bool]) -> float:
        """Send heartbeats until something is so; return how many seconds it took."""
        begun = time.perf_counter()
        while not until():
            now = time.perf_counter()
            assert now - begun < TIMEOUT_S, f"not settled: {self._held} partitions, epochs {dict(+self._epochs)}"
            while self._due and self._due[0][0] <= now:
                member = heapq.heappop(self._due)[2]
                if not member.is_gone:
                    self._beat(member)
            wait_s = max(0.0, min(0.2, self._due[0][0] - now)) if self._due else 0.2
            for key, _ in self._selector.select(wait_s):
                for member, answer in key.data.answers():
                    self._take(member, answer)
        return time.perf_counter() - begun

    def _later(self, member: Member, seconds: float) -> None:
        self._number += 1
        heapq.heappush(self._due, (time.perf_counter() + seconds, self._number, member))

    def _beat(self, member: Member) -> None:
        fields: dict[str, Any] = {"member_epoch": member.epoch}
        if not member.epoch:
            fields |= {
                "rebalance_timeout_ms": 300_000,
                "subscribed_topic_names": self._topics,
                "topic_partitions": [],
            }
        elif member.reports:
            topics = [{"topic_id": topic, "partitions": numbers} for topic, numbers in member.held.items()]
            fields["topic_partitions"] = topics
            member.reports = False
        self._send(member, fields)

    def _send(self, member: Member, fields: dict[str, Any]) -> None:
        message = {"group_id": self._group_id, "member_id": member.member_id, **_UNCHANGED, **fields}
        member.connection.socket.sendall(encode_request(HEARTBEAT, VERSION, 0, "load", message))
        member.connection.awaited.append(member)
        self.heartbeats += 1

    def _take(self, member: Member, answer: Any) -> None:
        # A member is removed after 45 s: on a machine that is too busy, its heartbeats come too late.
        silent_s, member.heard_s = time.perf_counter() - member.heard_s, time.perf_counter()
        assert not answer.error_code, f"{member.member_id}, {silent_s:.1f} s after its last answer: {answer}"
        if member.is_gone:
            return
        self._epochs[member.epoch] -= 1
        member.epoch = answer.member_epoch
        self._epochs[member.epoch] += 1
        if answer.assignment is not None:
            held = {one.topic_id: list(one.partitions) for one in answer.assignment.topic_partitions}
            if held != member.held:
                self._held -= member.count
                member.held = held
                self._held += member.count
                member.reports = True
        self._later(member, 0 if member.reports else answer.heartbeat_interval.total_seconds())


class Cost(NamedTuple):
    """What a phase cost."""

    seconds: float
    cpu_s: float
    client_cpu_s: float
    heartbeats: int


Costs: TypeAlias = dict[str, Cost]
"""What each phase of a round cost."""


def create(port: int, partitions: int) -> list[str]:
    """Create topics of so many partitions together, and let each log be opened; their names."""
    names = []
    with WireClient("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
        for number, start in enumerate(range(0, partitions, LARGEST_TOPIC)):
            count = min(LARGEST_TOPIC, partitions - start)
            topic = {"name": f"topic-{number}", "num_partitions": count, "replication_factor": 1}
            topics = [{**topic, "assignments": [], "configs": []}]
            message = {"topics": topics, "timeout_ms": 120_000, "validate_only": False}
            answer = client.call(CREATE_TOPICS, 5, message).topics[0]
            assert not answer.error_code, answer
            names.append(f"topic-{number}")
        for name in names:
            load.topic_id_of(port, name)
        # Odradek opens a log when it is asked for, or looked at after half a minute; Kafka has done that by now.
        for number, name in enumerate(names):
            count = min(LARGEST_TOPIC, partitions - number * LARGEST_TOPIC)
            asked = [{"partition_index": one, "timestamp": -1} for one in range(count)]
            message = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": name, "partitions": asked}]}
            client.call(LIST_OFFSETS, 5, message)
    return names


def _wait_for_coordinator(port: int, group_id: str) -> None:
    with WireClient("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
        while client.call(FIND_COORDINATOR, 3, {"key": group_id, "key_type": 0}).error_code:
            time.sleep(0.1)
        # Until the group's partition is loaded, a heartbeat is refused; this one names a group that there is not.
        asked = {"group_id": group_id, "member_id": "m", "member_epoch": 1, **_UNCHANGED}
        while client.call(HEARTBEAT, VERSION, asked).error_code != GROUP_ID_NOT_FOUND:
            time.sleep(0.1)


def is_over(end: float) -> bool:
    """Return whether a time has come."""
    return time.perf_counter() >= end


class Meter:
    """Runs the phases of a round, and prints what each cost."""

    def __init__(self, broker: KafkaBroker | OdradekBroker, number: int, group: Group) -> None:
        self._broker = broker
        self._number = number
        self._group = group
        self.costs: Costs = {}

    def run(self, name: str, until: Callable[[], bool]) -> None:
        """Run a phase until something is so."""
        pid, heartbeats = self._broker.pid, self._group.heartbeats
        cpu, client_cpu = cpu_s(pid), time.process_time()
        seconds = self._group.run(until)
        cost = Cost(seconds, cpu_s(pid) - cpu, time.process_time() - client_cpu, self._group.heartbeats - heartbeats)
        self.costs[name] = cost
        print(
            f"| {self._broker.name} | {self._number} | {name} | {cost.seconds:.1f} | {cost.cpu_s:.2f} "
            f"| {cost.client_cpu_s:.2f} | {cost.heartbeats:,} |",
            flush=True,
        )

    def settle(self, name: str) -> None:
        """Run a phase until the group has settled, and check what members have then."""
        self.run(name, lambda: self._group.is_settled)
        self._group.check()


def measure(
    broker: KafkaBroker | OdradekBroker, topics: Sequence[str], number: int, arguments: argparse.Namespace
) -> Costs:
    """Run a round on a broker; return what each phase cost."""
    group_id, tenth = f"group-{number}", arguments.members // 10
    _wait_for_coordinator(broker.port, group_id)
    with Group(broker.port, group_id, topics, arguments.partitions, arguments.connections) as group:
        meter = Meter(broker, number, group)
        group.join(arguments.members)
        meter.settle("join")
        end = time.perf_counter() + arguments.steady
        meter.run("steady", partial(is_over, end))
        group.leave(tenth)
        group.join(tenth)
        meter.settle("replace")
        group.leave(tenth)
        meter.settle("shrink")
        group.end()
    return meter.costs


def measure_all(folder: Path, stack: ExitStack, arguments: argparse.Namespace) -> dict[str, list[Costs]]:
    """Run the rounds on the brokers in turn; return what they cost by the broker's name."""
    brokers: list[KafkaBroker | OdradekBroker] = []
    if arguments.only != "kafka":
        brokers.append(OdradekBroker(folder / "odradek"))
    if arguments.only != "odradek" and shutil.which("java"):
        tools = stack.enter_context(KafkaTools())
        brokers.append(KafkaBroker(tools, folder / "kafka", heap="1g", jvm_options=()))
    topics = {}
    for broker in brokers:
        # To close 10,000 logs takes a while.
        stack.callback(broker.kill)
        broker.start()
        topics[broker.name] = create(broker.port, arguments.partitions)
    found: dict[str, list[Costs]] = {broker.name: [] for broker in brokers}
    for number in range(1, arguments.rounds + 1):
        for broker in brokers:
            found[broker.name].append(measure(broker, topics[broker.name], number, arguments))
    return found


def main() -> None:
    """Print what each phase cost, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steady", type=float, default=15)
    parser.add_argument("--only", choices=["odradek", "kafka"])
    arguments = parser.parse_args()
    print("| broker | round | phase | time s | broker's CPU s | client's CPU s | heartbeats |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    with TemporaryDirectory() as made, ExitStack() as stack:
        all_rounds = measure_all(Path(made), stack, arguments)
    if len(all_rounds) < 2:
        return
    print("\n| round | phase | Odradek: time s | CPU s | Kafka: time s | CPU s | CPU, ratio |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for number, (ours, theirs) in enumerate(zip(all_rounds["odradek"], all_rounds["kafka"], strict=True), 1):
        for name, cost in ours.items():
            other = theirs[name]
            ratio = f"{cost.cpu_s / other.cpu_s:.2f}" if other.cpu_s else ""
            both = [f"{one.seconds:.1f} | {one.cpu_s:.2f}" for one in (cost, other)]
            print(f"| {number} | {name} | {both[0]} | {both[1]} | {ratio} |")
        sums = [sum(cost.cpu_s for cost in one.values()) for one in (ours, theirs)]
        print(f"| {number} | all | | {sums[0]:.2f} | | {sums[1]:.2f} | {sums[0] / sums[1]:.2f} |")


if __name__ == "__main__":
    main()
