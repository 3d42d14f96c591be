"""The classes that Spark loads, as Java keeps them for the next start (CDS): loading them is most of a start.

The first test of a machine that starts Spark has them kept; `options` names them to all others, of this run and of
those that come:

    ~/.cache/odradek-tests/spark-1f0c....jsa        the digest is that of Java's version and of Spark's jars

It saves half of a start of Spark: 7 of 15 seconds of processor time. Keeping them takes 45, once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from peers.jars import cache_root

QUIET = "-Xlog:cds*=off"
TIMEOUT_S = 300
PROGRAM = """
import sys
from pyspark import SparkContext
from odradek.spark.spark_session import session
conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": "-XX:ArchiveClassesAtExit=" + sys.argv[1]}
spark = session(master="local[2]", conf={**conf, "spark.sql.warehouse.dir": sys.argv[1] + ".warehouse"})
rows = spark.createDataFrame([(1, b"a"), (2, b"b")], "id INT, value BINARY")
rows.createOrReplaceTempView("records")
counts = spark.sql("SELECT id % 2 AS k, count(*) AS n, max(CAST(value AS STRING)) AS v FROM records GROUP BY ALL")
counts.write.mode("overwrite").parquet(sys.argv[1] + ".parquet")
assert len(spark.read.parquet(sys.argv[1] + ".parquet").toPandas()) == 2
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait(120)
"""


@cache
def kept() -> Path | None:
    """Returns the file that holds the classes, or is to hold them; None without Java or the whole of Spark."""
    import pyspark

    jars = Path(pyspark.__file__).resolve().parent / "jars"
    if shutil.which("java") is None or not jars.is_dir():
        return None
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    content = "\n".join([java, *sorted(str(jar) for jar in jars.glob("*.jar"))])
    return cache_root() / f"spark-{hashlib.sha256(content.encode()).hexdigest()[:12]}.jsa"


def options() -> str:
    """Returns the options of Java for a start of Spark, none while another process has the classes kept."""
    path = kept()
    if path is None:
        return ""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return ""
            if not path.exists():
                _keep(path)
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path.exists() else ""


@cache
def _keep(path: Path) -> None:
    """Has the classes kept, if that succeeds: a process tries it once."""
    being_kept = path.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-c", PROGRAM, str(being_kept)]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        if ended.returncode == 0 and being_kept.exists():
            being_kept.rename(path)
    except subprocess.TimeoutExpired:
        pass
    finally:
        being_kept.unlink(missing_ok=True)
        for name in ("parquet", "warehouse"):
            shutil.rmtree(f"{being_kept}.{name}", ignore_errors=True)
