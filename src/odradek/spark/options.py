"""The options of `format("odradek")`: the names of Spark's own Kafka source, for a folder and for a broker.

    path                          a Kafka log directory             | one of the two
    kafka.bootstrap.servers       a broker's addresses              |
    subscribe                     t1,t2                             | one of the three
    subscribePattern              a regular expression of names     |
    assign                        {"t1": [0, 1]}                    |
    startingOffsets, endingOffsets  earliest, latest, {"t": {"0": 23, "1": -2}} or {"t": "latest"};
                                  as an offset, -2 is earliest and -1 latest
    startingTimestamp, startingOffsetsByTimestamp, endingTimestamp, endingOffsetsByTimestamp      milliseconds
    isolation.level               read_uncommitted (the default) or read_committed
    farTimestamps                 error (the default) or null: of those outside of the years 1 to 9999

An unknown option is an error: if a misspelt option were ignored, the query would read something else.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from odradek.arguments import today
from odradek.errors import OptionError
from odradek.offsets.stream_offsets import is_topic
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import OnFarTimestamps
from odradek.spark.java_patterns import java_pattern
from odradek.storage.names import TopicPartition, is_internal

EARLIEST = -2
LATEST = -1
_EDGES = {"earliest": EARLIEST, "latest": LATEST}
MEGABYTE = 1 << 20
DEFAULT_SPLIT_BYTES = 128 * MEGABYTE


@dataclass(frozen=True)
class OffsetSpec:
    """Where to start, or to end: one rule for all partitions, or an offset for each.

    Attributes:
        default: `EARLIEST` or `LATEST`, for partitions that nothing else names; None if all must be named.
        topics: `EARLIEST` or `LATEST`, for all partitions of a topic.
        offsets: The offset of each partition, or `EARLIEST` or `LATEST`.
        timestamp: In all partitions, the first offset at or after this time in ms.
        timestamps: The same, with a time for each partition.
    """

    default: int | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceOptions:
    """The options of one source, checked.

    Attributes:
        path: The log directory; None if a broker is read.
        kafka: The options that start with `kafka.`, without that prefix.
        topics: The topics to read; empty if there is a pattern.
        pattern: A pattern of topic names.
        partitions: The partitions to read, from `assign`; all of the topics' if None.
        starting: Where to start.
        ending: Where to end.
        start_after_end: Whether a timestamp after the last record means the end of the log, not an error.
        include_headers: Whether the schema has `headers`.
        fail_on_data_loss: Whether missing records are an error.
        isolation: `read_uncommitted` or `read_committed`.
        far_timestamps: What is done about timestamps outside of the years 1 to 9999.
        min_partitions: The fewest splits wanted.
        max_split_bytes: About the most bytes of a split.
        max_split_records: About the most offsets of a split.
        max_offsets_per_trigger: The most offsets of a micro-batch.
        min_offsets_per_trigger: The fewest offsets of a micro-batch, unless `max_trigger_delay_ms` has passed.
        max_trigger_delay_ms: How long fewer offsets than `min_offsets_per_trigger` may wait.
        push_down: Whether the source takes filters from Spark.
    """

    path: str | None
    kafka: Mapping[str, str]
    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...] | None
    starting: OffsetSpec
    ending: OffsetSpec
    start_after_end: bool
    include_headers: bool
    fail_on_data_loss: bool
    isolation: Isolation
    far_timestamps: OnFarTimestamps
    min_partitions: int | None
    max_split_bytes: int
    max_split_records: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    push_down: bool

    def wants(self, topic: str) -> bool:
        """Return whether a topic is subscribed to."""
        if self.pattern is not None:
            # As in Spark's own source: in a part of the name, and in no internal topic's.
            return not is_internal(topic) and java_pattern(self.pattern).search(topic) is not None
        return topic in self.topics

    def wants_partition(self, name: TopicPartition) -> bool:
        """Return whether a partition is subscribed to."""
        return self.wants(name.topic) if self.partitions is None else name in self.partitions

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
        """Check the options of a reader.

        Args:
            options: What the user gave; names are not case-sensitive.
            streaming: Whether they are those of a stream.

        Raises:
            OptionError: An option is unknown, missing or wrong.
        """
        return _Parser(options, streaming).parse()


_FOR_BROKERS_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_NAMES = (
    *("path", "subscribe", "subscribePattern", "assign", "isolation.level", "includeHeaders", "failOnDataLoss"),
    "farTimestamps",
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("minPartitions", "maxSplitBytes", "maxRecordsPerPartition", "pushDownFilters"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *_FOR_BROKERS_ONLY,
)
_FOR_STREAMS_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_FOR_BATCHES_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Parser:
    def __init__(self, options: Mapping[str, str], streaming: bool) -> None:
        self._left = {name.lower(): value for name, value in options.items()}
        self._streaming = streaming

    def _take(self, name: str) -> str | None:
        return self._left.pop(name.lower(), None)

    def parse(self) -> SourceOptions:
        if "paths" in self._left:
            raise OptionError("load takes the path of one log directory, not several")
        known = {name.lower() for name in _NAMES}
        for name in sorted(self._left):
            # Checked first: an option that seems to be missing may be misspelt.
            if name not in known and not name.startswith("kafka."):
                raise OptionError(f"unknown option {name}{nearest(name, (*_NAMES, 'kafka.bootstrap.servers'))}")
        path = self._take("path")
        kafka = {name[6:]: self._left.pop(name) for name in list(self._left) if name.startswith("kafka.")}
        servers = kafka.get("bootstrap.servers")
        if (path is None) == (servers is None):
            raise OptionError("give either path (a log directory) or kafka.bootstrap.servers")
        isolation = self._isolation(kafka)
        if path is not None:
            path = local_folder(path, "path")
            self._refuse_for_a_folder(kafka)
        elif without_effect := [name for name in _FOR_BROKERS_ONLY if self._take(name) is not None]:
            from odradek.kafka.settings import tell_once

            for name in without_effect:
                tell_once(f"{name} has no effect here")
        topics, pattern, partitions = self._subscription()
        starting = self._offset_spec("starting", LATEST if self._streaming else EARLIEST)
        strategy = self._choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        for name in _FOR_BATCHES_ONLY if self._streaming else ():
            if self._take(name) is not None:
                raise OptionError(f"{name} is for batch queries: a stream has no end")
        ending = self._offset_spec("ending", LATEST)
        if not self._streaming:
            self._refuse_empty_ranges(starting, ending)
        parsed = SourceOptions(
            path=path,
            kafka=kafka,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            starting=starting,
            ending=ending,
            start_after_end=strategy == "latest",
            include_headers=self._boolean("includeHeaders", False),
            fail_on_data_loss=self._boolean("failOnDataLoss", True),
            isolation=isolation,
            far_timestamps=cast("OnFarTimestamps", self._choice("farTimestamps", ("error", "null"), "error")),
            min_partitions=self._number("minPartitions"),
            max_split_bytes=self._number("maxSplitBytes") or DEFAULT_SPLIT_BYTES,
            max_split_records=self._number("maxRecordsPerPartition"),
            max_offsets_per_trigger=self._number("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=self._number("minOffsetsPerTrigger"),
            max_trigger_delay_ms=self._duration_ms("maxTriggerDelay", 15 * 60_000),
            push_down=self._boolean("pushDownFilters", False),
        )
        least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError(f"minOffsetsPerTrigger ({least}) is greater than maxOffsetsPerTrigger ({most})")
        if not self._streaming and (parsed.max_offsets_per_trigger or parsed.min_offsets_per_trigger):
            raise OptionError(f"{', '.join(_FOR_STREAMS_ONLY)} are for streams")
        if self._left:
            raise OptionError(f"unknown option {min(self._left)}")
        return parsed

    def _isolation(self, kafka: dict[str, str]) -> Isolation:
        level = kafka.pop("isolation.level", None)
        own = self._take("isolation.level")
        if level is not None and own is not None and level != own:
            raise OptionError("isolation.level and kafka.isolation.level contradict each other")
        level = own or level or "read_uncommitted"
        check_isolation(level, "isolation.level")
        return cast("Isolation", level)

    def _refuse_for_a_folder(self, kafka: Mapping[str, str]) -> None:
        for name in sorted(kafka):
            raise OptionError(f"kafka.{name} is for a broker, and path is a folder: leave it out")
        for name in _FOR_BROKERS_ONLY:
            if self._take(name) is not None:
                raise OptionError(f"{name} is for a broker, and path is a folder: leave it out")

    def _subscription(self) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...] | None]:
        subscribe, pattern, assign = (self._take(name) for name in ("subscribe", "subscribePattern", "assign"))
        if [subscribe, pattern, assign].count(None) != 2:
            raise OptionError("give one of subscribe, subscribePattern and assign")
        if subscribe is not None:
            topics = tuple(sorted({topic.strip() for topic in subscribe.split(",") if topic.strip()}))
            if not topics:
                raise OptionError("subscribe names no topic")
            return topics, None, None
        if pattern is not None:
            pattern = pattern.strip()
            if not pattern:
                raise OptionError("subscribePattern is empty")
            java_pattern(pattern)
            return (), pattern, None
        assert assign is not None
        partitions = _parse_assign(assign)
        return tuple(sorted({name.topic for name in partitions})), None, partitions

    def _offset_spec(self, prefix: str, default: int) -> OffsetSpec:
        timestamp = self._take(f"{prefix}Timestamp")
        timestamps = self._take(f"{prefix}OffsetsByTimestamp")
        offsets = self._take(f"{prefix}Offsets")
        if timestamp is not None:
            if not re.fullmatch(r"\d{1,18}", timestamp := timestamp.strip()):
                raise OptionError(f"{prefix}Timestamp must be a number of milliseconds, not {timestamp!r}")
            return OffsetSpec(timestamp=int(timestamp))
        if timestamps is not None:
            return OffsetSpec(timestamps=parse_offsets(timestamps, f"{prefix}OffsetsByTimestamp", least=0))
        if offsets is None:
            return OffsetSpec(default)
        word = offsets.strip().lower()
        if word in _EDGES:
            return OffsetSpec(_EDGES[word])
        if told := today(word):
            raise OptionError(f"{prefix}Offsets: expected earliest, latest or JSON, not {word}{told}")
        topics: dict[str, int] = {}
        return OffsetSpec(offsets=parse_offsets(offsets, f"{prefix}Offsets", topics=topics), topics=topics)

    def _refuse_empty_ranges(self, starting: OffsetSpec, ending: OffsetSpec) -> None:
        if LATEST in (starting.default, *starting.topics.values(), *starting.offsets.values()):
            raise OptionError("startingOffsets: a batch query that starts at the latest offset reads nothing")
        if EARLIEST in (ending.default, *ending.topics.values(), *ending.offsets.values()):
            raise OptionError("endingOffsets: a batch query that ends at the earliest offset reads nothing")

    def _choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = (self._take(name) or default).lower()
        if text not in choices:
            raise OptionError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
        return text

    def _boolean(self, name: str, default: bool) -> bool:
        return self._choice(name, ("true", "false"), "true" if default else "false") == "true"

    def _number(self, name: str) -> int | None:
        text = self._take(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,18}", text) or not int(text):
            raise OptionError(f"{name} must be a number above zero, not {text!r}")
        return int(text)

    def _duration_ms(self, name: str, default: int) -> int:
        text = self._take(name)
        if text is None:
            return default
        # As Spark's own source: ms if there is no unit, and days too.
        duration_ms = int(text) if re.fullmatch(r"\d{1,12}", text) else parse_duration_ms(text)
        if duration_ms is None:
            raise OptionError(f"{name} must be a time such as 30s or 15m, not {text!r}")
        return duration_ms


def local_folder(path: str, name: str) -> str:
    """Return the path of a log directory, without the `file:` or `file://` with which Spark may name it.

    Raises:
        OptionError: It is on a file system that only Spark knows, or `file://` names a host.
    """
    scheme, colon, rest = path.partition(":")
    if not colon or (scheme.lower() != "file" and not rest.startswith("/")):
        return path
    if scheme.lower() != "file":
        raise OptionError(f"{name}: a log directory is on a file system of this machine, not at {path}")
    if rest.startswith("//") and not rest.startswith("///"):
        raise OptionError(f"{name}: file:/// and the folder's path, not {path}")
    return f"/{rest.lstrip('/')}" if rest.startswith("/") else rest


def parse_duration_ms(text: str) -> int | None:
    """Read a time such as `500ms`, `30s`, `15m` or `1h`, in ms; None if the text has another form."""
    match = re.fullmatch(r"(\d{1,12}) ?(ms|s|m|min|h|d)", text)
    return None if match is None else int(match[1]) * _DURATION_MS[match[2]]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` for the known name that is most like a misspelt one, or what an old one is today."""
    if told := today(name):
        return told
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def parse_offsets(
    text: str, name: str, *, least: int = EARLIEST, topics: dict[str, int] | None = None
) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 23, "1": -2}}`.

    Args:
        text: The JSON.
        name: The option, for the error.
        least: The smallest number allowed.
        topics: Gets `EARLIEST` or `LATEST` of topics with a word in the place of offsets; None refuses it.

    Raises:
        OptionError: The text does not have this form.
    """
    example = '{"topic": {"0": 23, "1": 42}}'
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name}: expected earliest, latest or JSON such as {example}: {error}") from error
    offsets: dict[TopicPartition, int] = {}
    if not isinstance(content, dict) or not content:
        raise OptionError(f"{name}: expected JSON such as {example}, not {text!r:.100}")
    for topic, partitions in content.items():
        if not is_topic(topic):
            # What a stream's progress has beside the offsets.
            continue
        if topics is not None and isinstance(partitions, str) and (word := partitions.strip().lower()) in _EDGES:
            topics[topic] = _EDGES[word]
            continue
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: topic {topic} needs an object such as {example}")
        for partition, offset in partitions.items():
            if not re.fullmatch(r"\d{1,10}", partition) or type(offset) is not int or offset < least:
                raise OptionError(f"{name}: {topic}: {partition!r}: {offset!r} is not a partition and its offset")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def offsets_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as nested dicts (topic, partition, offset), sorted."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topic": [0, 1]}'
    try:
        content = json.loads(text)
        assigned = sorted(
            {TopicPartition(topic, partition) for topic, partitions in content.items() for partition in partitions}
        )
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise OptionError(f"assign: expected JSON such as {example}, not {text!r:.100}") from error
    if not assigned or not all(type(name.partition) is int and name.partition >= 0 for name in assigned):
        raise OptionError(f"assign: expected JSON such as {example}, not {text!r:.100}")
    return tuple(assigned)
