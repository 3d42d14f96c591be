"""The pytest plugin: a broker for the tests of a project. Pytest loads it wherever odradek is installed.

    kafka          session    a running `odradek.testing.Broker`, one for each worker of pytest-xdist
    kafka_broker   function   a broker for one test, as its mark says: with users, access control lists, quotas
    kafka_topic    function   the name of a fresh topic on it, which is deleted after the test
    kafka_group    function   the name of a group that stands at the beginning of this topic, and is deleted, too

    @pytest.mark.kafka_broker(users={"alice": "secret"}, acls=[allow("alice", "READ", topic="*")])
    @pytest.mark.kafka_topic(partitions=3, config={"cleanup.policy": "compact"})
    kafka_config = auto.create.topics.enable=false    in pytest's ini file: settings of both brokers, one a line
    kafka_listeners = SSL                             and the security protocols of their listeners
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
    """Add the options."""
    group = parser.getgroup("kafka", "Kafka, by odradek")
    group.addoption("--kafka-real", metavar="HOST:PORT", help="run the tests on this broker, not on one of their own")
    parser.addini("kafka_config", "settings of the brokers, NAME=VALUE, one a line", type="linelist", default=[])
    parser.addini("kafka_listeners", "the security protocols of the brokers' listeners", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Add the markers."""
    config.addinivalue_line(
        "markers", "kafka_broker(config={}, users={}, ...): how the broker of the fixture kafka_broker is made"
    )
    config.addinivalue_line(
        "markers", "kafka_topic(partitions=1, config={}): how the topic of the fixture kafka_topic is made"
    )


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that runs: `kafka.bootstrap_servers`; see `odradek.testing.Broker`."""
    address = request.config.getoption("--kafka-real")
    if address:
        from odradek.errors import OdradekError
        from odradek.testing.real_kafka import RealKafka

        try:
            real = RealKafka(address)
        except (OSError, OdradekError) as error:
            pytest.fail(f"--kafka-real {address}: no broker answers: {error}", pytrace=False)
        # It lacks what it has to lack, and says so.
        yield real  # type: ignore[misc]
        return
    from odradek.testing.broker import Broker

    with Broker(**_configured(request.config)) as broker:
        request.config.stash[_broker_key] = broker
        yield broker
        del request.config.stash[_broker_key]


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test only, with the arguments of its nearest mark; see `odradek.testing.Broker`."""
    if request.config.getoption("--kafka-real"):
        pytest.skip("--kafka-real is one broker, which is not made for a test")
    from odradek.testing.broker import Broker

    arguments = _configured(request.config)
    marked = _marked(request, "kafka_broker")
    if "users" in marked:
        # The listeners then follow from the users, unless the mark names some.
        arguments.pop("listeners", None)
    marked["config"] = {**arguments.pop("config", {}), **marked.get("config", {})}
    with Broker(**{**arguments, **marked}) as broker:
        yield broker


def _broker_of(request: pytest.FixtureRequest) -> Broker:
    """Return the broker of a test: its own if it has one."""
    found: Broker = request.getfixturevalue("kafka_broker" if "kafka_broker" in request.fixturenames else "kafka")
    return found


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that no other test uses; it contains the test's name."""
    kafka = _broker_of(request)
    name = f"{_NOT_FOR_TOPICS.sub('-', request.node.name)[:_LONGEST_NAME].strip('-')}-{secrets.token_hex(4)}"
    kafka.create_topic(name, **_marked(request, "kafka_topic"))
    yield name
    from odradek.errors import UnknownTopicOrPartitionError

    with suppress(UnknownTopicOrPartitionError):
        kafka.delete_topic(name)


@pytest.fixture
def kafka_group(kafka_topic: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a group that no other test uses, which has committed the beginning of `kafka_topic`."""
    kafka = _broker_of(request)
    partitions = range(_marked(request, "kafka_topic").get("partitions", 1))
    kafka.commit_offsets(kafka_topic, {(kafka_topic, partition): 0 for partition in partitions})
    yield kafka_topic
    from odradek.errors import BrokerError

    # One that the test left members in stays.
    with suppress(BrokerError):
        kafka.delete_group(kafka_topic)


def _configured(config: pytest.Config) -> dict[str, Any]:
    """Return the arguments of a broker that the ini file gives."""
    found: dict[str, Any] = {}
    for line in config.getini("kafka_config"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_config: expected NAME=VALUE, got {line!r}")
        found.setdefault("config", {})[name.strip()] = value.strip()
    if config.getini("kafka_listeners"):
        found["listeners"] = config.getini("kafka_listeners")
    return found


def _marked(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    marker = request.node.get_closest_marker(name)
    if marker is not None and marker.args:
        pytest.fail(f"the arguments of the mark {name} have names: {name}(name=value)", pytrace=False)
    return {} if marker is None else dict(marker.kwargs)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Remove the faults that the test left."""
    broker = item.config.stash.get(_broker_key, None)
    if broker is not None:
        broker.reset()
