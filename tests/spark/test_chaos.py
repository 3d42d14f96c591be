"""Kill whatever can be killed while a job runs, at seeded moments, and count what arrived: every record, once.

`ODRADEK_CHAOS_KILLS` says how many kills there are for each offset store (2 by default), `ODRADEK_CHAOS_SEED` which
moments they come at.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow.dataset
import pytest
from kafka import KafkaProducer

from peers.jars import PeerMissingError
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import Server
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KILLS = int(os.environ.get("ODRADEK_CHAOS_KILLS", "2"))
SEED = int(os.environ.get("ODRADEK_CHAOS_SEED", "1"))
PARTITIONS = 3
BATCH_OFFSETS = 120
RECORDS_A_KILL = 900
START_S = 180.0

JOB = """
name = "chaos"
[source]
kafka.bootstrap.servers = "{servers}"
subscribe = "in"
[offsets]
store = "{store}"
[trigger]
{trigger}
max_offsets_per_batch = {limit}
[spark]
master = "local[2,4]"
[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[[sink]]
type = "parquet"
path = "out"
[[sink]]
type = "topic"
topic = "out"
kafka.bootstrap.servers = "{servers}"
"""


def children(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    below, found = {pid}, {}
    while True:
        new = {child for child, parent in parents.items() if parent in below} - below
        if not new:
            break
        below |= new
        for child in new:
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_text(errors="replace").replace("\0", " ")
    return found


class Job:
    """The pipeline as a process of its own, started again whenever it has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output.txt"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.pids: set[int] = set()

    def start(self) -> None:
        self.starts += 1
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek.cli", "pipeline", "run", str(self.folder / "job.toml")],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def batches(self) -> int:
        return self.output.read_text(errors="replace").count("\nbatch ") if self.output.exists() else 0

    def note_pids(self) -> dict[int, str]:
        assert self._process is not None
        found = children(self._process.pid)
        self.pids |= set(found)
        return found

    def kill(self, victim: str) -> bool:
        """Kill the driver, or what runs below it; says whether there was such a process."""
        assert self._process is not None
        below = self.note_pids()
        if victim == "driver":
            self._process.kill()
            self._process.wait()
            return True
        word = "SparkSubmit" if victim == "executor" else "pyspark.daemon"
        for pid, command in below.items():
            if word in command:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def finish(self, timeout_s: float) -> int:
        assert self._process is not None
        self.note_pids()
        return self._process.wait(timeout_s)

    def terminate(self, timeout_s: float) -> int:
        assert self._process is not None
        self.note_pids()
        self._process.terminate()
        return self._process.wait(timeout_s)

    def clean(self) -> None:
        if self.running:
            assert self._process is not None
            self.note_pids()
            self._process.kill()
            self._process.wait()
        for pid in self.pids:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                if "pyspark" in command or "SparkSubmit" in command:
                    os.kill(pid, signal.SIGKILL)


def wait_until(reached: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if reached():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(params=["file", "kafka", "redis", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Server | None]]:
    kind = request.param
    server: RedisServer | ZooKeeperServer | None = None
    if kind in ("redis", "zookeeper"):
        try:
            server = RedisServer(tmp_path / "redis") if kind == "redis" else ZooKeeperServer(tmp_path / "zookeeper")
        except PeerMissingError as error:
            pytest.skip(str(error))
        server.start()
    try:
        yield kind, server
    finally:
        if server is not None:
            server.kill()


@pytest.mark.timeout(7200)
def test_every_record_arrives_once_whatever_dies(
    store: tuple[str, Server | None], kafka_tools: KafkaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, server = store
    chance = random.Random(f"{SEED} {kind}")
    broker = KafkaBroker(kafka_tools, tmp_path / "kafka").start()
    job = Job(tmp_path)
    killed: Counter[str] = Counter()
    address = {
        "file": "file:offsets.json",
        "kafka": f"kafka://{broker.bootstrap_servers}/chaos",
        "redis": f"redis://127.0.0.1:{server.port if server else 0}/0?group=chaos",
        "zookeeper": f"zookeeper://127.0.0.1:{server.port if server else 0}/chaos",
    }[kind]

    def write_job(trigger: str, limit: int) -> None:
        text = JOB.format(servers=broker.bootstrap_servers, store=address, trigger=trigger, limit=limit)
        (tmp_path / "job.toml").write_text(text)

    try:
        for topic in ("in", "out"):
            kafka_tools.topics(
                broker.bootstrap_servers, "--create", "--topic", topic, "--partitions", str(PARTITIONS)
            ).check()
        fill(broker, 3 * BATCH_OFFSETS + RECORDS_A_KILL * KILLS)
        write_job('interval = "10ms"', BATCH_OFFSETS)
        while sum(killed.values()) < KILLS:
            if not job.running:
                job.start()
            if chance.random() < 0.85:
                before = job.batches()
                assert wait_until(lambda seen=before: job.batches() > seen or not job.running, START_S)  # type: ignore[misc]
                time.sleep(chance.uniform(0, 2.5))
            else:
                time.sleep(chance.uniform(0, 15))
            victims = ["driver", "driver", "executor", "worker", "worker", "worker", "broker", "broker"]
            victims += ["store"] * 3 if server else []
            victim = chance.choice(victims)
            if victim in ("broker", "store"):
                peer: Server | None = broker if victim == "broker" else server
                assert peer is not None
                peer.kill()
                time.sleep(chance.uniform(0, 1))
                peer.start()
            elif not job.running or not job.kill(victim):
                continue
            killed[victim] += 1
        # What is left, and an orderly end in between.
        if job.running and wait_until(lambda: job.batches() > 0 or not job.running, START_S) and job.running:
            job.terminate(120)
        write_job("", 100_000)
        for _ in range(5):
            job.start()
            if job.finish(START_S) == 0:
                break
        assert not job.running
        count(kafka_tools, broker, tmp_path / "out")
        with capsys.disabled():
            print(
                f"\n{kind}: {sum(killed.values())} kills ({', '.join(f'{n} {v}' for v, n in sorted(killed.items()))}), "
                f"{job.starts} starts, {job.batches()} batches, every record once"
            )
    except BaseException:
        print(job.output.read_text(errors="replace")[-6000:] if job.output.exists() else "no output")
        raise
    finally:
        job.clean()
        broker.kill()


def fill(broker: KafkaBroker, records: int) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", linger_ms=20)
    try:
        for number in range(records):
            producer.send("in", key=b"k%d" % number, value=b"value %08d" % number, partition=number % PARTITIONS)
        producer.flush()
    finally:
        producer.close()


def count(tools: KafkaTools, broker: KafkaBroker, folder: Path) -> None:
    """Compare what is in Parquet, and in the topic, with what went in."""
    records = tools.consume(broker.bootstrap_servers, "in")
    went_in = Counter(
        (int(name.rpartition("-")[2]), record["offset"], record["value"])
        for name, partition in records.items()
        for record in partition["records"]
    )
    assert len(went_in) == sum(went_in.values())
    query = f"""SELECT partition, "offset", to_base64(value) FROM '{folder}/**/*.parquet'"""
    stored = duckdb.sql(query)
    assert stored is not None
    by_duckdb = Counter(stored.fetchall())
    assert by_duckdb == went_in
    by_pyarrow = pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["partition", "offset"])
    assert Counter(zip(*(column.to_pylist() for column in by_pyarrow.columns), strict=True)) == Counter(
        (partition, offset) for partition, offset, _ in went_in
    )
    forwarded = tools.consume(broker.bootstrap_servers, "out", isolation="read_committed")
    arrived = [
        (int(name.rpartition("-")[2]), record["value"])
        for name, partition in forwarded.items()
        for record in partition["records"]
    ]
    sent = [(partition, value) for partition, _, value in sorted(went_in, key=lambda entry: entry[:2])]
    assert sorted(arrived, key=lambda entry: entry[0]) == sorted(sent, key=lambda entry: entry[0])
