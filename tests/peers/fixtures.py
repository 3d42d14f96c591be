"""The peers as pytest fixtures. A test that asks for one that is not on the machine is skipped (`peers.missing`)."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.kafka_version import KAFKA_VERSION, OLDER_KAFKA_VERSION
from peers.kafka import NEVER_KILLED, KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker
from peers.process import Server
from peers.redis import RedisServer
from peers.rests import RestClock
from peers.zookeeper import ZooKeeperServer

BrokerFactory = Callable[..., KafkaBroker]
S = TypeVar("S", bound=Server)


@pytest.fixture
def collected() -> Iterator[None]:
    """For clients that leave sockets to the garbage collector: they are closed with the test that opened them."""
    yield
    gc.collect()


@pytest.fixture
def leftovers_frozen() -> None:
    """For tests of processor time, or of calls: a collection of garbage would look at what other tests left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Kafka's command-line tools and its consumer."""
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="session")
def older_kafka() -> Iterator[KafkaTools]:
    """The tools of the Apache Kafka to which folders can still go back."""
    with KafkaTools(version=OLDER_KAFKA_VERSION) as tools:
        yield tools


@pytest.fixture(params=[KAFKA_VERSION, OLDER_KAFKA_VERSION])
def every_kafka(request: pytest.FixtureRequest) -> KafkaTools:
    """The tools of each Apache Kafka that is a judge, with which its brokers are started."""
    tools: KafkaTools = request.getfixturevalue("kafka_tools" if request.param == KAFKA_VERSION else "older_kafka")
    return tools


BROKERS = ["kafka", "odradek"]


def broker_of(kind: str, tools: KafkaTools, log_dir: Path, config: dict[str, str] | None = None, **others: Any) -> Any:
    """Returns a broker of Apache Kafka or of ours, of which tests use the same."""
    return KafkaBroker(tools, log_dir, config, **others) if kind == "kafka" else OdradekBroker(log_dir, config)


@pytest.fixture(scope="module", params=BROKERS)
def fixture_broker(
    request: pytest.FixtureRequest,
    kafka_tools: KafkaTools,
    fixture_4_3_1: KafkaFixture,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """Apache Kafka, then ours, on a copy of the 4.3.1 log directory, one for all tests of a module."""
    log_dir = Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path_factory.mktemp("broker") / "log-dir"))
    config = NEVER_KILLED if request.param == "kafka" else None
    with broker_of(request.param, kafka_tools, log_dir, config) as broker:
        yield broker


@pytest.fixture(params=BROKERS)
def any_broker(request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path: Path) -> Iterator[BrokerFactory]:
    """Starts brokers of Apache Kafka, then of ours: `any_broker(log_dir=None, config=None)`; they end with the test."""
    with _factory(request.param, kafka_tools, tmp_path) as start:
        yield start


@pytest.fixture
def kafka_broker(kafka_tools: KafkaTools, tmp_path: Path) -> Iterator[BrokerFactory]:
    """Starts brokers: `kafka_broker(log_dir=None, config=None, **others)`, as `KafkaBroker`; they end with the test."""
    with _factory("kafka", kafka_tools, tmp_path) as start:
        yield start


@contextmanager
def _factory(kind: str, tools: KafkaTools, tmp_path: Path) -> Iterator[BrokerFactory]:
    brokers: list[Server] = []

    def start(log_dir: Path | None = None, config: dict[str, str] | None = None, **others: Any) -> Any:
        broker = broker_of(kind, tools, log_dir or tmp_path / f"{kind}-{len(brokers)}", config, **others)
        brokers.append(broker)
        return broker.start()

    try:
        yield start
    finally:
        for broker in brokers:
            broker.kill()


@pytest.fixture(scope="session")
def shared_kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the whole run, for tests that only need some broker: use topic and group names of your own."""
    with KafkaBroker(kafka_tools, tmp_path_factory.mktemp("shared-kafka") / "log-dir", NEVER_KILLED) as broker:
        yield broker


@pytest.fixture
def quick_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls to a broker that cannot succeed fail after a few attempts; those that can may take their time."""
    clock = RestClock()
    for module in ("client", "transaction_states"):
        monkeypatch.setattr(f"odradek.kafka.{module}.time", clock)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty Redis server."""
    yield from _served(RedisServer(tmp_path / "redis"))


@pytest.fixture
def zookeeper_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """An empty ZooKeeper server."""
    yield from _served(ZooKeeperServer(tmp_path / "zookeeper"))


def _served(server: S) -> Iterator[S]:
    server.start()
    try:
        yield server
    finally:
        server.kill()
