"""The source and the sink over Spark Connect: a server of the installed Spark, on the loopback address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import odradek
from peers.process import Server, free_port

CLIENT = """
import sys
from pyspark.sql import SparkSession
import odradek.spark

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
path = sys.argv[2]
frame = spark.read.format("odradek").option("subscribe", "t").load(path)
assert type(frame).__module__ == "pyspark.sql.connect.dataframe"
assert sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect()) == [
    (0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2")
]
narrowed = odradek.spark.read(spark, path, subscribe="t", columns=["offset"])
assert [row.offset for row in narrowed.orderBy("offset").collect()] == [0, 1, 2]
spark.sql("SELECT 'written' AS value").write.format("odradek").mode("append").option("topic", "written").save(path)

stream = spark.readStream.format("odradek").option("subscribe", "t").option("startingOffsets", "earliest").load(path)
query = (
    stream.selectExpr("value")
    .writeStream.format("odradek")
    .options(topic="streamed", checkpointLocation=sys.argv[3])
    .trigger(availableNow=True)
    .start(path)
)
assert query.awaitTermination(240)
assert odradek.spark.offsets_behind_latest(query.lastProgress) == {("t", 0): 0}

job = odradek.spark.Job(
    {"path": path, "subscribe": "t"}, "file:///nowhere.json", (odradek.spark.pipeline.job.ConsoleSinkSpec("SELECT 1"),)
)
try:
    odradek.spark.Pipeline(job, spark)
except TypeError as refused:
    print(refused)
"""


class ConnectServer(Server):
    """Spark with its server of Spark Connect."""

    name = "Spark Connect"
    start_timeout_s = 240

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "server.out")
        self.folder = folder
        self.port = free_port()

    def command(self) -> list[str]:
        """Returns the command line."""
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
        # Spark's planner reads the environment alone.
        python = ["env", f"PYSPARK_PYTHON={sys.executable}"]
        return [
            *python,
            submit,
            *main,
            *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        ]

    def ready(self) -> bool:
        """Says whether it listens: a client waits for what is left."""
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.mark.laboratory  # a server of its own, a minute
def test_frames_and_streams_work_over_spark_connect_and_pipelines_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    data = tmp_path / "data"
    with odradek.open(data) as logs:
        for topic in ("t", "written", "streamed"):
            logs.create_topic(topic)
        logs["t", 0].append([odradek.Record(value=b"%d" % number) for number in range(3)])
    named = {name for name in os.environ if name.startswith(("PYSPARK_", "SPARK_"))}
    environment = {name: value for name, value in os.environ.items() if name not in named}
    with ConnectServer(tmp_path) as server:
        url = f"sc://127.0.0.1:{server.port}"
        command = [sys.executable, "-c", CLIENT, url, str(data), str(tmp_path / "checkpoint")]
        client = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert client.returncode == 0, client.stderr
    assert "Spark Connect has none there" in client.stdout
    with odradek.open(data, "r") as logs:
        assert [record.value for record in logs["written", 0].read()] == [b"written"]
        assert [record.value for record in logs["streamed", 0].read()] == [b"0", b"1", b"2"]
