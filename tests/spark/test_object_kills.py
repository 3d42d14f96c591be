"""Kill -9 at each request that changes a bucket, right before and right after it is done; count all rows afterwards.

The first laboratory has a driver without Spark, and kills it at every request; the second one is a whole job, killed at
random ones: `ODRADEK_OBJECT_KILLS` says how often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import odradek
from chaos.folder_driver import drive, rows
from chaos.job import Job
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from peers.process import PATIENCE
from peers.s3 import ACCESS_KEY, SECRET_KEY, S3Server

KILLS = int(os.environ.get("ODRADEK_OBJECT_KILLS", "30"))
END = 40
RECORDS = 400
TESTS = Path(__file__).parents[1]
JOB = """
name = "objects"
source = {{ path = "data", subscribe = "orders" }}
offsets = {{ store = "file:offsets.json" }}
trigger = {{ max_offsets_per_batch = 30 }}

[spark]
master = "local[2]"

[[transform]]
view = "counts"
sql = "SELECT partition AS part, count(*) AS count FROM records GROUP BY partition"

[[sink]]
type = "parquet"
path = "{records}"
partition_by = ["topic"]
name = "so_far"

[[sink]]
type = "parquet"
view = "counts"
path = "{totals}"
name = "totals"
merge = "SELECT part, sum(count) AS count FROM totals GROUP BY part"
"""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with S3Server() as server:
        yield server


class Killer:
    """Kills a process before, or after, one of the requests that change the bucket; no later one is answered.

    Args:
        s3: The server.
        kill: Kills it, and waits until it is gone; returns whether it was there.
        after: How many requests are let through.
        is_done: Whether the one after these is done before the kill.
    """

    def __init__(self, s3: S3Server, kill: Callable[[], bool], after: int, *, is_done: bool) -> None:
        self.request: str | None = None
        self._kill = kill
        self._left = after
        self._is_done = is_done
        self._lock = threading.Lock()
        s3.on_request = self._look

    def _look(self, request: str, is_done: bool) -> None:
        if is_done is not self._is_done:
            return
        with self._lock:
            self._left -= 1
            if self._left >= 0:
                return
            if self.request is None and self._kill():
                self.request = request.split("-")[0]
        raise ConnectionError


def let_through(s3: S3Server) -> None:
    s3.on_request = lambda request, is_done: None


@pytest.mark.laboratory
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_that_is_killed_at_each_request(s3: S3Server, when: str) -> None:
    address = s3.uri("orders")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    requests: Counter[str] = Counter()

    def case(after: int) -> bool:
        s3.objects.clear()
        drive(ParquetFolder(FolderUri.parse(address)), 20)
        driver = subprocess.Popen([sys.executable, "-m", "chaos.folder_driver", address, str(END)], env=environment)

        def kill() -> bool:
            driver.kill()
            return driver.wait() == -signal.SIGKILL

        killer = Killer(s3, kill, after, is_done=when == "after")
        code = driver.wait(300 * PATIENCE)
        let_through(s3)
        folder = ParquetFolder(FolderUri.parse(address))
        (held,) = folder.positions.values()
        assert rows(folder) == list(range(held.offset))
        drive(folder, END)
        assert rows(folder) == list(range(END))
        assert code == (0 if killer.request is None else -signal.SIGKILL)
        requests.update([killer.request] if killer.request else [])
        return killer.request is not None

    after = 0
    while case(after):
        after += 1
    print(when, dict(requests))
    assert after > 30


@pytest.mark.laboratory
@pytest.mark.timeout(7200)
def test_a_job_that_is_killed_at_requests(s3: S3Server, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=2)
        for partition in range(2):
            logs["orders", partition].append([odradek.Record(value=b"%d" % number) for number in range(RECORDS // 2)])
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(records=s3.uri("records"), totals=s3.uri("totals")), encoding="utf-8")
    work = Job(file, tmp_path / "output")
    requests: Counter[str] = Counter()
    try:
        for _ in range(KILLS):
            killer = Killer(
                s3,
                lambda: work.running and work.kill("group", chance),
                chance.randint(0, 60),
                is_done=chance.random() < 0.5,
            )
            work.start()
            code = work.finish(600)
            work.clean()
            assert code == (0 if killer.request is None else -signal.SIGKILL), work.printed_since_start()
            if killer.request is None:
                break
            requests[killer.request] += 1
        let_through(s3)
        work.start()
        assert work.finish(600) == 0, work.printed_since_start()
    finally:
        let_through(s3)
        work.clean()
    print(dict(requests))
    files, root = FolderUri.parse(s3.uri("records")).open()
    found = ds.dataset(root, filesystem=files, partitioning="hive").to_table().to_pylist()
    wanted = {(partition, offset): 1 for partition in range(2) for offset in range(RECORDS // 2)}
    assert Counter((row["partition"], row["offset"]) for row in found) == Counter(wanted)
    files, root = FolderUri.parse(s3.uri("totals")).open()
    totals = ds.dataset(root, filesystem=files).to_table().to_pylist()
    assert {row["part"]: row["count"] for row in totals} == {0: RECORDS // 2, 1: RECORDS // 2}
