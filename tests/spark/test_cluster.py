"""The same job on a Spark master with two workers, from and to Apache Kafka; its lag in Kafka's own tool."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyspark
import pytest
from kafka import KafkaProducer

from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import Server, free_port

pytestmark = [pytest.mark.interop, pytest.mark.laboratory]

RECORDS = 3000
JARS = Path(pyspark.__file__).parent / "jars"
SOURCES = Path(__file__).parents[2] / "src"

JOB = """
name = "cluster"
[source]
kafka.bootstrap.servers = "{servers}"
subscribe = "in"
[offsets]
store = "kafka://{servers}/cluster"
[trigger]
max_offsets_per_batch = 600
[spark]
master = "{master}"
[spark.conf]
spark.executor.memory = "512m"
spark.executor.cores = 1
spark.driver.host = "127.0.0.1"
"spark.executorEnv.PYTHONPATH" = "{sources}"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[[sink]]
type = "parquet"
path = "out"
[[sink]]
type = "topic"
topic = "out"
kafka.bootstrap.servers = "{servers}"
"""


class SparkProcess(Server):
    """A master or a worker, from pyspark's own jars."""

    name = "spark"
    start_timeout_s = 120

    def __init__(self, folder: Path, main: str, *arguments: str, port: int) -> None:
        super().__init__(folder / "output.txt")
        self.port = port
        self._folder = folder
        self._main = main
        self._arguments = arguments

    def prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        opens = ["java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.util"]
        flags = [f"--add-opens={package}=ALL-UNNAMED" for package in opens]
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *flags, "-cp", f"{JARS}/*"]
        return [*java, self._main, "--host", "127.0.0.1", *self._arguments]

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SPARK_HOME", str(JARS.parent))
    # What Spark's own scripts set; a worker looks for a build of Spark's sources without it.
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    port = free_port()
    started: list[SparkProcess] = []
    try:
        main = "org.apache.spark.deploy.master.Master"
        started.append(SparkProcess(tmp_path / "master", main, "--port", str(port), "--webui-port", "0", port=port))
        started[0].start()
        for number in range(2):
            folder = tmp_path / f"worker-{number}"
            own = free_port()
            arguments = ["--port", str(own), "--webui-port", "0", "--cores", "1", "--memory", "1g", "-d", str(folder)]
            main = "org.apache.spark.deploy.worker.Worker"
            started.append(SparkProcess(folder, main, *arguments, f"spark://127.0.0.1:{port}", port=own))
            started[-1].start()
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(started):
            process.kill()


def executors(workers: Path) -> list[int]:
    """Return the processes of the executors whose workers have their folders in workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_executor = b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes()
            if is_executor and (process / "cwd").readlink().is_relative_to(workers):
                found.append(int(process.name))
    return found


@pytest.mark.timeout(900)
def test_a_cluster_does_the_same_job_and_kafka_sees_its_lag_fall(
    master: str, shared_kafka: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    servers = shared_kafka.bootstrap_servers
    for topic in ("in", "out"):
        kafka_tools.topics(servers, "--create", "--topic", topic, "--partitions", "3").check()
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20)
    for number in range(RECORDS):
        producer.send("in", value=b"value %06d" % number, partition=number % 3)
    producer.flush()
    producer.close()
    (tmp_path / "job.toml").write_text(JOB.format(servers=servers, master=master, sources=SOURCES))

    lags: list[int] = []
    output = tmp_path / "job.txt"
    with output.open("wb") as file:
        job = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli", "pipeline", "run", str(tmp_path / "job.toml")],
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
    try:
        killed = False
        deadline = time.monotonic() + 600
        while job.poll() is None:
            assert time.monotonic() < deadline, output.read_text(errors="replace")[-4000:]
            rows = kafka_tools.consumer_group_describe(servers, "cluster")
            known = [int(row["LAG"]) for row in rows if row["TOPIC"] == "in" and row["LAG"].isdigit()]
            if len(known) == 3 and (not lags or sum(known) != lags[-1]):
                lags.append(sum(known))
            ours = executors(tmp_path)
            if not killed and lags and lags[-1] < RECORDS and len(ours) == 2:
                # Spark gives its work to the other one.
                os.kill(ours.pop(), signal.SIGKILL)
                killed = True
            time.sleep(0.5)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, output.read_text(errors="replace")[-4000:]
    rows = kafka_tools.consumer_group_describe(servers, "cluster")
    lags.append(sum(int(row["LAG"]) for row in rows if row["TOPIC"] == "in"))
    assert killed
    assert lags[-1] == 0
    assert len(set(lags)) >= 3
    assert lags == sorted(lags, reverse=True)

    query = f"""SELECT decode(value) FROM '{tmp_path}/out/**/*.parquet'"""
    expected = Counter(f"value {number:06d}" for number in range(RECORDS))
    stored = duckdb.sql(query)
    assert stored is not None
    assert Counter(value for (value,) in stored.fetchall()) == expected
    forwarded = kafka_tools.consume(servers, "out", isolation="read_committed")
    assert sum(len(partition["records"]) for partition in forwarded.values()) == RECORDS
    assert len({record["value"] for partition in forwarded.values() for record in partition["records"]}) == RECORDS
