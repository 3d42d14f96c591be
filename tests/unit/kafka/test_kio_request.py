"""Requests by kio's schemas over kafka-python's connections."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import errors
from kafka.protocol.frame import KafkaBytes

from odradek.broker.protocol import RequestHeader, encode_request, encode_response
from odradek.errors import BrokerUnavailableError
from odradek.kafka.client import BrokerClient
from odradek.kafka.kio_request import KioRequest
from odradek.kafka.settings import BrokerSettings
from odradek.testing import Broker
from peers.command import rows

KEY, VERSION = 69, 1


def build(kio: Any) -> Any:
    return kio.ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)


def request(versions: tuple[int, int] = (0, 1)) -> KioRequest:
    made = KioRequest("ConsumerGroupDescribe", KEY, versions, build)
    made.API_VERSION = VERSION
    made.with_header(7, "c")
    return made


def answer() -> bytes:
    header = RequestHeader(KEY, VERSION, 7, "c", 0)
    group = {"error_code": 0, "group_id": "g", "group_state": "Empty", "assignor_name": "range", "members": []}
    return bytes(encode_response(header, {"groups": [group]}))[4:]


def read(data: bytes) -> tuple[int, Any]:
    buffer = KafkaBytes(len(data))
    buffer.write(data)
    buffer.seek(0)
    header = request().header
    assert header is not None
    reader = header.get_response_class()
    found = reader.parse_header(buffer).correlation_id
    return found, reader.decode(buffer)


@pytest.fixture
def client() -> Iterator[BrokerClient]:
    with Broker() as broker:
        settings = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers})
        with BrokerClient(settings) as client:
            yield client


def test_a_request_is_written_as_kafka_writes_it() -> None:
    message = {"group_ids": ["g"], "include_authorized_operations": False}
    assert request().encode(framed=True, header=True) == encode_request(KEY, VERSION, 7, "c", message)


def test_a_response_is_read() -> None:
    correlation_id, found = read(answer())
    assert (correlation_id, found.groups[0].group_id) == (7, "g")
    # A tag that nobody knows.
    tagged = struct.pack(">i", 7) + b"\1\5\2ab" + answer()[5:]
    assert read(tagged)[1] == found


def test_a_response_that_is_cut_or_too_long() -> None:
    data = answer()
    for size in range(len(data)):
        with pytest.raises((ValueError, struct.error, errors.KafkaProtocolError)):
            read(data[:size])
    with pytest.raises(ValueError, match="1 bytes too many"):
        read(data + b"\0")


def test_versions_that_one_side_has_not(client: BrokerClient) -> None:
    assert client.supports(request())
    assert not client.supports(request((50, 50)))
    made = KioRequest("ConsumerGroupDescribe", KEY, (50, 50), build)
    with pytest.raises(BrokerUnavailableError, match="ConsumerGroupDescribe"):
        client.attempt("describing", lambda: client.ask(made))


def test_a_group_that_cannot_be_described_is_listed() -> None:
    with Broker() as broker, broker.fault("DescribeGroups", error="GROUP_AUTHORIZATION_FAILED"):
        broker.create_topic("t")
        broker.commit_offsets("g", {("t", 0): 0})
        (row,) = rows("groups", f"kafka://{broker.bootstrap_servers}")
        assert (row["group"], row["state"], row["members"]) == ("g", "Empty", None)
