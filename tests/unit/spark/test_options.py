from __future__ import annotations

import json

import pytest

from odradek.errors import OptionError
from odradek.kafka.settings import tell_once
from odradek.spark.options import EARLIEST, LATEST, OffsetSpec, SourceOptions, offsets_by_topic, parse_offsets
from odradek.storage.names import TopicPartition

FOLDER = {"path": "data", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = SourceOptions.parse(FOLDER)
    assert (batch.starting.default, batch.ending.default) == (EARLIEST, LATEST)
    assert SourceOptions.parse(FOLDER, streaming=True).starting.default == LATEST
    assert (batch.fail_on_data_loss, batch.include_headers, batch.isolation) == (True, False, "read_uncommitted")


def test_names_are_not_case_sensitive() -> None:
    parsed = SourceOptions.parse({"PATH": "data", "SubscribePattern": " ^a.* ", "INCLUDEHEADERS": "TRUE"})
    assert parsed.include_headers
    assert [topic for topic in ("ab", "xab", "abc") if parsed.wants(topic)] == ["ab", "abc"]


def test_a_pattern_is_found_in_a_part_of_the_name() -> None:
    part = SourceOptions.parse({"path": "data", "subscribePattern": "b."})
    assert [topic for topic in ("ab", "bc", "abc", "__a-bc") if part.wants(topic)] == ["bc", "abc", "__a-bc"]
    everything = SourceOptions.parse({"path": "data", "subscribePattern": ".*"})
    assert [topic for topic in ("t", "__mine", "__consumer_offsets") if everything.wants(topic)] == ["t", "__mine"]


def test_offsets_go_both_ways() -> None:
    text = '{"t":{"0":23,"1":-2}}'
    assert parse_offsets(text, "startingOffsets") == {T0: 23, T1: -2}
    assert json.dumps(offsets_by_topic({T1: -2, T0: 23}), separators=(",", ":")) == text


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"startingOffsets": "Earliest"}, OffsetSpec(EARLIEST)),
        ({"startingOffsets": '{"t": {"0": 5}}'}, OffsetSpec(offsets={T0: 5})),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 99}}', "startingOffsets": "earliest"},
            OffsetSpec(timestamps={T0: 99}),
        ),
        ({"startingOffsets": " latest "}, OffsetSpec(LATEST)),
        ({"startingTimestamp": " 7 "}, OffsetSpec(timestamp=7)),
        ({"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"t": {"0": 99}}'}, OffsetSpec(timestamp=7)),
    ],
)
def test_times_go_before_offsets(options: dict[str, str], spec: OffsetSpec) -> None:
    assert SourceOptions.parse({**FOLDER, **options}, streaming=True).starting == spec


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "t"}, "path"),
        ({"path": "data", "subscribe": "t", "kafka.bootstrap.servers": "h:9092"}, "path"),
        ({"path": "data"}, "subscribe"),
        ({**FOLDER, "assign": '{"t": [0]}'}, "one of subscribe"),
        ({"path": "data", "subscribe": " , "}, "names no topic"),
        ({"path": "data", "subscribePattern": "("}, "subscribePattern"),
        ({"path": "data", "subscribePattern": " "}, "subscribePattern is empty"),
        ({"paths": '["a","b"]', "subscribe": "t"}, "load takes the path of one log directory, not several"),
        ({"path": "hdfs://host/data", "subscribe": "t"}, "on a file system of this machine, not at hdfs:"),
        ({"path": "data", "assign": '{"t": 0}'}, "assign"),
        ({"path": "data", "assign": '{"t": ["0"]}'}, "assign"),
        ({**FOLDER, "startingOfsets": "earliest"}, "unknown option startingofsets"),
        ({**FOLDER, "startingOffsets": "latest"}, "reads nothing"),
        ({**FOLDER, "endingOffsets": '{"t": {"0": -2}}'}, "reads nothing"),
        ({**FOLDER, "startingOffsets": '{"t": "latest"}'}, "reads nothing"),
        ({**FOLDER, "endingOffsets": '{"t": "earliest"}'}, "reads nothing"),
        ({**FOLDER, "startingOffsets": '{"t": "smallest"}'}, "topic t needs an object"),
        ({**FOLDER, "startingOffsetsByTimestamp": '{"t": "earliest"}'}, "topic t needs an object"),
        ({**FOLDER, "farTimestamps": "keep"}, "farTimestamps must be one of error, null, not 'keep'"),
        ({**FOLDER, "startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets"),
        ({**FOLDER, "startingOffsets": '{"t": [1]}'}, "startingOffsets"),
        ({**FOLDER, "startingOffsets": "sometimes"}, "startingOffsets"),
        ({**FOLDER, "startingOffsets": "smallest"}, "startingOffsets: .* not smallest; today it is earliest"),
        ({**FOLDER, "startingTimestamp": "-1"}, "startingTimestamp"),
        ({**FOLDER, "kafka.security.protocol": "SSL"}, "kafka.security.protocol is for a broker"),
        ({**FOLDER, "groupIdPrefix": "x"}, "groupIdPrefix is for a broker"),
        ({**FOLDER, "isolation.level": "serializable"}, "isolation.level is read_uncommitted or read_committed"),
        ({**FOLDER, "includeHeaders": "yes"}, "includeHeaders"),
        ({**FOLDER, "minPartitions": "0"}, "minPartitions"),
        ({**FOLDER, "maxOffsetsPerTrigger": "10"}, "for streams"),
    ],
)
def test_names_the_option_that_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SourceOptions.parse(options)


def test_options_of_sparks_source_that_mean_nothing_here_are_told(caplog: pytest.LogCaptureFixture) -> None:
    tell_once.cache_clear()
    names = ["groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"]
    for _ in range(2):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:9092", "subscribe": "t", **dict.fromkeys(names, "1")})
    assert caplog.messages == [f"{name} has no effect here" for name in names]


@pytest.mark.parametrize(("text", "delay_ms"), [("30s", 30_000), ("2 min", 120_000), ("1d", 86_400_000), ("250", 250)])
def test_a_delay_is_written_as_for_spark(text: str, delay_ms: int) -> None:
    assert SourceOptions.parse({**FOLDER, "maxTriggerDelay": text}, streaming=True).max_trigger_delay_ms == delay_ms


def test_a_micro_batch_needs_no_more_than_it_may_take() -> None:
    limits = {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(11\) is greater than maxOffsetsPerTrigger \(10\)"):
        SourceOptions.parse({**FOLDER, **limits}, streaming=True)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batch queries"):
        SourceOptions.parse({**FOLDER, "endingOffsets": "latest"}, streaming=True)
