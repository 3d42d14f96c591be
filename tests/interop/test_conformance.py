"""`odradek conformance` on Apache Kafka, which passes each check and so makes it true, and on our broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.kafka_version import OLDER_KAFKA_VERSION
from odradek.testing.conformance.means import Means
from odradek.testing.conformance.suite import checks, run
from peers.conformance import documented_differences
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker

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


def _failed(broker: KafkaBroker | OdradekBroker) -> dict[str, str]:
    """Run all checks; return why those failed that did."""
    command = [sys.executable, "-m", "odradek", "conformance", broker.bootstrap_servers, "--format=jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["name"] for result in results] == [one.name for one in checks()], done.stderr
    others = {result["name"]: result["reason"] for result in results if result["outcome"] != "ok"}
    return {name: reason for name, reason in others.items() if "needs --" not in reason}


NEW = {
    "versions.ApiVersions_v5",
    "versions.DeleteGroups_v3",
    "versions.TxnOffsetCommit_v6",
    "versions.UnregisterController_range",
    "versions.UnregisterController_v0",
    "api_versions.a_controller_that_is_not_there",
    "api_versions.the_wrong_node_is_told_to_bootstrap_again",
    "api_versions.half_of_an_address_is_invalid",
    "consumer_heartbeats.another_assignor_is_a_new_epoch",
    "consumer_reconciliation.an_empty_group_keeps_its_epoch",
    "client_quotas.values_that_are_no_numbers_are_refused",
    "migration.a_join_with_a_broken_subscription_fails",
    "share_coordinator.negative_epochs_are_refused",
    "produce.a_record_that_is_too_large_decompressed",
    "transactions.offsets_by_topic_id",
}
"""What the older Apache Kafka does not have; the newer one is asked about it below."""


CONFIG = {"auto.create.topics.enable": "true", "group.consumer.max.size": "20"}


# Apache Kafka brings what time brings only in minutes; the checks of our broker are in the gate one by one.
@pytest.mark.laboratory
def test_our_broker_differs_only_where_the_documentation_says_so(tmp_path: Path) -> None:
    with OdradekBroker(tmp_path / "log-dir", CONFIG) as broker:
        assert _failed(broker).keys() == documented_differences()


@pytest.mark.laboratory
def test_every_check_passes_on_apache_kafka(every_kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaBroker(every_kafka, tmp_path / "log-dir", CONFIG) as broker:
        failed = _failed(broker)
    if every_kafka.version == OLDER_KAFKA_VERSION:
        assert failed.keys() >= NEW, "the older Apache Kafka has it"
        failed = {name: reason for name, reason in failed.items() if name not in NEW}
    assert failed == {}


@pytest.mark.laboratory
@pytest.mark.timeout(1200)
def test_no_check_relies_on_a_quick_commit(kafka_broker: BrokerFactory) -> None:
    """Apache Kafka answers some requests before it commits their records: 40 ms before here. It takes five minutes."""
    late = {"group.coordinator.append.linger.ms": "40", "share.coordinator.append.linger.ms": "40"}
    assert _failed(kafka_broker(config=CONFIG | late)) == {}


def test_apache_kafka_answers_the_versions_that_it_has_added(kafka_broker: BrokerFactory) -> None:
    broker = kafka_broker(config=CONFIG)
    chosen = [one for one in checks() if one.name in NEW or one.name.endswith("_range")]
    found = list(run("127.0.0.1", broker.port, chosen, Means()))
    assert {one.name: one.reason for one in found if one.outcome != "ok"} == {}
