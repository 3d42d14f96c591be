from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

import odradek
from odradek.errors import OptionError
from odradek.kafka.topics import Bounds
from odradek.spark.options import OffsetSpec, SourceOptions
from odradek.spark.pipeline.batch import cut, token
from odradek.spark.ranges import (
    DataLossError,
    LossCause,
    OffsetRange,
    Topics,
    check_places,
    find_loss,
    find_partitions,
    limited,
    pieces,
    position_at,
    resolve,
    within,
)
from odradek.spark.source_topics import open_topics
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
BOUNDS = {A: Bounds(10, 100), B: Bounds(0, 5)}
NOBODY: Topics = None  # type: ignore[assignment]  # only times need somebody to ask


@pytest.mark.parametrize(
    ("wanted", "held", "topic_id", "loss"),
    [
        (OffsetRange(A, 10, 100), Bounds(10, 100), None, None),
        (OffsetRange(A, 5, 5), Bounds(10, 100), None, None),
        (OffsetRange(A, 5, 20), Bounds(10, 100), None, LossCause.RETENTION),
        (OffsetRange(A, 50, 101), Bounds(10, 100), None, LossCause.TRUNCATION),
        (OffsetRange(A, 50, 60), Bounds(10, 100, "x"), "x", None),
        (OffsetRange(A, 50, 60), Bounds(10, 100, "x"), "y", LossCause.NEW_TOPIC),
        (OffsetRange(A, 50, 60), Bounds(10, 100), "y", None),
        (OffsetRange(A, 50, 60), None, None, LossCause.MISSING),
    ],
)
def test_names_a_loss(wanted: OffsetRange, held: Bounds | None, topic_id: str | None, loss: LossCause | None) -> None:
    found = find_loss(wanted, held, topic_id)
    assert (found.cause if found else None) is loss


@pytest.mark.parametrize(
    ("held", "stored", "said"),
    [
        (
            Bounds(30, 100),
            None,
            r"it holds \[30, 100\): deleted by retention, or by a request to delete records \(fail",
        ),
        (Bounds(0, 10), None, r"it holds \[0, 10\): truncated, or created again under the same name \(fail"),
        (Bounds(0, 10, "x"), "x", r"it holds \[0, 10\): truncated \(fail"),
        (Bounds(0, 100, "y"), "x", r"it holds \[0, 100\): created again under the same name \(other records"),
        (None, "x", r"it is gone: deleted with its topic \(fail"),
    ],
)
def test_says_which_loss_it_is(held: Bounds | None, stored: str | None, said: str) -> None:
    assert re.search(said, str(find_loss(OffsetRange(A, 20, 40), held, stored)))


def test_a_log_that_was_cut_and_has_grown_past_the_place(tmp_path: Path) -> None:
    name = TopicPartition("events", 0)
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events")
        logs[name].append([odradek.Record(value=b"x")] * 10)
    checkpoint = tmp_path / "events-0" / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n2\n0 0\n4 3\n")
    with open_topics(SourceOptions.parse({"path": str(tmp_path), "subscribe": "events"})) as topics:
        place = position_at(topics.bounds([name])[name], 8)
        assert place.leader_epoch == 4
        checkpoint.write_text("0\n3\n0 0\n4 3\n6 8\n")
        for fail_on_data_loss in (True, False):
            check_places(topics, topics.bounds([name]), {name: place}, fail_on_data_loss=fail_on_data_loss)
        # Epoch 6 began before the place: those records replace what epoch 4 had there.
        checkpoint.write_text("0\n3\n0 0\n4 3\n6 5\n")
        bounds = topics.bounds([name])
        with pytest.raises(DataLossError, match="truncated to 5 and grown since") as caught:
            check_places(topics, bounds, {name: place}, fail_on_data_loss=True)
        assert (caught.value.cause, caught.value.cut_offset) == (LossCause.TRUNCATION, 5)
        check_places(topics, bounds, {name: place}, fail_on_data_loss=False)
        # An epoch that the log does not know proves nothing.
        check_places(topics, bounds, {name: replace(place, leader_epoch=9)}, fail_on_data_loss=True)


