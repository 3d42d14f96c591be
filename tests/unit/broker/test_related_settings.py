"""Settings that Apache Kafka refuses for the present ones are refused: on this folder it could apply none of them."""

from __future__ import annotations

import pytest

from odradek.broker.running import BrokerThread
from odradek.testing.wire import WireClient
from peers.requests import ask

BROKER, SET, DELETE = 4, 0, 1
INVALID_REQUEST = 42


def alter(client: WireClient, name: str, value: str | None, resource: str = "") -> tuple[int, str]:
    config = {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
    asked = {"resource_type": BROKER, "resource_name": resource, "configs": [config]}
    (answer,) = ask(client, "IncrementalAlterConfigs", 1, resources=[asked]).responses
    return int(answer.error_code), answer.error_message or ""


def test_a_pool_of_threads_changes_by_half_or_double_at_a_time(client: WireClient) -> None:
    for value, code in [("17", 42), ("16", 0), ("7", 42), ("32", 0), ("16", 0), ("8", 0), ("3", 42)]:
        assert alter(client, "num.io.threads", value)[0] == code, value
    assert "at least half the current value 8" in alter(client, "num.io.threads", "3")[1]
    # What overrides it at this broker is the present value.
    assert alter(client, "num.io.threads", "4", resource="1")[0] == 0
    assert alter(client, "num.io.threads", "1000")[0] == 0
    assert alter(client, "num.io.threads", None, resource="1")[0] == INVALID_REQUEST
    assert alter(client, "num.io.threads", "8")[0] == 0
    assert alter(client, "num.io.threads", None, resource="1")[0] == 0


@pytest.mark.parametrize(
    ("name", "refused", "taken"),
    [
        ("log.cleaner.threads", "3", "2"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "2097152"),
        ("group.share.assignment.interval.ms", "100000", "2000"),
        ("metric.reporters", "x.Y", "org.apache.kafka.common.metrics.JmxReporter"),
    ],
)
def test_what_contradicts_others_is_refused(
    name: str, refused: str, taken: str, client: WireClient, running: BrokerThread
) -> None:
    code, text = alter(client, name, refused)
    assert code == INVALID_REQUEST
    assert name in text or "cleaner thread" in text
    assert name not in running.broker.logs.metadata_image.broker_config()
    assert alter(client, name, taken) == (0, "")
