"""What the next batch reads, where a topic is not the one that was read."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek.testing
from odradek.errors import JobError
from odradek.kafka.group import GroupClient
from odradek.offsets.store import Position, Positions, open_store
from odradek.records import Record
from odradek.spark.broker_split import close_kept_clients
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.planning import BatchPlan, plan
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.spark.ranges import DataLossError, LossCause
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

EVENTS = TopicPartition("events", 0)


@pytest.fixture
def broker() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        yield broker
        close_kept_clients()
    gc.collect()


def make_topic(broker: odradek.testing.Broker, records: int) -> None:
    broker.create_topic("events")
    broker.logs[EVENTS].append([Record(value=b"%d" % number) for number in range(records)])


def planned(job: Job, positions: Positions) -> BatchPlan:
    topics = open_topics(job.source_options())
    try:
        return plan(job, topics, positions, None)
    finally:
        topics.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kafka", "file"])
@pytest.mark.parametrize("reset", ["latest", "earliest", "none"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_made_again_is_an_error_in_every_store(
    broker: odradek.testing.Broker, tmp_path: Path, kind: str, reset: str, fails: str
) -> None:
    address = f"kafka://{broker.bootstrap_servers}/g" if kind == "kafka" else f"file:{tmp_path}/offsets.json"
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "events", "failOnDataLoss": fails}
    job = Job(source, address, (ConsoleSinkSpec("SELECT 1"),), reset="latest")
    make_topic(broker, 100)
    with open_store(address) as store:
        positions = store.claim()
        first = planned(job, positions).first
        assert first[EVENTS].offset == 100
        store.commit(first, expected=positions)
    broker.delete_topic("events")
    make_topic(broker, 300)
    job = Job(source, address, (ConsoleSinkSpec("SELECT 1"),), reset=reset)
    with open_store(address) as store:
        positions = store.claim()
        with pytest.raises(DataLossError, match="created again under the same name") as caught:
            planned(job, positions)
        assert caught.value.cause is LossCause.NEW_TOPIC
        # As the message says.
        positions = store.delete([EVENTS], expected=positions)
        if reset == "none":
            with pytest.raises(JobError, match="has no positions"):
                planned(job, positions)
        else:
            assert planned(job, positions).first[EVENTS].offset == {"latest": 300, "earliest": 0}[reset]


@pytest.mark.slow
def test_of_a_topic_made_again_other_partitions_are_not_read_either(broker: odradek.testing.Broker) -> None:
    broker.create_topic("events", partitions=2)
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "assign": '{"events": [1]}'}
    job = Job(source, "file:unused.json", (ConsoleSinkSpec("SELECT 1"),))
    positions = Positions({EVENTS: Position(0, topic_id="AAAAAAAAAAAAAAAAAAAAEQ")}, "1")
    # The store has no position of events-1 that could be removed.
    with pytest.raises(DataLossError, match=r"events-1.*created again.*pipeline start-over FILE events`"):
        planned(job, positions)


@pytest.mark.slow
def test_offsets_that_a_tool_removed_are_not_remembered(broker: odradek.testing.Broker) -> None:
    make_topic(broker, 10)
    address = f"kafka://{broker.bootstrap_servers}/g"
    job = Job(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "events"},
        address,
        (ConsoleSinkSpec("SELECT 1"),),
    )
    with open_store(address) as store:
        positions = store.claim()
        store.commit(planned(job, positions).first, expected=positions)
    client = GroupClient([broker.bootstrap_servers], "g", {})
    try:
        # As `kafka-consumer-groups --delete-offsets` does.
        client.delete([EVENTS], time.monotonic() + 60)
    finally:
        client.close(time.monotonic() + 60)
    with open_store(address) as store:
        positions = store.claim()
        assert dict(positions) == {}
        assert planned(job, positions).first[EVENTS].offset == 0
