"""Measures the broker beside Apache Kafka 4.3.1, with Kafka's own performance tools.

    python benchmarks/broker.py [--megabytes 256] [--latencies 2000] [--idle 10000] [--only odradek|kafka|secured|tls]

The two take turns, in one run, on one machine, each with a folder of its own. `CPU s/GB` is the broker's processor time
(user and system) for each GB of records, `memory` its resident set: idle, and the most of it. Throughput is limited by
the Java client where the broker is faster than it; what is called a load sends requests that were made before.

`--only secured` starts Odradek's broker twice as it is and twice with SCRAM, an authorizer and 1,000 ACLs, and has the
four take turns; the client's time does not count.

`--only tls` has one connection fetch 1 MB at a time from both brokers, in turn, over TLS and without.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


import odradek
from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.errors import OdradekError
from odradek.testing import allow, deny
from odradek.testing.security import credentials
from peers import broker_load as load
from peers.bare_server import PART_BYTES, bare_server
from peers.certificates import make_certificate
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker
from peers.process import free_port

MB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_S = 900
_WAITS_S = 5.0
ACLS = 1000


class Row(NamedTuple):
    """What one tool measured."""

    what: str
    megabytes_per_s: float
    p99_ms: float | None
    cpu_s_per_gb: float


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def measured(pid: int, size_bytes: int) -> Iterator[Callable[[], float]]:
    before = cpu_s(pid)
    yield lambda: (cpu_s(pid) - before) / size_bytes * 1e9


def produce(
    tools: KafkaTools, broker: KafkaBroker | OdradekBroker, topic: str, count: int, record_bytes: int, batch_bytes: int
) -> Row:
    props = [
        f"bootstrap.servers={broker.bootstrap_servers}",
        f"batch.size={batch_bytes}",
        f"linger.ms={5 if batch_bytes < MB // 2 else 50}",
        "max.request.size=2097152",
        "buffer.memory=67108864",
    ]
    with measured(broker.pid, count * record_bytes) as cpu:
        result = tools.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(record_bytes)),
            *("--throughput", "-1", "--producer-props", *props),
            timeout_s=TIMEOUT_S,
        ).check()
        per_gb = cpu()
    last = result.stdout.strip().splitlines()[-1]
    rate, p99 = re.search(r"\(([\d.]+) MB/sec\)", last), re.search(r"([\d.]+) ms 99th", last)
    assert rate is not None, last
    assert p99 is not None, last
    return Row(f"produce {record_bytes} B, batches of {batch_bytes >> 10} KB", float(rate[1]), float(p99[1]), per_gb)


def consume(tools: KafkaTools, broker: KafkaBroker | OdradekBroker, topic: str, count: int, record_bytes: int) -> Row:
    with measured(broker.pid, count * record_bytes) as cpu:
        result = tools.run(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--num-records", str(count)),
            *("--hide-header", "--timeout", "60000"),
            timeout_s=TIMEOUT_S,
        ).check()
        per_gb = cpu()
    columns = [column.strip() for column in result.stdout.strip().splitlines()[-1].split(",")]
    return Row(f"consume {record_bytes} B", float(columns[8]), None, per_gb)


def latency(tools: KafkaTools, broker: KafkaBroker | OdradekBroker, topic: str, count: int) -> str:
    result = tools.run(
        "org.apache.kafka.tools.EndToEndLatency",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--num-records", str(count)),
        *("--producer-acks", "1", "--record-size", "100"),
        timeout_s=TIMEOUT_S,
    ).check()
    found = re.search(r"Percentiles: 50th = ([\d.]+), 99th = ([\d.]+), 99.9th = ([\d.]+)", result.stdout)
    assert found is not None, result.stdout
    return f"{found[1]} / {found[2]} / {found[3]} ms (50th / 99th / 99.9th)"


def loads(tools: KafkaTools, broker: KafkaBroker | OdradekBroker, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure what Kafka's own tools do not."""
    port, found = broker.port, dict[str, float]()
    create(tools, broker, "load", partitions=1)
    create(tools, broker, "many", partitions=1000)
    create(tools, broker, "fetched", partitions=1)
    topic_id, many_id = load.topic_id_of(port, "load"), load.topic_id_of(port, "many")
    for connections in (1, 50):
        for record_bytes, batch_bytes in ((100, 16 << 10), (1000, 16 << 10), (1000, 1 << 20)):
            frame, size = load.produce_frame(topic_id, 0, record_bytes, batch_bytes)
            count = max(connections, arguments.megabytes * MB // size)
            what = f"load: {connections} x produce {record_bytes} B, batches of {batch_bytes >> 10} KB"
            with measured(broker.pid, count * size) as cpu:
                seconds = load.produce(port, frame, count, connections)
                found[f"{what}, CPU s/GB"] = cpu()
            found[f"{what}, MB/s"] = count * size / seconds / 1e6
    found |= limits(broker, load.topic_id_of(port, "fetched"), arguments)
    frame, _ = load.produce_frame(topic_id, 0, 100, 1000)
    create(tools, broker, "awaited", partitions=1)
    awaited_id = load.topic_id_of(port, "awaited")
    waited, _ = load.produce_frame(awaited_id, 0, 100, 1000)
    for min_bytes in (1 << 30, 1):
        produced, answered = load.produce_beside_fetches(port, awaited_id, waited, 900, min_bytes, _WAITS_S)
        what = f"900 fetches wait for {min_bytes:,} bytes"
        found[f"{what}, produce requests/s"] = produced / _WAITS_S
        found[f"{what}, fetches/s"] = answered / _WAITS_S
    median, p99 = load.latencies_ms(port, frame, 500, 10)
    found["500 produce requests a second, median ms"] = median
    found["500 produce requests a second, 99th percentile ms"] = p99
    found["1,000 partitions in one consumer, ms for a fetch"] = load.fetch_of_many(port, many_id, 1000, 500)
    found["most memory under load, MB"] = memory_mb(broker.pid, "VmHWM")
    before_mb = memory_mb(broker.pid, "VmRSS")
    with load.idle_connections(port, arguments.idle):
        found[f"{arguments.idle:,} idle connections, KB each"] = (
            (memory_mb(broker.pid, "VmRSS") - before_mb) * 1024 / arguments.idle
        )
        found[f"{arguments.idle:,} idle connections, ms for a request"] = load.call_ms(port, 200)
    return found


def limits(broker: KafkaBroker | OdradekBroker, topic_id: UUID, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure 1 MB at a time, in turn with processes that do nothing but move these bytes."""
    frame, size = load.produce_frame(topic_id, 0, 1000, MB)
    count, found = arguments.megabytes, dict[str, float]()
    with TemporaryDirectory() as folder:
        for what in ("receive", "checksum"):
            with bare_server(what, Path(folder) / what) as (pid, port), measured(pid, count * size) as cpu:
                load.produce(port, frame, count, 1)
                found[f"a bare process, to {what} and write, CPU s/GB"] = cpu()
        load.produce(broker.port, frame, count, 1)
        offsets = [number * (size // 1000) for number in range(count)]
        # The first request has code loaded.
        load.fetch(broker.port, topic_id, offsets[:1])
        with measured(broker.pid, count * size) as cpu:
            load.fetch(broker.port, topic_id, offsets)
            found["load: 1 x fetch 1 MB, CPU s/GB"] = cpu()
        with bare_server("send", Path(folder) / "receive") as (pid, port), measured(pid, count * PART_BYTES) as cpu:
            load.fetch(port, topic_id, offsets)
            found["a bare process, to send by sendfile, CPU s/GB"] = cpu()
    return found


def first_metadata_s(broker: KafkaBroker | OdradekBroker) -> float:
    """Start a broker; return how long it took until Metadata told its topics."""
    answered: list[float] = []

    def ask() -> None:
        while not answered and time.perf_counter() < begun + TIMEOUT_S:
            try:
                if load.metadata(broker.port).topics:
                    answered.append(time.perf_counter() - begun)
            except (OSError, OdradekError):
                time.sleep(0.002)

    begun = time.perf_counter()
    asking = threading.Thread(target=ask)
    asking.start()
    broker.start()
    asking.join()
    return answered[0]


def measure(tools: KafkaTools, broker: KafkaBroker | OdradekBroker, arguments: argparse.Namespace) -> dict[str, float]:
    with broker:
        create(tools, broker, "hundred", partitions=100)
        broker.stop()
        found = {"start to the first Metadata answer with 100 partitions, s": first_metadata_s(broker)}
        found["memory when idle, MB"] = memory_mb(broker.pid, "VmRSS")
        rows = []
        for record_bytes in (100, 1000):
            count = arguments.megabytes * MB // record_bytes
            for batch_bytes in (16 << 10, 1 << 20):
                topic = f"b{record_bytes}-{batch_bytes}"
                create(tools, broker, topic)
                rows.append(produce(tools, broker, topic, count, record_bytes, batch_bytes))
            rows.append(consume(tools, broker, f"b{record_bytes}-{1 << 20}", count, record_bytes))
        create(tools, broker, "latency")
        print(f"\n### {broker.name}\n")
        print("| | MB/s | p99 ms | broker's CPU s/GB |\n| --- | ---: | ---: | ---: |")
        for row in rows:
            p99 = "" if row.p99_ms is None else f"{row.p99_ms:.0f}"
            print(f"| {row.what} | {row.megabytes_per_s:.0f} | {p99} | {row.cpu_s_per_gb:.2f} |", flush=True)
            found[f"{row.what}, CPU s/GB"] = row.cpu_s_per_gb
        print(f"\nend to end: {latency(tools, broker, 'latency', arguments.latencies)}", flush=True)
        return found | loads(tools, broker, arguments)


def prepared(folder: Path, *, is_secured: bool) -> tuple[OdradekBroker, UUID]:
    """Return a broker with a topic, and its id; a secured one asks for logins, and has a user and 1,000 ACLs."""
    broker = OdradekBroker(folder)
    with odradek.open(folder) as logs:
        topic_id = logs.create_topic("load").topic_id
        assert topic_id is not None
        if is_secured:
            users = ("reader", "writer", *(f"user{number}" for number in range(246)))
            rules = [allow("load", "WRITE", topic="lo", prefixed=True), allow("load", "READ", topic="load")]
            rules += [allow("*", "DESCRIBE", topic="*"), deny("load", "ALL", topic="secret")]
            for user in users:
                rules += [allow(user, "READ", topic=f"{user}-", prefixed=True), deny(user, "WRITE", topic="load")]
                rules += [allow(user, "READ", group=user), allow(user, "WRITE", topic=f"{user}-out")]
            logs.metadata.create_acls(rules[:ACLS])
            logs.metadata.alter_scram_credentials(credentials({"load": "secret"}))
    if is_secured:
        broker.config |= {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{broker.port}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "authorizer.class.name": STANDARD_AUTHORIZER,
        }
    return broker, topic_id


def exact_cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text(encoding="ascii").split()[0]) for path in tasks) / 1e9


def secured(folder: Path, rounds: int) -> None:
    """Measure what logins and ACLs cost: the processor time of a record, of brokers that take turns."""
    login = load.logged_in("load", "secret")
    spent: dict[str, tuple[list[float], list[float]]] = {}
    # Two of each, in this order: a broker that is started later costs up to a tenth more, whatever it does.
    kinds = (False, True, True, False)
    with ExitStack() as stack:
        brokers = []
        for number, is_secured in enumerate(kinds):
            broker, topic_id = prepared(folder / str(number), is_secured=is_secured)
            brokers.append((stack.enter_context(broker), topic_id, login if is_secured else load.plain, is_secured))
        for number in range(rounds + 1):
            for broker, topic_id, connect, is_secured in brokers if number % 2 else reversed(brokers):
                for what, count, per_request, act in loads_of(broker.port, topic_id, connect):
                    before = exact_cpu_s(broker.pid)
                    act()
                    us = (exact_cpu_s(broker.pid) - before) / (count * per_request) * 1e6
                    # The first round has code loaded.
                    if number:
                        spent.setdefault(what, ([], []))[is_secured].append(us)
    print(
        "| us of processor time for a record | without | SCRAM and 1,000 ACLs | ratio |\n| --- | ---: | ---: | ---: |"
    )
    for what, (one, other) in spent.items():
        ratio = median(b / a for a, b in zip(_pairs(one), _pairs(other), strict=True))
        print(f"| {what} | {median(one):.2f} | {median(other):.2f} | {ratio:.3f} |")


def _pairs(numbers: Sequence[float]) -> list[float]:
    return [first + second for first, second in zip(numbers[::2], numbers[1::2], strict=True)]


def loads_of(port: int, topic_id: UUID, connect: load.Connect) -> Iterator[tuple[str, int, int, Callable[[], object]]]:
    """Yield what is measured: its name, how many requests it has, records in each, and what sends them."""
    for record_bytes, batch_bytes, count in ((100, 200, 5000), (100, 16 << 10, 3000), (1000, 1 << 20, 100)):
        frame, size = load.produce_frame(topic_id, 0, record_bytes, batch_bytes)
        records = size // record_bytes
        what = f"produce, {records} of {record_bytes} B in a request"
        yield what, count, records, partial(load.produce, port, frame, count, 1, connect)
    for most_bytes, count in ((1, 5000), (1 << 20, 500)):
        what = f"fetch, {'one batch' if most_bytes == 1 else '1 MB'} in a request (for a request)"
        yield what, count, 1, partial(load.fetch, port, topic_id, [0] * count, most_bytes, connect)


def tls(tools: KafkaTools, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure fetches of 1 MB over TLS and without, of both brokers in turn."""
    certificate = make_certificate("server")
    context = ssl.create_default_context(cadata=certificate.certificate_pem)
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.write(folder)[0]),
    }

    def encrypted(port: int) -> socket.socket:
        return context.wrap_socket(load.plain(port), server_hostname="localhost")

    brokers: list[KafkaBroker | OdradekBroker] = [
        OdradekBroker(folder / "ours", settings),
        KafkaBroker(tools, folder / "theirs", settings, heap="1g", jvm_options=()),
    ]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        served = []
        for broker in brokers:
            port = free_port()
            broker.config["listeners"] += f",SSL://127.0.0.1:{port}"
            stack.enter_context(broker)
            create(tools, broker, "fetched")
            topic_id = load.topic_id_of(broker.port, "fetched")
            frame, size = load.produce_frame(topic_id, 0, 1000, MB)
            load.produce(broker.port, frame, arguments.megabytes, 1)
            served.append((broker, topic_id, {"PLAINTEXT": (broker.port, load.plain), "TLS": (port, encrypted)}))
        offsets = [number * (size // 1000) for number in range(arguments.megabytes)]
        for number in range(arguments.rounds + 2):
            for broker, topic_id, listeners in served:
                for name, (port, connect) in listeners.items():
                    before = exact_cpu_s(broker.pid)
                    seconds, received = load.fetch(port, topic_id, offsets, connect=connect)
                    cpu = (exact_cpu_s(broker.pid) - before) / received * 1e9
                    # In the first rounds code is loaded and compiled.
                    if number > 1:
                        found.setdefault((name, broker.name), []).append((received / seconds / 1e6, cpu))
    print("| fetches of 1 MB | Odradek: MB/s | CPU s/GB | Kafka: MB/s | CPU s/GB | CPU, ratio |")
    print("| --- |" + " ---: |" * 5)
    for name in ("PLAINTEXT", "TLS"):
        (rate, cpu), (other_rate, other_cpu) = (
            [median(one) for one in zip(*found[name, broker.name], strict=True)] for broker in brokers
        )
        print(f"| {name} | {rate:.0f} | {cpu:.2f} | {other_rate:.0f} | {other_cpu:.2f} | {cpu / other_cpu:.2f} |")


def create(tools: KafkaTools, broker: KafkaBroker | OdradekBroker, topic: str, partitions: int = 1) -> None:
    tools.topics(broker.bootstrap_servers, "--create", "--topic", topic, "--partitions", str(partitions)).check()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--latencies", type=int, default=2000)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--only", choices=("odradek", "kafka", "secured", "tls"))
    parser.add_argument("--rounds", type=int, default=24)
    arguments = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    if arguments.only == "secured":
        with TemporaryDirectory() as folder:
            secured(Path(folder), arguments.rounds)
        return
    if arguments.only == "tls":
        with KafkaTools() as tools, TemporaryDirectory() as folder:
            tls(tools, Path(folder), arguments)
        return
    with KafkaTools() as tools, TemporaryDirectory() as folder:
        brokers: list[KafkaBroker | OdradekBroker] = [
            OdradekBroker(Path(folder) / "ours"),
            KafkaBroker(tools, Path(folder) / "theirs", heap="1g", jvm_options=()),
        ]
        measured_of = {
            broker.name: measure(tools, broker, arguments)
            for broker in brokers
            if arguments.only in (None, broker.name)
        }
    print(f"\n| | {' | '.join(measured_of)} | ratio |\n| --- |{' ---: |' * (len(measured_of) + 1)}")
    for what in next(iter(measured_of.values())):
        values = [found[what] for found in measured_of.values()]
        ratio = f"{values[0] / values[1]:.2f}" if len(values) > 1 and values[1] else ""
        print(f"| {what} | {' | '.join(f'{value:.3g}' for value in values)} | {ratio} |")


if __name__ == "__main__":
    main()
