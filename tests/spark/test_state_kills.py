"""Kill jobs with state in the middle of their batches, and compare what they have counted with what was produced.

Jobs with each kind of offset store read the committed records of a broker; `-k all` has the four in one process:
whatever dies, dies for each of them. A seed repeats which kills there are, not the moments that they meet:

    ODRADEK_CHAOS_KILLS=20 ODRADEK_SEED=1 pytest -n 0 -s -m laboratory tests/spark/test_state_kills.py -k all
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from chaos.job import Job
from odradek.errors import JobError
from odradek.offsets.store import Position
from odradek.spark.pipeline import Job as PipelineJob
from odradek.spark.pipeline import Pipeline
from odradek.spark.pipeline.claimed_store import ClaimedStore
from odradek.storage.names import TopicPartition
from peers.fixtures import BROKERS, broker_of
from peers.kafka_tools import KafkaTools
from peers.process import Server
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.interop, pytest.mark.laboratory]

KILLS = int(os.environ.get("ODRADEK_CHAOS_KILLS", "4"))
STORES = ("file", "redis", "zookeeper", "kafka")
SERVERS = {"redis": RedisServer, "zookeeper": ZooKeeperServer}
VICTIMS = ("driver", "group", "group", "executor", "worker")
PARTITIONS = 3
RECORDS_A_KILL = 80
START_MS = 1_790_000_400_000  # a whole number of ten minutes
MINUTE_MS = 60_000
START_S = 300.0
BROKER_S = 120.0

SPARK = """
[spark]
master = "local[2]"
[spark.conf]
"spark.python.daemon.module" = "chaos.warm_daemon"
"spark.python.authenticate.socketTimeout" = "120s"
"""
JOB = """
[[job]]
name = "{name}"
[job.source]
kafka.bootstrap.servers = "{servers}"
subscribe = "words"
isolation.level = "read_committed"
value = {{ format = "json", schema = "word.ddl" }}
[job.offsets]
store = "{store}"
[job.trigger]
max_offsets_per_batch = {limit}
{trigger}
[job.state]
path = "state-{name}"
partitions = 2
view = "counts"
output_mode = "{mode}"
# Partitions that wait for a transaction are behind the others.
watermark = "5 hours"
[[job.transform]]
view = "counts"
sql = "{sql}"
[[job.transform]]
view = "doubled"
sql = "SELECT start, word, 2 * count AS count FROM counts"
[[job.sink]]
type = "parquet"
view = "counts"
path = "counts-{name}"
name = "all_counts"
{merge}
[[job.sink]]
type = "python"
view = "doubled"
function = "{ledger}:store"
positions = "{ledger}:positions"
"""
SQL = {
    "append": "SELECT window(timestamp, '10 minutes').start AS start, data.word, count(*) AS count FROM records "
    "GROUP BY window(timestamp, '10 minutes'), data.word",
    "update": "SELECT timestamp '2026-01-01' AS start, data.word, count(*) AS count FROM records GROUP BY data.word",
}
LATEST = 'merge = "SELECT start, word, max(count) AS count FROM all_counts GROUP BY start, word"'
LEDGER = """
import json
from pathlib import Path

BOOK = Path(__file__).with_suffix(".json")

def read():
    return json.loads(BOOK.read_text()) if BOOK.exists() else {"rows": [], "positions": []}

def store(rows, batch):
    held = read()
    held["rows"] += [[row.word, str(row.start), row["count"]] for row in rows.collect()]
    ends = {tuple(place): end for *place, end in held["positions"]}
    ends.update({tuple(name): end for name, start, end in batch.ranges})
    held["positions"] = [[*name, end] for name, end in ends.items()]
    new = BOOK.with_suffix(".new")
    new.write_text(json.dumps(held))
    new.replace(BOOK)

def positions():
    return {(topic, partition): end for topic, partition, end in read()["positions"]}
