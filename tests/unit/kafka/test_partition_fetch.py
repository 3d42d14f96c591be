"""What a fetch does if the topic is deleted and made again, and the broker tells of it late."""

from __future__ import annotations

import pytest

from odradek.kafka.client import BrokerClient
from odradek.kafka.partition_fetch import Held, PartitionFetch
from odradek.kafka.settings import BrokerSettings
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

NAME = TopicPartition("events", 0)
RECORDS = 3


class OtherTopicError(Exception):
    """The topic has another id now."""


def fill(broker: Broker, records: int) -> None:
    broker.create_topic(NAME.topic)
    for number in range(records):
        broker.logs[NAME].append(value=b"%d" % number)


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
