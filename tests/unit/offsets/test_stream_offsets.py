from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.errors import OffsetStoreError
from odradek.offsets.spark_checkpoint import read_checkpoint
from odradek.offsets.store import Position
from odradek.offsets.stream_offsets import format_stream_offsets, parse_stream_offsets
from odradek.spark.options import SourceOptions
from odradek.storage.names import TopicPartition

A_0, A_10, B_0 = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 0)


def test_offsets_with_what_shows_a_lost_log() -> None:
    places = {A_0: Position(5, 3, "idA"), A_10: Position(7, None, "idA"), B_0: Position(2)}
    content = format_stream_offsets(places)
    more = '#odradek {"a":{"topic_id":"idA","leader_epochs":{"0":3}}}'
    assert content == {"a": {"0": 5, "10": 7}, "b": {"0": 2}, more: {}}
    assert parse_stream_offsets(json.loads(json.dumps(content))) == places
    # As programs take them from a query's progress, and hand them on.
    taken = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in content.items()
        for partition, offset in partitions.items()
    }
    assert taken == {A_0: 5, A_10: 7, B_0: 2}
    options = {"path": ".", "subscribe": "a,b", "startingOffsets": json.dumps(content)}
    assert SourceOptions.parse(options).starting.offsets == taken


def test_offsets_without_more() -> None:
    assert format_stream_offsets({B_0: Position(2)}) == {"b": {"0": 2}}
    # As an earlier version wrote them.
    before = {"a": {"0": 5, "10": 7, "topic_id": "idA", "leader_epochs": {"0": 3}}, "b": {"0": 2}}
    assert parse_stream_offsets(before) == {
        A_0: Position(5, 3, "idA"),
        A_10: Position(7, None, "idA"),
        B_0: Position(2),
    }


@pytest.mark.parametrize(
    "content",
    [
        5,
        "text",
        [1],
        {"a": 5},
        {"a": {"x": 5}},
        {"a": {"00": 5}},
        {"": {"0": 5}},
        {"a/b": {"0": 5}},
        {"#odradek " + "[" * 100_000: {}},
        {"a": {"0": "5"}},
        {"a": {"0": -1}},
        {"a": {"0": True}},
        {"#odradek 5": {}},
        {"#odradek {": {}},
    ],
)
def test_offsets_of_another_source(content: object) -> None:
    with pytest.raises(OffsetStoreError, match="not the offsets of topics"):
        parse_stream_offsets(content)


def test_a_checkpoint_has_them_and_those_of_sparks_own_source(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "commits" / "4").write_text("v1\n{}")
    ours = json.dumps({"a": {"0": 5, "topic_id": "idA", "leader_epochs": {"0": 3}}})
    lines = ["v1", "{}", ours, "-", '{"b": {"0": 2}}', '{"logOffset": 7}', "7"]
    (tmp_path / "offsets" / "4").write_text("\n".join(lines))
    assert read_checkpoint(tmp_path) == {A_0: Position(5, 3, "idA", "4"), B_0: Position(2, batch="4")}
