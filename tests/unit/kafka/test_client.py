"""The connections of the client, some of which it takes from kafka-python."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.testing import Broker


@pytest.mark.slow
def test_a_connection_is_taken_when_all_has_been_answered_on_it() -> None:
    with (
        Broker() as broker,
        closing(BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))) as client,
    ):
        client.topics([])
        manager = client._connected()
        (node,) = manager.cluster.brokers()

        async def ask() -> None:
            # As kafka-python does by itself when a connection broke.
            connection: Any = await manager.get_connection(node.node_id)
            connection.send_request(MetadataRequest[1](topics=[]))
            while not delayed.fired:
                await manager._net.sleep(0.01)

        delayed = broker.fault("Metadata", delay_ms=300)
        client._cluster.run(ask)
        taken = client.take_connection(node.node_id)
        try:
            taken.send(MetadataRequest[1](topics=[]))
            assert len(taken.receive()) > 0
        finally:
            taken.close()
