from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from odradek.broker.configs.topic_keys import TOPIC_KEYS
from odradek.broker.errors import ApiError
from odradek.errors import InvalidConfigError
from odradek.storage.config_def import int64, number, split_words, words
from odradek.storage.topic_config import BROKER_SYNONYMS, TOPIC_CONFIGS, TopicConfig

INT64 = (1 << 63) - 1
# Name, a few values that Kafka's ConfigDef takes, as they are read, and a few that it refuses.
CASES = [
    ("cleanup.policy", {"compact": ("compact",), " delete , compact": ("delete", "compact"), "": ()}, ["x", "a,,b"]),
    ("cleanup.policy", {"compact,compact": ("compact",), "delete,compact,delete": ("delete", "compact")}, []),
    ("compression.type", {"zstd": "zstd", " producer ": "producer"}, ["none", "ZSTD", ""]),
    ("compression.gzip.level", {"-1": -1, "1": 1, "9": 9}, ["0", "10", "-2", "1.0"]),
    ("compression.lz4.level", {"1": 1, "17": 17}, ["0", "18"]),
    ("compression.zstd.level", {"-131072": -131072, "22": 22}, ["-131073", "23"]),
    ("delete.retention.ms", {"0": 0}, ["-1"]),
    ("file.delete.delay.ms", {"0": 0}, ["-1"]),
    ("flush.messages", {"1": 1, str(INT64): INT64}, ["0", str(INT64 + 1)]),
    ("flush.ms", {"0": 0}, ["-1"]),
    ("index.interval.bytes", {"0": 0, "2147483647": 2147483647}, ["-1", "2147483648"]),
    ("internal.segment.bytes", {"14": 14}, ["x"]),
    ("max.compaction.lag.ms", {"1": 1}, ["0"]),
    ("min.compaction.lag.ms", {"0": 0}, ["-1"]),
    ("max.message.bytes", {"0": 0}, ["-1"]),
    ("max.decompressed.message.bytes", {"1": 1, "2147483639": 2147483639}, ["0", "2147483640"]),
    ("remote.copy.lag.ms", {"-1": -1}, ["-2"]),
    ("remote.copy.lag.bytes", {"-1": -1}, ["-2"]),
    ("errors.deadletterqueue.group.enable", {"true": True}, ["yes"]),
    ("message.timestamp.type", {"LogAppendTime": "LogAppendTime"}, ["logappendtime"]),
    ("message.timestamp.before.max.ms", {"0": 0}, ["-1"]),
    ("message.timestamp.after.max.ms", {"0": 0}, ["-1"]),
    (
        "min.cleanable.dirty.ratio",
        {"0": 0.0, "1.0": 1.0, ".5": 0.5, "1e-2": 0.01},
        ["1.1", "-0.1", "nan", "half", "0_1"],
    ),
    ("min.insync.replicas", {"1": 1}, ["0"]),
    ("preallocate", {"true": True, "FALSE": False}, ["yes", "1"]),
    ("retention.bytes", {"-1": -1, "-5": -5, "+7": 7}, ["1k", "9" * 5000]),
    ("retention.ms", {"-1": -1, "٣": 3}, ["-2", "1_000"]),
    ("segment.bytes", {"1048576": 1048576}, ["1048575", "2147483648"]),
    ("segment.index.bytes", {"4": 4}, ["3"]),
    ("segment.ms", {"1": 1}, ["0"]),
    ("segment.jitter.ms", {"0": 0}, ["-1"]),
    ("unclean.leader.election.enable", {"true": True}, [""]),
    ("leader.replication.throttled.replicas", {"*": ("*",), "0:1,1:1": ("0:1", "1:1"), "": ()}, ["0", "*,0:1"]),
    ("follower.replication.throttled.replicas", {"*": ("*",)}, ["a:b"]),
    ("remote.storage.enable", {"false": False}, ["true", "off"]),
    ("remote.log.copy.disable", {"true": True}, ["off"]),
    ("remote.log.delete.on.disable", {"true": True}, ["off"]),
    ("local.retention.ms", {"-2": -2}, ["-3"]),
    ("local.retention.bytes", {"-2": -2}, ["-3"]),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "taken", "refused"), CASES)
def test_values(name: str, taken: dict[str, object], refused: list[str]) -> None:
    for text, value in taken.items():
        config = TopicConfig.parse({name: text})
        assert (config.value(name), config.overrides) == (value, {name: text})
    for text in refused:
        with pytest.raises(InvalidConfigError, match=f"^INVALID_CONFIG \\(40\\): {name}: ") as caught:
            TopicConfig.parse({name: text})
        assert (caught.value.error_code, caught.value.config_name) == (40, name)


