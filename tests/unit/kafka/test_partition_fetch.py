"""What a fetch does if the topic is deleted and made again, and the broker tells of it late."""

from __future__ import annotations

import pytest

import odradek
from odradek.errors import UnknownTopicOrPartitionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.partition_fetch import Held, PartitionFetch
from odradek.kafka.settings import BrokerSettings
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

NAME = TopicPartition("events", 0)
RECORDS = 3


class OtherTopicError(Exception):
    """The topic has another id now."""


def fill(broker: Broker, records: int, partitions: int = 1) -> None:
    broker.create_topic(NAME.topic, partitions)
    for number in range(records):
        broker.logs[NAME].append(value=b"%d" % number)


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("refilled", [0, 1, RECORDS, 2 * RECORDS])
def test_a_topic_made_again_is_not_read_as_the_old_one(
    start: int, refilled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer has the old id, as that of a broker that is behind its controller."""
    with Broker() as broker:
        fill(broker, RECORDS)
        client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
        try:
            before = client.attempt("topics", client.topics)
            old_id = before[NAME.topic].topic_id
            broker.delete_topic(NAME.topic)
            fill(broker, refilled)
            now = client.topics
            answers = [before]
            monkeypatch.setattr(client, "topics", lambda names=None: answers.pop() if answers else now(names))

            def lost(held: Held) -> None:
                if held.topic_id not in (None, old_id):
                    raise OtherTopicError
                raise AssertionError(f"{held} does not name the new topic")

            fetch = PartitionFetch(client, NAME, start, RECORDS, "read_uncommitted", lost=lost, topic_id=old_id)
            with pytest.raises(OtherTopicError):
                list(fetch.chunks())
            assert not answers
        finally:
            client.close()


def test_a_topic_that_is_deleted_after_its_last_record_was_read_is_read() -> None:
    with Broker() as broker:
        fill(broker, RECORDS)
        client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
        try:
            topic_id = client.attempt("topics", client.topics)[NAME.topic].topic_id
            fetch = PartitionFetch(client, NAME, 0, RECORDS, "read_uncommitted", lost=print, topic_id=topic_id)
            found = 0
            for chunk in fetch.chunks():
                found += chunk.end_position > chunk.position
                broker.delete_topic(NAME.topic)
            assert found == 1
        finally:
            client.close()


@pytest.mark.slow
def test_a_topic_made_again_with_fewer_partitions_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.kafka.client.MISSING_S", 0)
    name = TopicPartition(NAME.topic, 1)
    with Broker() as broker:
        fill(broker, 0, partitions=2)
        client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
        try:
            old_id = client.attempt("topics", client.topics)[name.topic].topic_id
            broker.delete_topic(name.topic)
            fill(broker, 0)

            def lost(held: Held) -> None:
                assert held.topic_id not in (None, old_id)
                raise OtherTopicError

            with pytest.raises(OtherTopicError):
                list(PartitionFetch(client, name, 0, 1, "read_uncommitted", lost=lost, topic_id=old_id).chunks())
        finally:
            client.close()


def test_a_consumer_is_told_before_it_is_given_records_of_the_new_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        fill(broker, RECORDS)
        address = f"kafka://{broker.bootstrap_servers}"
        with odradek.consume(address, NAME.topic, auto_offset_reset="earliest", follow=False) as consumer:
            assert len(consumer.poll()) == RECORDS
            client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
            before = client.attempt("topics", client.topics)
            client.close()
            broker.delete_topic(NAME.topic)
            fill(broker, 2 * RECORDS)
            now, stale = BrokerClient.topics, [before] * 2
            monkeypatch.setattr(
                BrokerClient, "topics", lambda self, names=None: stale.pop() if stale else now(self, names)
            )

            def poll_on() -> None:
                while True:
                    assert not consumer.poll(timeout_ms=100)

            with pytest.raises(UnknownTopicOrPartitionError):
                poll_on()
