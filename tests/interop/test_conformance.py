"""`odradek conformance` on Apache Kafka, which passes each check and so makes it true, and on our broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odradek.testing.conformance.means import Means
from odradek.testing.conformance.suite import checks, run
from peers.conformance import documented_differences
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker

QUICK_TIMERS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.max.session.timeout.ms": "12000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}


@pytest.mark.laboratory
@pytest.mark.parametrize("area", ["timers", "consumer_timers", "restarts"])
def test_what_time_and_restarts_bring(any_broker: BrokerFactory, area: str) -> None:
    """Without a control: time passes by itself, and a broker is stopped and started again. Three minutes for each."""
    broker = any_broker(config=QUICK_TIMERS)

    def restart() -> None:
        broker.stop()
        broker.start()

    found = list(run("127.0.0.1", broker.port, checks(f"{area}.*"), Means(restart=restart, waits=True)))
    assert {one.name: one.reason for one in found if one.outcome != "ok"} == {}


def _failed(broker: KafkaBroker) -> dict[str, str]:
    """Run all checks; return why those failed that did."""
    command = [sys.executable, "-m", "odradek", "conformance", broker.bootstrap_servers, "--format=jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["name"] for result in results] == [one.name for one in checks()], done.stderr
    others = {result["name"]: result["reason"] for result in results if result["outcome"] != "ok"}
    return {name: reason for name, reason in others.items() if "needs --" not in reason and name not in NEW_IN_4_4}


NEW_IN_4_4 = {
    "versions.ApiVersions_v5",
    "versions.DeleteGroups_v3",
    "versions.TxnOffsetCommit_v6",
    "api_versions.the_wrong_node_is_told_to_bootstrap_again",
    "api_versions.half_of_an_address_is_invalid",
    "transactions.offsets_by_topic_id",
}
"""Apache Kafka 4.3.1 does not have these versions; 4.4.0 is asked about them below."""


CONFIG = {"auto.create.topics.enable": "true", "group.consumer.max.size": "20"}


# Apache Kafka brings what time brings only in minutes; the checks of our broker are in the gate one by one.
@pytest.mark.laboratory
def test_the_brokers_differ_only_where_the_documentation_says_so(any_broker: BrokerFactory) -> None:
    broker = any_broker(config=CONFIG)
    others = _failed(broker)
    differences = documented_differences() if broker.name == "odradek" else set()
    assert {name: reason for name, reason in others.items() if name not in differences} == {}
    assert differences <= set(others), "it does not differ any more"


@pytest.mark.laboratory
@pytest.mark.timeout(1200)
def test_no_check_relies_on_a_quick_commit(kafka_broker: BrokerFactory) -> None:
    """Apache Kafka answers some requests before it commits their records: 40 ms before here. It takes five minutes."""
    late = {"group.coordinator.append.linger.ms": "40", "share.coordinator.append.linger.ms": "40"}
    assert _failed(kafka_broker(config=CONFIG | late)) == {}


def test_apache_kafka_4_4_answers_the_versions_that_it_has_added(newest_kafka_broker: BrokerFactory) -> None:
    broker = newest_kafka_broker(config=CONFIG)
    chosen = [one for one in checks() if one.name in NEW_IN_4_4 or one.name.endswith("_range")]
    found = list(run("127.0.0.1", broker.port, chosen, Means()))
    assert {one.name: one.reason for one in found if one.outcome != "ok"} == {}