def test_every_setting_has_a_case_and_an_attribute() -> None:
    assert {name for name, _, _ in CASES} == set(TOPIC_CONFIGS)
    attributes = {item.name for item in dataclasses.fields(TopicConfig)} - {"overrides"}
    assert {name.replace(".", "_") for name in TOPIC_CONFIGS} == attributes
    assert set(BROKER_SYNONYMS) <= set(TOPIC_CONFIGS)


def test_unknown_settings() -> None:
    for name in ("retention", "message.format.version", "overrides", "retention_ms"):
        with pytest.raises(InvalidConfigError, match=name):
            TopicConfig.parse({name: "1"})
        with pytest.raises(InvalidConfigError, match=name):
            TopicConfig().value(name)
    # Another version of Kafka may have written it, so a folder that has it still opens.
    assert TopicConfig.load({"message.format.version": "2.8", "flush.ms": "1"}).flush_ms == 1
    with pytest.raises(InvalidConfigError, match="is not text"):
        TopicConfig.parse({"flush.ms": None})  # type: ignore[dict-item]


def test_a_brokers_settings_are_its_topics_defaults() -> None:
    broker = {
        "log.retention.hours": "2",
        "log.roll.hours": "3",
        "log.roll.ms": "5",
        "log.segment.bytes": "2000000",
        "message.max.bytes": "10",
        "node.id": "1",
    }

    config = TopicConfig.parse({"segment.bytes": "3000000"}, broker)

    assert (config.retention_ms, config.segment_ms, config.max_message_bytes) == (7_200_000, 5, 10)
    assert (config.segment_bytes, config.overrides) == (3_000_000, {"segment.bytes": "3000000"})
    assert TopicConfig.load({}, {"log.retention.hours": "-1"}).retention_ms == -1
    assert TopicConfig.load({}, {"log.retention.minutes": "1", "log.retention.hours": "2"}).retention_ms == 60_000
    with pytest.raises(InvalidConfigError, match=r"log\.roll\.hours: 'x' is not a whole number"):
        TopicConfig.load({}, {"log.roll.hours": "x"})
    with pytest.raises(InvalidConfigError, match=r"log\.segment\.bytes"):
        TopicConfig.load({}, {"log.segment.bytes": "1"})


def test_what_the_rest_of_storage_asks() -> None:
    assert TopicConfig().is_deleted
    assert not TopicConfig().is_compacted
    assert TopicConfig.parse({"cleanup.policy": "compact"}).is_compacted
    assert TopicConfig().max_segment_bytes == 1 << 30
    assert TopicConfig.parse({"internal.segment.bytes": "100"}).max_segment_bytes == 100


@pytest.mark.parametrize("parse", ["folder", "broker"])
def test_text_is_trimmed_and_read_as_java_does(parse: str) -> None:
    """Apache Kafka does not start on a folder whose setting begins with a non-breaking space."""

    def value(name: str, text: str) -> Any:
        if parse == "folder":
            return TopicConfig.parse({name: text}).value(name)
        return TOPIC_KEYS[name].parse(text)

    assert value("flush.ms", " \x01\x1f+5\t") == 5
    assert value("flush.ms", "\u0663") == 3
    assert value("min.cleanable.dirty.ratio", "\x000.5f ") == 0.5
    assert value("compression.type", "\x00zstd") == "zstd"
    for name, text in {
        "flush.ms": "5",
        "min.cleanable.dirty.ratio": "0.5",
        "preallocate": "true",
        "compression.type": "zstd",
        "cleanup.policy": "compact",
    }.items():
        for blank in "\xa0\u2003\x85\u3000":
            for wrong in (blank + text, text + blank):
                with pytest.raises((InvalidConfigError, ApiError)):
                    value(name, wrong)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (number(0, 1), "1" * 16_000 + "x"),
        (int64(0), "1" * 16_000),
        (words, "a" + " " * 16_000 + "b"),
    ],
)
def test_a_long_value_takes_no_time_that_grows_with_its_square(parse: Callable[[str], object], text: str) -> None:
    begun = time.thread_time()
    with suppress(ValueError):
        parse(text)
    # A millisecond; a second if each blank or digit is tried with each other one.
    assert time.thread_time() - begun < 0.1


def test_words_are_without_blanks_around_them() -> None:
    assert split_words(" a b ,\tc,, d\f") == ["a b", "c", "", "d"]
    assert split_words(" ") == []
