"""Kill whatever can be killed while a job forwards records of every kind, and count what arrived: every record, once.

`tests/chaos/__init__.py` says how to run more of it.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chaos.job import Job
from chaos.records import (
    CODECS,
    MOST_MESSAGE_BYTES,
    POISON_VALUES,
    Filler,
    Row,
    Rows,
    check_compacted,
    check_same,
    check_same_but_for_times,
    read_letters,
    read_rows,
    shortened,
)
from peers.fixtures import BROKERS, broker_of
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker
from peers.process import Server
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.interop, pytest.mark.laboratory]

Broker = KafkaBroker | OdradekBroker

KILLS = int(os.environ.get("ODRADEK_CHAOS_KILLS", "50"))
SECONDS = float(os.environ.get("ODRADEK_CHAOS_SECONDS", "inf"))
BROKER_KINDS = os.environ.get("ODRADEK_CHAOS_BROKERS", BROKERS[0]).split(",")
STORES = ["file", "kafka", "redis", "zookeeper"]
SERVERS = {"redis": RedisServer, "zookeeper": ZooKeeperServer}
TOGETHER = "all"
"""A job for each store, all of them in one process and one Spark: whatever dies, dies for each of them."""
PARTITIONS = 3
BATCH_OFFSETS = 120
RECORDS_A_KILL = 500
# How long a start may take on a machine with much else to do.
START_S = 300.0
ADMIN_S = 240.0

SPARK = """
[spark]
master = "local[2,4]"
[spark.conf]
"spark.python.daemon.module" = "chaos.warm_daemon"
"""
JOB = """
[[job]]
name = "{name}"
{poison}
[job.source]
kafka.bootstrap.servers = "{source}"
subscribe = "in"
includeHeaders = true
[job.offsets]
store = "{store}"
[job.trigger]
{trigger}
max_offsets_per_batch = {limit}
[[job.transform]]
view = "keyed"
sql = "SELECT * FROM records WHERE key IS NOT NULL"
"""
POISON = """
on_invalid = "dead-letter"
restart = {{ attempts = 3, backoff = "100ms" }}
[job.dead_letters]
topic = "dead-{name}"
kafka.bootstrap.servers = "{servers}"
[job.source.value]
format = "json"
schema = "value.ddl"
options = {{ mode = "FAILFAST" }}
[[job.udf]]
name = "size_of"
function = "poison_functions:size_of"
returns = "int"
[[job.transform]]
view = "rows"
sql = "SELECT records.* EXCEPT (data), CAST(data.id AS {kind}) AS id, size_of(value) AS size{columns} FROM records"
"""
FUNCTIONS = """
def size_of(value):
    if value == b'{"id": -1}':
        raise ValueError("no record has this id")
    return None if value is None else len(value)
