"""A program that writes DataFrames, one after another, whose tasks fail, die or are killed and are tried again.

    python -m chaos.spark_writes '{"master": "local[2,4]", "seed": 1, "writes": [{...}, ...]}'

A write is `{"options": {...}, "number": 7, "tasks": 3, "failure": "raise"}`; each gives a line of JSON with its error,
or null. `failure` is what becomes of the first attempt of some tasks, after the sink has sent a part of their rows:

    none      nothing
    raise     the rows end with an exception
    die       the worker that makes the rows kills itself
    writer    the worker that writes the rows is killed, and whatever else runs beside it
    random    workers of tasks are killed at random moments
    any       so are those that plan and commit for the driver, for which there is no second attempt
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import odradek.spark
from chaos.job import children

ROWS = 50
ROW_BYTES = 800_000
"""So that the rows of a task are more than the sink keeps before it sends them (16 MB)."""
_WORKERS = {"random": "pyspark.daemon pyspark.worker", "any": "pyspark.daemon"}
_MOST_KILLS = 3


def value_of(write: int, task: int, row: int) -> bytes:
    """Return the value of a row: what it is, filled up."""
    head = b"%d-%d-%d " % (write, task, row)
    return head.ljust(ROW_BYTES if row % 2 else len(head), b".")


def main(work: dict[str, Any]) -> None:
    chance = random.Random(work["seed"])
    # Else the sink gets all rows of a task at once, when nothing can fail any more.
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "4"}
    spark = odradek.spark.session(master=work["master"], conf=conf)
    for write in work["writes"]:
        failing = chance.sample(range(write["tasks"]), chance.randrange(1, write["tasks"] + 1))
        killer = Killer(chance, _WORKERS[write["failure"]]) if write["failure"] in _WORKERS else None
        error = None
        try:
            save(spark, write, failing)
        except (PySparkException, Py4JError) as failed:
            error = str(failed)[:2000]
        finally:
            if killer is not None:
                killer.stop()
        print(json.dumps({"error": error, "kills": 0 if killer is None else killer.kills}), flush=True)
    spark.stop()


def save(spark: SparkSession, write: dict[str, Any], failing: list[int]) -> None:
    frame = spark.range(0, write["tasks"], 1, write["tasks"])
    rows = frame.mapInArrow(rows_of(write["number"], failing, write["failure"]), "key binary, value binary")
    rows.write.format("odradek").mode("append").options(**write["options"]).save()


def rows_of(
    write: int, failing: list[int], failure: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Of a function within a function, Spark sends the code: workers do not have this module.
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from chaos import spark_writes

        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from spark_writes.task_rows(write, task)
                context = TaskContext.get()
                assert context is not None
                if task in failing and context.attemptNumber() == 0:
                    spark_writes.fail(failure)

    return rows


def task_rows(write: int, task: int) -> Iterator[pa.RecordBatch]:
    for row in range(ROWS):
        yield pa.record_batch({"key": [b"%d" % (row % 7)], "value": [value_of(write, task, row)]})


def fail(failure: str) -> None:
    """End the attempt that this is called in."""
    if failure == "raise":
        raise RuntimeError("a task of the laboratory fails")
    if failure == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if failure == "writer":
        for pid in children(os.getppid()):
            if pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Killer(threading.Thread):
    """Kills up to three workers at random moments: a task has four attempts."""

    def __init__(self, chance: random.Random, command: str) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._chance = chance
        self._command = command
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while self.kills < _MOST_KILLS and not self._stopping.wait(self._chance.uniform(0, 1.5)):
            # The daemon starts the workers: those are killed whose parent is one, too.
            found = {pid for pid, command in children(os.getpid()).items() if self._command in command}
            workers = sorted(pid for pid in found if _parent(pid) in found)
            if workers:
                with suppress(ProcessLookupError):
                    os.kill(self._chance.choice(workers), signal.SIGKILL)
                    self.kills += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