def test_partitions_that_were_read_before_and_are_gone(fixture_4_3_1: KafkaFixture) -> None:
    gone, other = TopicPartition("gone", 0), TopicPartition("v2-none", 0)
    with open_topics(SourceOptions.parse({"path": str(fixture_4_3_1.log_dir), "subscribe": "gone"})) as topics:

        def found(**options: str) -> list[TopicPartition]:
            return find_partitions(topics, SourceOptions.parse({"path": "/", **options}), [gone, other])

        assert found(subscribe="gone") == found(assign='{"gone": [0]}') == found(subscribePattern="gon.") == [gone]
        assert found(subscribe="v2-none") == [other]
        for options in ({"subscribe": "gone,nowhere"}, {"assign": '{"gone": [0, 1]}'}):
            with pytest.raises(OptionError, match="does not exist"):
                found(**options)


def test_a_loss_is_an_error_or_what_is_left_is_read() -> None:
    wanted = [OffsetRange(A, 5, 20), OffsetRange(B, 3, 9), OffsetRange(TopicPartition("c", 0), 0, 1)]
    with pytest.raises(DataLossError, match=r"a-0: offsets \[5, 20\) are wanted, but it holds \[10, 100\)"):
        within(wanted, BOUNDS, fail_on_data_loss=True)
    assert within(wanted, BOUNDS, fail_on_data_loss=False) == [OffsetRange(A, 10, 20), OffsetRange(B, 3, 5)]


@pytest.mark.parametrize(
    ("spec", "offsets"),
    [
        (OffsetSpec(-2), {A: 10, B: 0}),
        (OffsetSpec(-1), {A: 100, B: 5}),
        (OffsetSpec(offsets={A: 50, B: -1}), {A: 50, B: 5}),
        (OffsetSpec(offsets={A: 50}, topics={"b": -2}), {A: 50, B: 0}),
        (OffsetSpec(topics={"a": -1, "b": -2}), {A: 100, B: 0}),
    ],
)
def test_resolves_rules(spec: OffsetSpec, offsets: dict[TopicPartition, int]) -> None:
    assert resolve(spec, "starting", NOBODY, BOUNDS, end_for_later_times=False) == offsets


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("starting", OffsetSpec(offsets={A: 1}), r"missing: b-0 \(-2 is earliest\)$"),
        ("ending", OffsetSpec(topics={"b": -1}), r"missing: a-0 \(-1 is latest\)$"),
        ("starting", OffsetSpec(timestamps={A: 1}), "missing: b-0$"),
        ("starting", OffsetSpec(offsets={A: 1, B: 1, TopicPartition("c", 3): 1}), "not read: c-3"),
        ("starting", OffsetSpec(topics={"a": -2, "b": -2, "c": -2}), "topics that are not read: c"),
    ],
)
def test_offsets_name_every_partition_and_no_other(name: str, spec: OffsetSpec, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        resolve(spec, name, NOBODY, BOUNDS, end_for_later_times=False)


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 94, 95, 96, 1000])
def test_a_limit_is_shared_out(limit: int) -> None:
    ranges = [OffsetRange(A, 10, 100), OffsetRange(B, 0, 5)]
    cut_down = limited(ranges, limit)
    spans = [end - start for _, start, end in cut_down]
    # Each gets its turn, so no limit is below the number of partitions.
    assert sum(spans) == min(95, max(limit, 2))
    assert min(spans) >= 1
    assert [part.start_offset for part in cut_down] == [10, 0]


@pytest.mark.parametrize("most", [None, 4, 20])
def test_pieces_join_to_the_whole(most: int | None) -> None:
    ranges = [OffsetRange(A, 10, 100), OffsetRange(B, 0, 5)]
    found = pieces(ranges, most)
    assert most is None or max(end - start for _, start, end in found) <= most
    for name, start, end in ranges:
        own = [part for part in found if part.topic_partition == name]
        assert own[0].start_offset == start
        assert own[-1].end_offset == end
        assert all(one.end_offset == other.start_offset for one, other in itertools.pairwise(own))


def test_what_is_done_is_cut_off() -> None:
    ranges = [OffsetRange(A, 10, 100), OffsetRange(B, 0, 5)]
    assert cut(ranges, {}) == ranges
    assert cut(ranges, {A: 50, B: 5}) == [OffsetRange(A, 50, 100)]
    assert cut(ranges, {A: 200, B: 0}) == [OffsetRange(B, 0, 5)]


def test_the_same_ranges_have_the_same_token() -> None:
    ranges = [OffsetRange(A, 10, 100), OffsetRange(B, 0, 5)]
    assert token(ranges) == token(ranges[::-1])
    assert token(ranges) != token([OffsetRange(A, 10, 100), OffsetRange(B, 0, 6)])
