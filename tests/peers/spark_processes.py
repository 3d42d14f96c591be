"""The processes of a Spark session that this process has started, and the processor time that they take."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from pyspark import SparkContext

_TICKS = os.sysconf("SC_CLK_TCK")
_workers: dict[int, int] = {}
"""The processor time of each of Spark's Python processes, as it was last seen."""


def cpu_seconds() -> dict[str, float]:
    """Return the processor time so far of this process, of Java, and of Spark's Python workers."""
    children: dict[int, list[int]] = defaultdict(list)
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        rest = text[text.rindex(")") + 2 :].split()
        found[int(path.parent.name)] = [int(field) for field in rest[11:15]]
        children[int(rest[1])].append(int(path.parent.name))
    seconds: dict[str, float] = {}
    seconds["driver"] = sum(found[os.getpid()][:2]) / _TICKS
    jvm = spark_jvm()
    seconds["JVM"] = sum(found[jvm][:2]) / _TICKS
    left = children[jvm]
    while left:
        worker = left.pop()
        left += children[worker]
        _workers[worker] = sum(found[worker][:2])
    # Those that have ended count, too: Spark ends the daemon of workers that have had nothing to do for a minute.
    seconds["workers"] = sum(_workers.values()) / _TICKS
    return seconds


def spark_jvm() -> int:
    """Return the process id of Spark's Java."""
    gateway = SparkContext._gateway
    assert gateway is not None
    return int(gateway.proc.pid)
