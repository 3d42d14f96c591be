"""One Spark session for all tests of this folder: starting it takes far longer than any of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek.spark.spark_session import session as start

# The daemons of Spark import `chaos.warm_daemon`. Another test may start Java first, with the environment of that time.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.needs("java"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # The settings would not be those below.
    assert SparkContext._active_spark_context is None, "a test has started Spark without this fixture"
    session = start(
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.python.daemon.module": "chaos.warm_daemon",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def signals_as_before(spark: SparkSession) -> Iterator[None]:
    """The command takes them for itself, as it owns its process elsewhere."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)