"""
PARQUET_SINK = """
[[job.sink]]
type = "parquet"
path = "{path}"
view = "{view}"
"""
TOPIC_SINK = """
[[job.sink]]
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
    """The servers, the topics and the jobs' file.

    Attributes:
        brokers: The source and the target; one if it is both.
        servers: Those offset stores that are servers of their own, by the name of the job that uses them.
        stores: The offset stores' addresses, by the names of their jobs.
        targets: The topics that each job forwards to, by the jobs' names.
        has_poison: Whether records make the views fail, the jobs start again after failures, and the columns of the
            Parquet files change between the starts.
        starts: How many times the jobs' file was written.
        stamps: Whether the source stamps the time itself (LogAppendTime).
    """

    folder: Path
    chance: random.Random
    brokers: Sequence[Broker]
    servers: Mapping[str, Server]
    stores: Mapping[str, str]
    targets: Mapping[str, Sequence[Target]]
    has_parquet: bool
    has_poison: bool
    stamps: bool
    starts: int = 0

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
        created = [
            NewTopic(f"{one.topic}-{name}", PARTITIONS, config={**largest, **one.config})
            for name, targets in self.targets.items()
            for one in targets
        ]
        if self.has_poison:
            created += [NewTopic(f"dead-{name}", PARTITIONS, config=largest) for name in self.stores]
        for servers, topics in ((self.source, source), (self.target, created)):
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            for made in admin.create_topics(topics).values():
                made.result(ADMIN_S)

    def write_jobs(self, name: str, *, is_endless: bool = True) -> Path:
        """Write jobs that run until they are ended, in small batches, or until nothing is left, in larger ones."""
        trigger, limit = ('interval = "10ms"', BATCH_OFFSETS) if is_endless else ("", 10_000)
        parts = [SPARK]
        for job, store in self.stores.items():
            poison = self.poison(job) if self.has_poison else ""
            parts.append(
                JOB.format(name=job, poison=poison, source=self.source, store=store, trigger=trigger, limit=limit)
            )
            if self.has_parquet:
                view = "rows" if self.has_poison else "records"
                parts.append(PARQUET_SINK.format(path=f"out-{job}", view=view))
            parts += [
                TOPIC_SINK.format(
                    topic=f"{one.topic}-{job}", view=one.view, codec=self.chance.choice(CODECS), servers=self.target
                )
                for one in self.targets[job]
            ]
        file = self.folder / f"{name}.toml"
        file.write_text("".join(parts))
        return file

    def poison(self, job: str) -> str:
        """Return what makes a job put records aside, with columns as they are at this start."""
        self.starts += 1
        (self.folder / "value.ddl").write_text("id BIGINT, text STRING")
        (self.folder / "poison_functions.py").write_text(FUNCTIONS)
        # The first files have the wider type, to which those of later starts are widened.
        has_files = any((self.folder / f"out-{job}").rglob("*.parquet"))
        kind = self.chance.choice(("BIGINT", "INT")) if has_files else "BIGINT"
        columns = self.chance.sample(range(self.starts // 10 + 2), 2)
        told = "".join(f", {number} AS new_{number}" for number in columns)
        return POISON.format(name=job, servers=self.target, kind=kind, columns=told)

    def job(self, name: str) -> Job:
        return Job(self.folder / f"{name}.toml", self.folder / f"{name}.txt")

    def run_to_the_end(self, name: str) -> None:
        """Forward what is left, by jobs that end then."""
        job = self.job(name)
        self.write_jobs(name, is_endless=False)
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
                (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), ADMIN_S)[1]
                for topic in (f"{one.topic}-{name}" for name, targets in self.targets.items() for one in targets)
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
        poison = {
            (partition, offset): row.value
            for partition, rows in sent.items()
            for offset, row in enumerate(rows)
            if row.value in POISON_VALUES
        }
        sent = {partition: [row for row in rows if row.value not in POISON_VALUES] for partition, rows in sent.items()}
        for name in self.stores:
            if self.has_poison:
                letters = read_letters(self.target, f"dead-{name}", PARTITIONS)
                assert Counter(letters) == Counter(poison.items()), f"{name}: {Counter(letters)}, not {poison}"
                told += f"\ndead-{name}: each of {len(poison)} poison records once"
            for one in self.targets[name]:
                topic = f"{one.topic}-{name}"
                gone = one.check(read_rows(self.target, topic, PARTITIONS, one.timestamps), sent)
                told += f"\n{topic}: 0 lost, 0 twice" + ("" if gone is None else f" ({gone} compacted)")
            if self.has_parquet:
                check_parquet(self.folder / f"out-{name}", sent)
                told += f"\nParquet of {name}: 0 lost, 0 twice"
        return told


@contextmanager
def laboratory(
    folder: Path,
    tools: KafkaTools,
    chance: random.Random,
    targets: Mapping[str, Sequence[Target]],
    *,
    has_parquet: bool = False,
    has_poison: bool = False,
) -> Iterator[Laboratory]:
    stores = {name: SERVERS[name](folder / name) for name in targets if name in SERVERS}
    brokers: list[Broker] = [
        broker_of(one, tools, folder / f"broker-{number}", BROKER_CONFIG) for number, one in enumerate(BROKER_KINDS)
    ]
    servers: list[Server] = [*brokers, *stores.values()]
    ports = {name: server.port for name, server in stores.items()}
    addresses = {
        "file": "file:offsets.json",
        "kafka": f"kafka://{brokers[0].bootstrap_servers}/chaos",
        "redis": f"redis://127.0.0.1:{ports.get('redis')}/0?group=chaos",
        "zookeeper": f"zookeeper://127.0.0.1:{ports.get('zookeeper')}/chaos",
    }
    try:
        for one in servers:
            one.start_timeout_s = START_S
            one.start()
        made = Laboratory(
            folder,
            chance,
            brokers,
            stores,
            {name: addresses[name] for name in targets},
            targets,
            has_parquet,
            has_poison,
            stamps=chance.random() < 0.25,
        )
        made.create_topics()
        yield made
    finally:
        for one in servers:
            one.kill()


def every_target(kind: str) -> dict[str, Sequence[Target]]:
    """Return the jobs, by the names of their stores, each with all topics to forward to."""
    return dict.fromkeys(STORES if kind == TOGETHER else [kind], TARGETS)


def cases() -> list[Any]:
    """Return stores, and whether there are few kills: for all of them together; and for each and all of them, many."""
    many = [pytest.param(kind, False, id=f"{kind}-many") for kind in [*STORES, TOGETHER]]
    return [pytest.param(TOGETHER, True, id=f"{TOGETHER}-few"), *many]


def planned(lab: Laboratory, chance: random.Random, *, is_small: bool) -> list[str]:
    """Return what is to be killed, the last one first: a server and what runs the jobs, or many of all."""
    rest = ["executor", "worker", *lab.servers]
    if is_small:
        return [chance.choice(["driver", "group", "executor"]), chance.choice(["broker", *lab.servers])]
    victims = ["driver", "group", "broker"] * KILLS + rest * (KILLS // 5)
    chance.shuffle(victims)
    return victims


def wait_for_a_moment(lab: Laboratory, job: Job, before: Mapping[str, int], chance: random.Random) -> None:
    """Wait until something may die: mostly in the middle of batches, but also while Spark starts.

    Args:
        lab: The laboratory.
        job: The jobs.
        before: How many batches each had done before there was more to do.
        chance: Which moment.
    """
    if chance.random() < 0.15:
        time.sleep(chance.uniform(0, 15))
        return
    name = chance.choice(list(lab.stores))
    if job.batches(name):
        assert job.wait_for_batches({name: before[name]}, START_S)
        time.sleep(chance.uniform(0, 1.2 * job.batch_seconds(name)))
        return
    # In the first batch each step is told, and all of them are equally likely.
    # A single job does not tell its name when a batch is done.
    told = rf"^(?:{name}: )?batch 1: [\d,]+ offsets"
    steps = [*(f"{told}, topic {one.topic}-" for one in lab.targets[name]), f"{told}, storing its end", f"{told} of "]
    assert job.wait_for_text(chance.choice([f"{told}, parquet", *steps] if lab.has_parquet else steps), START_S)
    time.sleep(chance.uniform(0, 2))


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(("kind", "is_small"), cases())
def test_every_record_arrives_once_whatever_dies(
    kind: str, is_small: bool, kafka_tools: KafkaTools, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    targets = every_target(kind)
    if is_small:
        targets = {name: [TARGETS[number % len(TARGETS)]] for number, name in enumerate(STORES)}
    records = RECORDS_A_KILL // 2 if is_small or kind == TOGETHER else RECORDS_A_KILL
    has_poison = kind == TOGETHER and not is_small
    killed: Counter[str] = Counter()
    at_work: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    restarts = 0
    with laboratory(tmp_path, kafka_tools, chance, targets, has_parquet=True, has_poison=has_poison) as lab:
        filler = Filler(lab.source, "in", PARTITIONS, chance, has_poison=has_poison)
        filler.fill(2 * records)
        lab.write_jobs("job")
        job = lab.job("job")
        down: list[Server] = []

        def strike(victim: str) -> bool:
            """Kill something: whether it was there."""
            works = [name for name in lab.stores if victim not in lab.servers or victim == name]
            works = [name for name in works if job.is_at_work(name)]
            if victim == "broker" or victim in lab.servers:
                peer = chance.choice(lab.brokers) if victim == "broker" else lab.servers[victim]
                if peer in down:
                    return False
                peer.kill()
                down.append(peer)
            elif not job.running or not job.kill(victim, chance):
                return False
            killed[victim] += 1
            at_work.update(f"{victim} {name}" for name in works)
            with (tmp_path / "kills.txt").open("a") as told:
                told.write(f"{time.time():.1f} {victim} {','.join(works)}\n")
            return True

        try:
            left = planned(lab, chance, is_small=is_small)
            end = time.monotonic() + SECONDS
            while left and time.monotonic() < end:
                if job.running and job.failures():
                    # Of several jobs some have ended: so do the others, in order.
                    job.terminate(START_S)
                if not job.running:
                    restarts += job.restarts()
                    failures.update(re.sub(r"\d+", "0", why) for why in job.failures())
                    lab.write_jobs("job")
                    job.start()
                before = {name: job.batches(name) for name in lab.stores}
                filler.fill(records)
                wait_for_a_moment(lab, job, before, chance)
                # Often more dies before a server is back.
                if not strike(left[-1]):
                    chance.shuffle(left)
                    continue
                left.pop()
                time.sleep(chance.uniform(0, 1))
                while left and down and job.running and chance.random() < 0.6:
                    time.sleep(chance.uniform(0, 3))
                    if strike(left[-1]):
                        left.pop()
                    else:
                        chance.shuffle(left)
                if left and not job.running and chance.random() < 0.5:
                    lab.write_jobs("job")
                    job.start()
                while down:
                    down[0].start()
                    down.pop(0)
            # An orderly end in between, and what is left.
            if job.running and job.wait_for_batches(dict.fromkeys(lab.stores, 0), START_S) and job.running:
                job.terminate(START_S)
            lab.run_to_the_end("rest")
            told = lab.check(filler.count)
            restarts += job.restarts()
        except BaseException:
            print(job.printed()[-6000:] or "no output")
            raise
        finally:
            job.clean()
    with capsys.disabled():
        print(f"\n{kind}, seed {seed}: {killed.total()} kills ({counts(killed)}), {job.starts} starts, {told}")
        print(f"restarts of jobs in a process: {restarts}")
        print(f"in the middle of batches: {counts(at_work)}")
        for why, times in failures.most_common():
            print(f"{times} times: {why[:400]}")


def counts(told: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(told.items()))


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", [*STORES, TOGETHER])
def test_a_paused_driver_that_comes_back_writes_nothing(
    kind: str, kafka_tools: KafkaTools, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stop a driver anywhere, let another one take over, and continue the first: it ends with an error that says so."""
    chance = random.Random(seed)
    paused: Counter[str] = Counter()
    # A driver that is stopped keeps the lock of its Parquet folder, so nobody could take over.
    with laboratory(tmp_path, kafka_tools, chance, every_target(kind)) as lab:
        filler = Filler(lab.source, "in", PARTITIONS, chance)
        jobs: list[Job] = []

        def start() -> Job:
            name = f"driver-{len(jobs)}"
            lab.write_jobs(name)
            jobs.append(lab.job(name))
            jobs[-1].start()
            return jobs[-1]

        try:
            first: Job | None = None
            filler.fill(RECORDS_A_KILL)
            end = time.monotonic() + SECONDS
            while paused.total() < KILLS and time.monotonic() < end:
                first = first or start()
                before = {name: first.batches(name) for name in lab.stores}
                filler.fill(RECORDS_A_KILL)
                assert first.wait_for_batches(before, START_S)
                time.sleep(chance.uniform(0, 1.2 * max(map(first.batch_seconds, lab.stores))))
                what = chance.choice(("driver", "group", "group", "below"))
                stopped = first.pause(what)
                second = start()
                filler.fill(RECORDS_A_KILL)
                assert second.wait_for_batches(dict.fromkeys(lab.stores, 0), START_S)
                assert second.running
                is_ended = chance.random() < 0.4
                if is_ended:
                    assert second.terminate(START_S) == 0
                # Something to do, also for a driver that was stopped between two batches.
                filler.fill(RECORDS_A_KILL)
                ends = lab.end_offsets()
                first.resume(stopped)
                assert first.finish(START_S) == 3
                ends_told = [
                    why for why in first.failures() if "another reader of this group has committed since" in why
                ]
                assert len(ends_told) == len(lab.stores), first.printed()[-4000:]
                if is_ended:
                    assert lab.end_offsets() == ends, "a driver that was thought dead has written"
                else:
                    # The second one is none the worse for it.
                    before = {name: second.batches(name) for name in lab.stores}
                    filler.fill(RECORDS_A_KILL)
                    assert second.wait_for_batches(before, START_S)
                    assert second.running
                first = None if is_ended else second
                paused[f"{what}, {'the next one had ended' if is_ended else 'beside the next one'}"] += 1
                with (tmp_path / "pauses.txt").open("a") as told_so_far:
                    told_so_far.write(f"{time.time():.1f} {what} {is_ended}\n")
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
    query = f"""SELECT partition, key, value, headers, epoch_ms("timestamp")
    FROM read_parquet('{folder}/**/*.parquet', union_by_name = true) ORDER BY partition, "offset\""""
    stored = duckdb.sql(query)
    assert stored is not None
    found: Rows = {number: [] for number in sent}
    for partition, key, value, headers, timestamp in stored.fetchall():
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        found[partition].append(Row(key, shortened(value), pairs, timestamp))
    check_same(found, sent)
    by_pyarrow = pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["partition"])
    assert Counter(by_pyarrow["partition"].to_pylist()) == {number: len(rows) for number, rows in sent.items()}
    # All of them have a column with one type, whatever the jobs' views have said since.
    types = {
        schema.field("id").type for schema in map(pq.read_schema, folder.rglob("*.parquet")) if "id" in schema.names
    }
    assert types <= {pa.int64()}
