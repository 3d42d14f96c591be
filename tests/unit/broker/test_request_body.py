"""Requests are read as kio reads them, a structure of an array at a time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio._kio_native import entity_reader

from odradek.broker.api import ADVERTISED
from odradek.broker.protocol import decode_header, request_class
from odradek.broker.request_body import decode_request, reader_in_parts
from odradek.errors import ProtocolError
from peers.sized_requests import Growing, Variety, all_keys, arrays_of

DESCRIBE_GROUPS = 15
IDS = [UUID(int=number) for number in range(1, 4)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", all_keys())
def test_bodies_are_those_of_kio(key: int) -> None:
    for growing in arrays_of(key, list):
        for count in (0, 3):
            frame = growing.frame(count, Variety.KNOWN, IDS)
            header = decode_header(frame)
            kind: Any = request_class(key, growing.version)
            whole = entity_reader(kind)(bytes(frame), header.body_position)
            assert reader_in_parts(kind)(bytes(frame), header.body_position) == whole


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, ADVERTISED[DESCRIBE_GROUPS][1][-1]])
def test_a_request_has_no_more_than_100_000_items(version: int) -> None:
    growing = Growing(DESCRIBE_GROUPS, "DescribeGroups", version, ("groups",))
    frame = growing.frame(100_000, Variety.REPEATED, IDS)
    assert len(decode_request(frame, decode_header(frame)).groups) == 100_000
    frame = growing.frame(100_001, Variety.REPEATED, IDS)
    with pytest.raises(ProtocolError, match="the request has more than 100,000 items"):
        decode_request(frame, decode_header(frame))
