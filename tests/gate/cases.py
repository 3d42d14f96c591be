"""Which cases of a test the gate has, and which are for the laboratory.

Where each case starts a program (Apache Kafka, Spark, a client), all of them would take half of the gate's time, and a
fault nearly always shows in the first one. So of each such test the gate has the first case with each kind of
fixture, codec, isolation level and store. A test of our broker with the marker `compared` is given Apache Kafka, too,
as proof that it asks for what Kafka does. No change here can change that, so the laboratory sees it. The others with
both brokers are tests of clients and commands, which Apache Kafka judges, and which `unit` lets talk to our broker: the
laboratory has its turn. Of a test with the marker `every_case`, where each one is another command or page, the gate has
all cases, but those of the older fixture. Of tests that start no program it has all cases, unless these take long: they
have the marker `costly`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from odradek.kafka_version import KAFKA_VERSION, OLDER_KAFKA_VERSION

KINDS = frozenset(
    {
        *("kafka", "odradek"),
        *(KAFKA_VERSION, OLDER_KAFKA_VERSION, "2.8.2"),
        *("none", "gzip", "snappy", "lz4", "zstd"),
        *("read_uncommitted", "read_committed"),
        *("redis", "zookeeper"),
    }
)
"""The brokers and versions of Apache Kafka, codecs, isolation levels and stores that a test is given in turn."""
OLDER = "2.8.2"


def other_cases(tests: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases that the gate does without, in the order of the tests."""
    seen: set[tuple[str, ...]] = set()
    for test in tests:
        if test.get_closest_marker("laboratory") is not None:
            continue
        kind = _kind(test)
        starts_programs = any(map(test.get_closest_marker, ("interop", "spark")))
        is_cheap = not starts_programs and test.get_closest_marker("costly") is None
        has_every_case = test.get_closest_marker("every_case") is not None and OLDER not in kind
        if test.get_closest_marker("compared") is not None:
            is_of_other_broker = "kafka" in kind
        else:
            by_kafka = tuple("kafka" if given == "odradek" else given for given in kind)
            is_of_other_broker = starts_programs and "odradek" in kind and by_kafka in seen and not has_every_case
        if is_of_other_broker or (kind in seen and not is_cheap and not has_every_case):
            yield test
        seen.add(kind)


def _kind(test: pytest.Item) -> tuple[str, ...]:
    """Return a test's function, and which kinds of brokers and fixtures it is given."""
    callspec = getattr(test, "callspec", None)
    given = callspec.params.values() if callspec is not None else ()
    return (test.nodeid.partition("[")[0], *(value for value in given if isinstance(value, str) and value in KINDS))
