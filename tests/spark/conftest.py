"""One Spark session for all tests of this folder: starting it takes far longer than any of them."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark.spark_session import session as start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = pytest.mark.skip(reason="Spark needs Java, and there is none")
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)
            if shutil.which("java") is None:
                item.add_marker(missing)


# The optimising compiler (C2) is not worth its time in tests that run everything once.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start(
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
        },
    )
    yield session
    session.stop()


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    """The command takes them for itself, as it owns its process elsewhere."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)
