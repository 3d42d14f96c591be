"""The packages of Spark that sinks need beside Spark itself."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkPackage(NamedTuple):
    """A package.

    Attributes:
        name: Its name in Maven's repositories.
        class_name: A class in it.
    """

    name: str
    class_name: str


PACKAGES = {
    "delta": SparkPackage("io.delta:delta-spark_2.13", "org.apache.spark.sql.delta.sources.DeltaDataSource"),
    "iceberg": SparkPackage(
        "org.apache.iceberg:iceberg-spark-runtime", "org.apache.iceberg.spark.source.IcebergSource"
    ),
}
_NAMED_IN_CONF = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def require_package(spark: SparkSession, kind: str, key: str) -> None:
    """Fail if Spark lacks the package that a sink needs.

    Raises:
        JobError: It does; the error names the package.
    """
    package = PACKAGES[kind]
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(package.class_name.replace(".", "/") + ".class") is None:
        raise JobError(_told(package), key)


def missing_package(kind: str, spark_conf: Mapping[str, str]) -> str | None:
    """Say which package a sink lacks, without Spark; None if it is there, or may be.

    Args:
        kind: The sink.
        spark_conf: Spark's settings: packages that they name are not looked for.
    """
    package = PACKAGES[kind]
    found = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (found and found.origin and str(Path(found.origin).parent))
    if not home or any(name in spark_conf for name in _NAMED_IN_CONF):
        return None
    jar = package.name.partition(":")[2].partition("_")[0]
    return None if any(Path(home, "jars").glob(f"{jar}*.jar")) else _told(package)


def _told(package: SparkPackage) -> str:
    return (
        f"this needs {package.name}, which is not among Spark's jars: name it, with the version for your Spark, in "
        "spark.conf: spark.jars.packages"
    )
