"""The pytest plugin: a broker for the tests of a project. Pytest loads it wherever odradek is installed.

    kafka          session    a running `odradek.testing.Broker`, one for each worker of pytest-xdist
    kafka_topic    function   the name of a fresh topic on it, which is deleted after the test
    kafka_group    function   the name of a group that stands at the beginning of this topic, and is deleted, too

    @pytest.mark.kafka_topic(partitions=3, config={"cleanup.policy": "compact"})
    --kafka-real HOST:PORT    the same tests on another broker; those that need faults, files or the clock are skipped

Faults are removed, and requests forgotten, after each test.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

TYPE_CHECKING = False  # type checkers take it for True; every run of pytest pays for what is imported here
if TYPE_CHECKING:
    from odradek.testing.broker import Broker

_broker_key = pytest.StashKey["Broker"]()

_NOT_FOR_TOPICS = re.compile(r"[^a-zA-Z0-9._-]+")
_LONGEST_NAME = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("kafka", "Kafka, by odradek")
    group.addoption("--kafka-real", metavar="HOST:PORT", help="run the tests on this broker, not on one of their own")


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line(
        "markers", "kafka_topic(partitions=1, config={}): how the topic of the fixture kafka_topic is made"
    )


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that runs: `kafka.bootstrap_servers`; see `odradek.testing.Broker`."""
    address = request.config.getoption("--kafka-real")
    if address:
        from odradek.testing.real_kafka import RealKafka

        # It lacks what it has to lack, and says so.
        yield RealKafka(address)  # type: ignore[misc]
        return
    from odradek.testing.broker import Broker

    with Broker() as broker:
        request.config.stash[_broker_key] = broker
        yield broker
        del request.config.stash[_broker_key]


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that no other test uses; it contains the test's name."""
    name = f"{_NOT_FOR_TOPICS.sub('-', request.node.name)[:_LONGEST_NAME].strip('-')}-{secrets.token_hex(4)}"
    kafka.create_topic(name, **_topic_settings(request))
    yield name
    from odradek.errors import UnknownTopicOrPartitionError

    with suppress(UnknownTopicOrPartitionError):
        kafka.delete_topic(name)


@pytest.fixture
def kafka_group(kafka: Broker, kafka_topic: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a group that no other test uses, which has committed the beginning of `kafka_topic`."""
    partitions = range(_topic_settings(request).get("partitions", 1))
    kafka.commit_offsets(kafka_topic, {(kafka_topic, partition): 0 for partition in partitions})
    yield kafka_topic
    from odradek.errors import BrokerError

    # One that the test left members in stays.
    with suppress(BrokerError):
        kafka.delete_group(kafka_topic)


def _topic_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("kafka_topic")
    return {} if marker is None else dict(marker.kwargs)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Remove the faults that the test left."""
    broker = item.config.stash.get(_broker_key, None)
    if broker is not None:
        broker.reset()
