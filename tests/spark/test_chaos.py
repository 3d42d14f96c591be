"""Kill whatever can be killed while a job forwards records of every kind, and count what arrived: every record, once.

`tests/chaos/__init__.py` says how to run more of it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.dataset
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chaos.job import Job, wait_until
from chaos.records import (
    CODECS,
    MOST_MESSAGE_BYTES,
    Filler,
    Row,
    Rows,
    check_compacted,
    check_same,
    check_same_but_for_times,
    read_rows,
    shortened,
)
from peers.fixtures import BROKERS, broker_of
from peers.jars import PeerMissingError
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker
from peers.process import Server
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.interop

Broker = KafkaBroker | OdradekBroker

KILLS = int(os.environ.get("ODRADEK_CHAOS_KILLS", "50"))
SEED = os.environ.get("ODRADEK_CHAOS_SEED")
BROKER_KINDS = os.environ.get("ODRADEK_CHAOS_BROKERS", BROKERS[0]).split(",")
STORES = ["file", "kafka", "redis", "zookeeper"]
PARTITIONS = 3
BATCH_OFFSETS = 120
RECORDS_A_KILL = 500
START_S = 240.0
ADMIN_S = 60.0
NAME = "chaos"

JOB = """
name = "{name}"
[source]
kafka.bootstrap.servers = "{source}"
subscribe = "in"
includeHeaders = true
[offsets]
store = "{store}"
[trigger]
{trigger}
max_offsets_per_batch = {limit}
[spark]
master = "local[2,4]"
[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[[transform]]
view = "keyed"
sql = "SELECT * FROM records WHERE key IS NOT NULL"
"""
PARQUET_SINK = """
[[sink]]
type = "parquet"
path = "out"
"""
TOPIC_SINK = """
[[sink]]
type = "topic"
topic = "{topic}"
view = "{view}"
compression = "{codec}"
kafka.bootstrap.servers = "{servers}"
"""


class Target(NamedTuple):
    """A topic that records are forwarded to."""

    topic: str
    view: str
    config: dict[str, str]
    timestamps: int
    check: Callable[[Rows, Rows], int | None]


TARGETS = (
    Target("out", "records", {}, TIMESTAMP_CREATE_TIME, check_same),
    Target(
        "stamped",
        "records",
        {"message.timestamp.type": "LogAppendTime"},
        TIMESTAMP_LOG_APPEND_TIME,
        check_same_but_for_times,
    ),
    Target(
        "compacted",
        "keyed",
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(16 << 20),
            "segment.ms": "500",
        },
        TIMESTAMP_CREATE_TIME,
        check_compacted,
    ),
)
BROKER_CONFIG = {
    "message.max.bytes": str(MOST_MESSAGE_BYTES),
    "log.cleaner.backoff.ms": "2000",
    "socket.request.max.bytes": str(100 << 20),
}


@dataclass
class Laboratory:
    """The servers, the topics and the job's file.

    Attributes:
        brokers: The source and the target; one if it is both.
        server: The offset store's server, if it has one of its own.
        targets: The topics that are forwarded to.
        stamps: Whether the source stamps the time itself (LogAppendTime).
    """

    folder: Path
    chance: random.Random
    brokers: Sequence[Broker]
    server: Server | None
    store: str
    targets: Sequence[Target]
    has_parquet: bool
    stamps: bool

    @property
    def source(self) -> str:
        return self.brokers[0].bootstrap_servers

    @property
    def target(self) -> str:
        return self.brokers[-1].bootstrap_servers

    def create_topics(self) -> None:
        largest = {"max.message.bytes": str(MOST_MESSAGE_BYTES)}
        stamped = {"message.timestamp.type": "LogAppendTime"} if self.stamps else {}
        source = [NewTopic("in", PARTITIONS, config={**largest, **stamped})]
        targets = [NewTopic(one.topic, PARTITIONS, config={**largest, **one.config}) for one in self.targets]
        for servers, topics in ((self.source, source), (self.target, targets)):
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            for made in admin.create_topics(topics).values():
                made.result(ADMIN_S)

    def write_job(self, name: str, *, is_endless: bool = True) -> Path:
        """Write a job that runs until it is ended, in small batches, or until nothing is left, in a large one."""
        trigger, limit = ('interval = "10ms"', BATCH_OFFSETS) if is_endless else ("", 100_000)
        head = JOB.format(name=NAME, source=self.source, store=self.store, trigger=trigger, limit=limit)
        sinks = [
            TOPIC_SINK.format(topic=one.topic, view=one.view, codec=self.chance.choice(CODECS), servers=self.target)
            for one in self.targets
        ]
        file = self.folder / f"{name}.toml"
        file.write_text("".join([head, PARQUET_SINK if self.has_parquet else "", *sinks]))
        return file

    def job(self, name: str) -> Job:
        return Job(self.folder / f"{name}.toml", self.folder / f"{name}.txt")

    def run_to_the_end(self, name: str) -> None:
        """Forward what is left, by a job that ends then."""
        job = self.job(name)
        self.write_job(name, is_endless=False)
        try:
            for _ in range(5):
                job.start()
                if job.finish(2 * START_S) == 0:
                    return
            pytest.fail(f"the job did not come to an end:\n{job.printed()[-6000:]}")
        finally:
            job.clean()

    def end_offsets(self) -> dict[tuple[str, int], int]:
        """Return where the targets' logs end, whether or not what is there is committed."""
        consumer = Consumer({"bootstrap.servers": self.target, "group.id": "nobody", "log_level": 0})
        try:
            return {
                (one.topic, number): consumer.get_watermark_offsets(TopicPartition(one.topic, number), ADMIN_S)[1]
                for one in self.targets
                for number in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def check(self, produced: int) -> str:
        """Compare the targets with the source; return what there is to tell."""
        kind = TIMESTAMP_LOG_APPEND_TIME if self.stamps else TIMESTAMP_CREATE_TIME
        sent = read_rows(self.source, "in", PARTITIONS, kind)
        count = sum(map(len, sent.values()))
        assert count == produced
        told = f"{count} records{', LogAppendTime' if self.stamps else ''}"
        for one in self.targets:
            gone = one.check(read_rows(self.target, one.topic, PARTITIONS, one.timestamps), sent)
            told += f", {one.topic}: 0 lost, 0 twice" + ("" if gone is None else f" ({gone} compacted)")
        if self.has_parquet:
            check_parquet(self.folder / "out", sent)
            told += ", Parquet: 0 lost, 0 twice"
        return told


@contextmanager
def laboratory(
    folder: Path,
    tools: KafkaTools,
    kind: str,
    chance: random.Random,
    targets: Sequence[Target],
    *,
    has_parquet: bool = False,
) -> Iterator[Laboratory]:
    server: RedisServer | ZooKeeperServer | None = None
    try:
        if kind == "redis":
            server = RedisServer(folder / "redis")
        elif kind == "zookeeper":
            server = ZooKeeperServer(folder / "zookeeper")
    except PeerMissingError as error:
        pytest.skip(str(error))
    brokers: list[Broker] = [
        broker_of(one, tools, folder / f"broker-{number}", BROKER_CONFIG) for number, one in enumerate(BROKER_KINDS)
    ]
    servers: list[Server] = [*brokers, *([] if server is None else [server])]
    port = 0 if server is None else server.port
    store = {
        "file": "file:offsets.json",
        "kafka": f"kafka://{brokers[0].bootstrap_servers}/{NAME}",
        "redis": f"redis://127.0.0.1:{port}/0?group={NAME}",
        "zookeeper": f"zookeeper://127.0.0.1:{port}/{NAME}",
    }[kind]
    try:
        for one in servers:
            one.start()
        made = Laboratory(folder, chance, brokers, server, store, targets, has_parquet, stamps=chance.random() < 0.25)
        made.create_topics()
        yield made
    finally:
        for one in servers:
            one.kill()


def seeded(kind: str, *, is_small: bool) -> tuple[str, random.Random]:
    """Return a seed, and what is drawn from it: the same one for the small case, unless it is given."""
    seed = SEED or ("1" if is_small else str(random.randrange(1 << 32)))
    print(f"ODRADEK_CHAOS_SEED={seed}")
    return seed, random.Random(f"{seed} {kind}")


def amounts(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        name, [pytest.param(2, marks=pytest.mark.slow), pytest.param(KILLS, marks=pytest.mark.laboratory, id="many")]
    )


@pytest.mark.timeout(4 * 3600)
@amounts("kills")
@pytest.mark.parametrize("kind", STORES)
def test_every_record_arrives_once_whatever_dies(
    kind: str, kills: int, kafka_tools: KafkaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_small = kills == 2
    seed, chance = seeded(kind, is_small=is_small)
    # The small cases have one topic each, and all of them together have all.
    targets = [TARGETS[STORES.index(kind) % len(TARGETS)]] if is_small else TARGETS
    records = RECORDS_A_KILL // 2 if is_small else RECORDS_A_KILL
    killed: Counter[str] = Counter()
    with laboratory(tmp_path, kafka_tools, kind, chance, targets, has_parquet=True) as lab:
        filler = Filler(lab.source, "in", PARTITIONS, chance)
        filler.fill(2 * records)
        lab.write_job("job")
        job = lab.job("job")
        try:
            while killed.total() < kills:
                if not job.running:
                    lab.write_job("job")
                    job.start()
                if chance.random() < 0.85:
                    assert job.wait_for_batch(START_S)
                    time.sleep(chance.uniform(0, 2.5))
                else:
                    time.sleep(chance.uniform(0, 15))
                victims = ["driver", "driver", "group", "group", "executor", "worker", "worker", "broker", "broker"]
                victim = chance.choice(victims + (["store"] * 2 if lab.server else []))
                if victim in ("broker", "store"):
                    peer = lab.server if victim == "store" else chance.choice(lab.brokers)
                    assert peer is not None
                    peer.kill()
                    time.sleep(chance.uniform(0, 1))
                    peer.start()
                elif not job.running or not job.kill(victim, chance):
                    continue
                killed[victim] += 1
                filler.fill(records)
            # An orderly end in between, and what is left.
            if job.running and wait_until(lambda: job.batches() > 0 or not job.running, START_S) and job.running:
                job.terminate(START_S)
            lab.run_to_the_end("rest")
            told = lab.check(filler.count)
        except BaseException:
            print(job.printed()[-6000:] or "no output")
            raise
        finally:
            job.clean()
    with capsys.disabled():
        victims_told = ", ".join(f"{n} {v}" for v, n in sorted(killed.items()))
        print(f"\n{kind}, seed {seed}: {killed.total()} kills ({victims_told}), {job.starts} starts, {told}")


@pytest.mark.laboratory
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", STORES)
def test_a_paused_driver_that_comes_back_writes_nothing(
    kind: str, kafka_tools: KafkaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stop a driver anywhere, let another one take over, and continue the first: it ends with an error that says so."""
    seed, chance = seeded(kind, is_small=False)
    paused: Counter[str] = Counter()
    # A driver that is stopped keeps the lock of its Parquet folder, so nobody could take over.
    with laboratory(tmp_path, kafka_tools, kind, chance, TARGETS) as lab:
        filler = Filler(lab.source, "in", PARTITIONS, chance)
        jobs: list[Job] = []

        def start() -> Job:
            name = f"driver-{len(jobs)}"
            lab.write_job(name)
            jobs.append(lab.job(name))
            jobs[-1].start()
            return jobs[-1]

        try:
            first: Job | None = None
            while paused.total() < KILLS:
                first = first or start()
                filler.fill(RECORDS_A_KILL)
                assert first.wait_for_batch(START_S)
                time.sleep(chance.uniform(0, 3))
                what = chance.choice(("driver", "group", "group", "below"))
                stopped = first.pause(what)
                second = start()
                assert second.wait_for_batch(START_S)
                assert second.running
                is_ended = chance.random() < 0.4
                if is_ended:
                    assert second.terminate(START_S) == 0
                # Something to do, also for a driver that was stopped between two batches.
                filler.fill(RECORDS_A_KILL)
                ends = lab.end_offsets()
                first.resume(stopped)
                assert first.finish(START_S) == 3
                assert "another reader of this group has committed since" in first.printed().splitlines()[-1]
                if is_ended:
                    assert lab.end_offsets() == ends, "a driver that was thought dead has written"
                else:
                    # The second one is none the worse for it.
                    filler.fill(RECORDS_A_KILL)
                    assert second.wait_for_batch(START_S)
                    assert second.running
                first = None if is_ended else second
                paused[f"{what}, {'the next one had ended' if is_ended else 'beside the next one'}"] += 1
            if first is not None:
                assert first.terminate(START_S) == 0
            lab.run_to_the_end("rest")
            told = lab.check(filler.count)
        except BaseException:
            for job in jobs[-2:]:
                print(f"{job.file}:\n{job.printed()[-4000:]}")
            raise
        finally:
            for job in jobs:
                job.clean()
    with capsys.disabled():
        print(f"\n{kind}, seed {seed}: {paused.total()} pauses ({dict(sorted(paused.items()))}), {told}")


def check_parquet(folder: Path, sent: Rows) -> None:
    """Compare what is in Parquet with what went in."""
    query = f"""SELECT partition, key, value, headers, epoch_ms("timestamp") FROM '{folder}/**/*.parquet'
    ORDER BY partition, "offset\""""
    stored = duckdb.sql(query)
    assert stored is not None
    found: Rows = {number: [] for number in sent}
    for partition, key, value, headers, timestamp in stored.fetchall():
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        found[partition].append(Row(key, shortened(value), pairs, timestamp))
    check_same(found, sent)
    by_pyarrow = pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["partition"])
    assert Counter(by_pyarrow["partition"].to_pylist()) == {number: len(rows) for number, rows in sent.items()}
