"""The answers that faults give: of every API and version, readable, with the error where clients look for it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from odradek.broker.protocol import decode_header, decode_response, encode_request, encode_response, request_class
from odradek.broker.request_body import decode_request
from odradek.testing.error_answers import error_answer
from odradek.testing.plain_fields import plain_fields
from peers.request_examples import TOPIC_ID, example
from peers.requests import fetch_message, message, wanted

NOT_LEADER = 6


def versions() -> list[tuple[int, int]]:
    return [
        (key, version)
        for key, name in api_key_map.items()
        for version, types in schema_name_map[name].items()
        if {EntityType.request, EntityType.response} <= set(types)
    ]


def codes(fields_: Any) -> list[int]:
    if isinstance(fields_, dict):
        own = [value for name, value in fields_.items() if name.endswith("error_code")]
        return own + [code for value in fields_.values() for code in codes(value)]
    return [code for one in fields_ for code in codes(one)] if isinstance(fields_, list) else []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", sorted({key for key, _ in versions()}))
def test_each_version_of_an_api_has_an_answer_with_an_error(key: int) -> None:
    for version in [version for one, version in versions() if one == key]:
        found = answer(key, version, example(request_class(key, version)))
        assert codes(found).count(NOT_LEADER) == 1, f"version {version}: {found}"


def answer(key: int, version: int, asked: dict[str, Any], code: int = NOT_LEADER) -> dict[str, Any]:
    frame = bytearray(encode_request(key, version, 1, "test", asked)[4:])
    header = decode_header(frame)
    encoded = encode_response(header, error_answer(header, decode_request(frame, header), code))
    return plain_fields(decode_response(key, version, memoryview(encoded)[4:])[1])


@pytest.mark.parametrize("version", range(3, 14))
def test_each_partition_of_a_produce_has_the_error(version: int) -> None:
    partitions = [{"index": 0, "records": b""}, {"index": 3, "records": b""}]
    topic = {"name": "events", "topic_id": TOPIC_ID, "partition_data": partitions}
    (told,) = answer(0, version, message("Produce", topic_data=[topic]))["responses"]
    assert told["topic_id" if version == 13 else "name"] == (TOPIC_ID if version == 13 else "events")
    assert [(one["index"], one["error_code"], one["base_offset"]) for one in told["partition_responses"]] == [
        (0, NOT_LEADER, -1),
        (3, NOT_LEADER, -1),
    ]


def test_a_fetch_has_the_error_at_its_partitions_and_that_of_a_session_at_the_top() -> None:
    fetch = fetch_message(topics=[{"topic": "events", "partitions": wanted([2])}])
    at_partition = answer(1, 12, fetch)
    (partition,) = at_partition["responses"][0]["partitions"]
    assert (at_partition["error_code"], at_partition["responses"][0]["topic"]) == (0, "events")
    assert (partition["partition_index"], partition["error_code"], partition["records"]) == (2, NOT_LEADER, b"")
    at_top = answer(1, 12, fetch, 71)
    assert (at_top["error_code"], at_top["responses"]) == (71, [])


def test_the_error_of_a_group_is_at_the_top_or_at_the_group() -> None:
    groups = [{"group_id": "g", "topics": [{"name": "events", "partition_indexes": [1]}]}]
    told = answer(9, 8, message("OffsetFetch", groups=groups), 16)["groups"]
    assert [(one["group_id"], one["error_code"], one["topics"]) for one in told] == [("g", 16, [])]
    assert answer(12, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, 25)["error_code"] == 25
    told = answer(10, 4, {"key_type": 0, "coordinator_keys": ["g", "h"]}, 15)["coordinators"]
    assert [(one["key"], one["error_code"]) for one in told] == [("g", 15), ("h", 15)]


def test_names_of_topics_and_numbers_of_partitions_are_told_again() -> None:
    told = answer(20, 1, {"topic_names": ["a", "b"], "timeout_ms": 1}, 41)["responses"]
    assert [(one["name"], one["error_code"]) for one in told] == [("a", 41), ("b", 41)]
    fields = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    fields["topics"] = [{"name": "a", "partitions": [4, 5]}]
    told = answer(24, 3, {f"v3_and_below_{name}": value for name, value in fields.items()}, 51)
    (topic,) = told["results_by_topic_v3_and_below"]
    assert topic["name"] == "a"
    assert [(one["partition_index"], one["partition_error_code"]) for one in topic["results_by_partition"]] == [
        (4, 51),
        (5, 51),
    ]