"""


class Words:
    """Produces words, a minute after each other, in transactions: some are aborted, and some stay open for a while.

    Attributes:
        committed: The minutes of the records that count.
        count: How many minutes have passed.
    """

    def __init__(self, servers: str, chance: random.Random) -> None:
        self.committed: list[int] = []
        self.count = 0
        self._chance = chance
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "transactional.id": f"words-{number}",
                    "transaction.timeout.ms": 600_000,
                    "log_level": 0,
                }
            )
            for number in range(2)
        ]
        for producer in self._producers:
            producer.init_transactions(BROKER_S)
        self._waiting: list[int] = []

    def produce(self, count: int) -> None:
        self.end_waiting()
        end = self.count + count
        if self._chance.random() < 0.5:
            self._waiting = self._send(self._producers[1])
        while self.count < end:
            self._end(self._producers[0], self._send(self._producers[0]))

    def end_waiting(self) -> None:
        """End the transaction that is open."""
        if self._waiting:
            self._end(self._producers[1], self._waiting)
            self._waiting = []

    def _send(self, producer: Producer) -> list[int]:
        producer.begin_transaction()
        sent = range(self.count, self.count + self._chance.randrange(1, 12))
        self.count = sent.stop
        for minute in sent:
            producer.produce(
                "words",
                value=json.dumps({"word": word(minute)}),
                partition=self._chance.randrange(PARTITIONS),
                timestamp=START_MS + minute * MINUTE_MS,
            )
        assert producer.flush(BROKER_S) == 0
        return list(sent)

    def _end(self, producer: Producer, sent: Sequence[int]) -> None:
        if self._chance.random() < 0.25:
            producer.abort_transaction(BROKER_S)
        else:
            producer.commit_transaction(BROKER_S)
            self.committed += sent

    def close_windows(self) -> None:
        """Commit a record that is so much later that all windows before it are over."""
        producer = self._producers[0]
        producer.begin_transaction()
        producer.produce("words", value='{"word": "last"}', timestamp=START_MS + (self.count + 1000) * MINUTE_MS)
        producer.commit_transaction(BROKER_S)


def word(minute: int) -> str:
    return f"word {minute % 3}"


@contextmanager
def servers_of(folder: Path, tools: KafkaTools, kind: str, stores: Sequence[str]) -> Iterator[dict[str, Server]]:
    """Start a broker, and the servers of offset stores, by the stores' names."""
    servers: dict[str, Server] = {"broker": broker_of(kind, tools, folder / "broker")}
    servers.update({name: SERVERS[name](folder / name) for name in stores if name in SERVERS})
    try:
        for server in servers.values():
            server.start_timeout_s = START_S
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.kill()


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("kind", BROKERS)
@pytest.mark.parametrize("stores", [*[[name] for name in STORES], STORES], ids=[*STORES, "all"])
def test_counts_are_those_of_the_committed_records_whatever_dies(
    kind: str,
    stores: Sequence[str],
    kafka_tools: KafkaTools,
    tmp_path: Path,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(seed)
    mode = chance.choice(("append", "update"))
    killed: Counter[str] = Counter()
    at_work: Counter[str] = Counter()
    with servers_of(tmp_path, kafka_tools, kind, stores) as servers:
        bootstrap = f"127.0.0.1:{servers['broker'].port}"
        prepare(tmp_path, bootstrap)

        def job(name: str, *, is_endless: bool) -> Job:
            jobs = [job_text(tmp_path, servers, store, mode, is_endless=is_endless) for store in stores]
            (tmp_path / f"{name}.toml").write_text("".join([SPARK, *jobs]))
            return Job(tmp_path / f"{name}.toml", tmp_path / f"{name}.txt")

        words = Words(bootstrap, chance)
        words.produce(RECORDS_A_KILL)
        work, rest = job("work", is_endless=True), job("rest", is_endless=False)
        try:
            while killed.total() < KILLS:
                if work.running and work.failures():
                    work.terminate(START_S)
                if not work.running:
                    work.start()
                before = {name: work.batches(name) for name in stores}
                words.produce(RECORDS_A_KILL)
                watched = chance.choice(stores)
                wait_for_a_moment(work, watched, before[watched], chance)
                victim = chance.choice(VICTIMS)
                works = [name for name in stores if work.is_at_work(name)]
                if work.running and work.kill(victim, chance):
                    killed[victim] += 1
                    at_work.update(works)
            if work.running:
                work.terminate(START_S)
            words.end_waiting()
            words.close_windows()
            for _ in range(3):
                rest.start()
                code = rest.finish(2 * START_S)
                if code == 0:
                    break
            assert code == 0
        except BaseException:
            print(work.printed()[-6000:], rest.printed()[-6000:] if rest.starts else "")
            raise
        finally:
            work.clean()
            rest.clean()
        check(tmp_path, stores, mode, words.committed)
    with capsys.disabled():
        told = ", ".join(f"{number} {what}" for what, number in sorted(killed.items()))
        print(
            f"\n{kind}, {mode}, seed {seed}: {told} killed, {work.starts} starts, {len(words.committed)} of "
            f"{words.count} records committed; jobs at work: {dict(at_work)}"
        )


def wait_for_a_moment(work: Job, name: str, before: int, chance: random.Random) -> None:
    """Wait until something may die: at a step of the first batch after a start, or within one of those that follow."""
    if work.batches(name):
        assert work.wait_for_batches({name: before}, START_S)
        time.sleep(chance.uniform(0, 1.5 * max(work.batch_seconds(name), 0.5)))
        return
    steps = ["", "parquet", "python", "storing its end", "of "]
    assert work.wait_for_text(rf"^(?:{name}: )?batch 1: [\d,]+ offsets,? ?{chance.choice(steps)}", START_S)
    time.sleep(chance.choice((0, 0.2, 1)) * chance.random())


def prepare(folder: Path, bootstrap: str) -> None:
    """Create the topic, and what the jobs need beside them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic("words", PARTITIONS)]).values():
        made.result(BROKER_S)
    (folder / "word.ddl").write_text("word STRING")
    for name in STORES:
        (folder / f"{ledger_of(folder, name)}.py").write_text(LEDGER)


def ledger_of(folder: Path, store: str) -> str:
    """Return the name of the module that is a job's ledger: another one for each test, as Python keeps modules."""
    return f"ledger_{store}_{folder.name}"


def job_text(folder: Path, servers: Mapping[str, Server], store: str, mode: str, *, is_endless: bool) -> str:
    """Return the job that has this kind of store: in small batches without end, or until nothing is left."""
    bootstrap = f"127.0.0.1:{servers['broker'].port}"
    ports = {name: server.port for name, server in servers.items()}
    addresses = {
        "file": "file:offsets.json",
        "redis": f"redis://127.0.0.1:{ports.get('redis')}/0?group=state",
        "zookeeper": f"zookeeper://127.0.0.1:{ports.get('zookeeper')}/state",
        "kafka": f"kafka://{bootstrap}/state",
    }
    return JOB.format(
        name=store,
        ledger=ledger_of(folder, store),
        servers=bootstrap,
        store=addresses[store],
        trigger='interval = "10ms"' if is_endless else "",
        limit=40 if is_endless else 10_000,
        mode=mode,
        sql=SQL[mode],
        merge=LATEST if mode == "update" else "",
    )


def run(work: PipelineJob, spark: SparkSession, on_step: Callable[[str], None] | None = None) -> int:
    """Run a job to its end; return how many batches it did in its last attempt."""
    for _ in range(10):
        try:
            return Pipeline(work, spark, on_step=on_step).run()
        except JobError as error:
            # Spark gives a worker of Python ten seconds to start.
            if "failed to connect back" not in str(error):
                raise
    raise TimeoutError("no worker of Python starts")


class CrashError(BaseException):
    """What no job expects."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["append", "update"])
@pytest.mark.parametrize("kind", BROKERS)
def test_counts_are_those_of_the_committed_records_after_errors_anywhere(
    kind: str,
    mode: str,
    kafka_tools: KafkaTools,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Far more of them than kills can be, for Spark goes on: at any step of a batch, with each store in turn."""
    chance = random.Random(seed)
    crashes: Counter[str] = Counter()
    left = 0

    def step(what: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            crashes[f"{name}: {re.sub(r'[0-9,]+ offsets|/.*/', '', what)}"] += 1
            raise CrashError

    commit = ClaimedStore.commit

    def commit_and_step(store: ClaimedStore, positions: Mapping[TopicPartition, Position]) -> None:
        commit(store, positions)
        step("stored")

    with servers_of(tmp_path, kafka_tools, kind, STORES) as servers:
        bootstrap = f"127.0.0.1:{servers['broker'].port}"
        prepare(tmp_path, bootstrap)
        words = Words(bootstrap, chance)
        works = {}
        for name in STORES:
            (tmp_path / f"{name}.toml").write_text(job_text(tmp_path, servers, name, mode, is_endless=False))
            works[name] = PipelineJob.read(tmp_path / f"{name}.toml")
        for number in range(KILLS):
            words.produce(RECORDS_A_KILL // 2)
            name = STORES[number % len(STORES)]
            left = chance.randrange(2, 9)
            with monkeypatch.context() as patched, suppress(CrashError):
                patched.setattr(ClaimedStore, "commit", commit_and_step)
                run(works[name], spark, step)
        words.end_waiting()
        words.close_windows()
        for work in works.values():
            run(work, spark)
            assert run(work, spark) == 0
    check(tmp_path, STORES, mode, words.committed)
    with capsys.disabled():
        print(f"\n{kind}, {mode}, seed {seed}: {len(words.committed)} records; {crashes.total()} crashes: {crashes}")


def check(folder: Path, stores: Sequence[str], mode: str, committed: Sequence[int]) -> None:
    """Compare what the sinks of each job hold with what was committed."""
    if mode == "append":
        expected = Counter((minute // 10, word(minute)) for minute in committed)
    else:
        expected = Counter((0, word(minute)) for minute in committed) + Counter([(0, "last")])
    for name in stores:
        found: Counter[tuple[int, str]] = Counter()
        for row in pyarrow.dataset.dataset(folder / f"counts-{name}").to_table().to_pylist():
            start_ms = int(row["start"].timestamp() * 1000)
            key = ((start_ms - START_MS) // (10 * MINUTE_MS) if mode == "append" else 0, row["word"])
            assert key not in found, name
            found[key] = row["count"]
        assert found == expected, name
        rows = [tuple(row) for row in json.loads((folder / f"{ledger_of(folder, name)}.json").read_text())["rows"]]
        # Counts only grow, so that no row of a ledger may be there twice.
        assert len(set(rows)) == len(rows), name
        last: dict[tuple[str, str], int] = {}
        for written, start, count in rows:
            last[written, start] = max(count, last.get((written, start), 0))
        assert sorted(last.values()) == sorted(2 * count for count in expected.values()), name
