from __future__ import annotations

import pyarrow as pa
import pytest

from odradek.errors import ProtocolError
from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import Position, open_store
from odradek.places.broker_transaction import CommittedPosition, Transaction
from odradek.records.compression import Codec
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

FIRST, SECOND = TopicPartition("copy", 0), TopicPartition("copy", 1)
ROWS = pa.record_batch({"value": pa.array([b"a", b"b", b"c"])})


@pytest.mark.slow
def test_a_position_is_no_lag_of_its_group() -> None:
    with Broker() as broker:
        broker.create_topic("copy", partitions=2)
        servers = broker.bootstrap_servers
        with BrokerClient(BrokerSettings.parse({"bootstrap.servers": servers})) as client:
            transaction = Transaction(client, "job-copy-orders-0", "copy", Codec.NONE)
            assert transaction.begin() is None
            ends = []
            for target, place in ((FIRST, CommittedPosition(15_000, "id")), (SECOND, CommittedPosition(16_000))):
                transaction.begin()
                assert transaction.write(target, ROWS) == []
                transaction.commit(place)
                assert transaction.position() == place
                with open_store(f"kafka://{servers}/job-copy-orders-0") as store:
                    stored = store.load()
                assert set(stored) == {FIRST}
                ends.append((stored[FIRST].offset, client.list_offsets({FIRST: -1}, 0)[FIRST]))
            # Three records, and the marker of the transaction in which they came.
            assert ends == [(4, 4), (4, 4)]
            with open_store(f"kafka://{servers}/job-copy-orders-0") as store:
                store.commit({FIRST: Position(7)}, expected=store.load())
            with pytest.raises(ProtocolError, match="another program has set its offset"):
                transaction.position()
