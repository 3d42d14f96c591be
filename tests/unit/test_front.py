"""What a caller may get wrong: each argument of each public callable, given what it cannot be, is refused in words."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import odradek

WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    2**31,
    2**63,
    -(2**70),
    math.nan,
    math.inf,
    1.5,
    "",
    "3",
    "a\0b",
    "x" * 300,
    "\ud800",
    b"",
    b"t",
    [],
    [5],
    (),
    ("events",),
    {},
    {5: 5},
    {"retention.ms": None},
    re.compile(b"x"),
    object(),
    print,
]

RAW = re.compile(
    r"object (is not|has|cannot|can)|not callable|not supported between|unhashable|expected str, bytes|"
    r"must be (str|real number|an integer)|unsupported operand|cannot be interpreted|has no len|embedded null|"
    r"codec can't|got an unexpected|argument of type|not iterable|not subscriptable|too (large|big) to convert|"
    r"cannot convert|unpack|bytes pattern",
)
"""How CPython words it where nobody looked at an argument first."""


@contextmanager
def within_seconds(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not at its end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def exhausted(result: Any) -> None:
    """Take what an iterator gives, and close what was opened."""
    if isinstance(result, odradek.Consumer):
        result.poll()
    elif inspect.isgenerator(result) or hasattr(result, "read_next_batch"):
        list(result)
    if not isinstance(result, odradek.Log) and hasattr(result, "close"):
        closing = result.close()
        if inspect.iscoroutine(closing):
            asyncio.run(closing)


def complaint(call: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong with how a call ends, or None where it works or is refused in words."""
    try:
        with within_seconds(10):
            exhausted(call(**arguments))
    except (odradek.OdradekError, TypeError, ValueError) as error:
        text = str(error)
        return f"{type(error).__name__}: {text}" if RAW.search(text) or not text else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


Case = tuple[str, Callable[..., Any], dict[str, Any]]


def cases(tmp_path: Path) -> Iterator[Case]:
    """Give the public callables, each with arguments that it takes."""
    data = tmp_path / "data"
    logs = odradek.open(data)
    logs.create_topic("events", partitions=2)
    logs["events", 0].append([odradek.Record(b"k", b"v", (), 1_600_000_000_000)] * 3)
    log, topic = logs["events", 0], logs.topic("events")
    reader = odradek.open(data, mode="r")
    names = iter(range(1_000_000))

    def opened(path: Any, **options: Any) -> Any:
        return odradek.open(path, **options)

    yield "open", opened, {"path": tmp_path / "other", "mode": "a", "config": {}, "max_open_logs": 10}
    yield "open", opened, {"path": tmp_path / "other", "files": odradek.FileSystem(), "clock": lambda: 0}
    yield "open to read", opened, {"path": data, "mode": "r"}
    yield "LogDirectory", odradek.LogDirectory, {"path": data, "mode": "r"}
    yield "WritableLogDirectory", odradek.WritableLogDirectory, {"path": tmp_path / "third"}

    def create(name: Any = None, **options: Any) -> Any:
        return logs.create_topic(f"t{next(names)}" if name is None else name, **options)

    yield "create_topic", create, {"partitions": 1, "config": {}}
    yield "create_topic", lambda name: logs.create_topic(name), {"name": "fresh"}
    yield "create_topic", create, {"topic_id": None}
    yield "create_partitions", logs.create_partitions, {"name": "events", "total": 3}
    yield "alter_topic_config", logs.alter_topic_config, {"name": "events", "changes": {"retention.ms": 5}}
    yield "delete_topic", lambda name: logs.delete_topic(name), {"name": "absent"}
    yield "take_producer_ids", logs.take_producer_ids, {"count": 1}
    yield "topic_id", logs.topic_id, {"topic": "events"}
    for opener in (logs, reader):
        yield "topic", opener.topic, {"name": "events"}
        yield "topic_config", opener.topic_config, {"topic": "events"}
        yield "topic_partitions", opener.topic_partitions, {"topic": "events"}
        yield "logs[]", opener.__getitem__, {"key": ("events", 0)}
        yield "logs[]", lambda t, p, logs=opener: logs[t, p], {"t": "events", "p": 0}
        yield "in logs", opener.__contains__, {"key": ("events", 0)}
        yield "topic[]", opener.topic("events").__getitem__, {"partition": 0}
        yield "topic.read", opener.topic("events").read, {"since": 0, "until": 5, "isolation": "read_committed"}
    record = {"key": b"k", "value": b"v", "headers": (), "timestamp": 5}
    yield "Record", odradek.Record, record | {"offset": None, "timestamp_type": None}
    for append in (log.append, topic.append):
        yield "append", append, record
        yield "append", append, {"records": [odradek.Record(b"k")]}
    yield "append_batches", log.append_batches, {"data": b"", "origin": odradek.AppendOrigin.CLIENT}
    yield "append_batches", log.append_batches, {"data": b"", "transaction_version": 0}
    yield "end_transaction", log.end_transaction, {"producer_id": 5, "producer_epoch": 0, "commit": True}
    yield (
        "end_transaction",
        log.end_transaction,
        {"producer_id": 6, "producer_epoch": 0, "commit": True, "coordinator_epoch": 0, "transaction_version": 0},
    )
    yield "delete_records", log.delete_records, {"before_offset": 0}
    for one in (log, reader["events", 0]):
        offsets = {"start_offset": None, "end_offset": None, "isolation": "read_uncommitted"}
        yield "read", one.read, offsets | {"since": 5, "until": 5}
        yield "slices", one.slices, offsets | {"slice_bytes": 1000}
        yield "bounds", one.bounds, offsets
        yield "tail", one.tail, {"count": 3, "isolation": "read_uncommitted"}
        yield "offset_for_time", one.offset_for_time, {"timestamp": 5, "isolation": "read_uncommitted"}
        yield "find_timestamp", one.find_timestamp, {"timestamp": 5, "end_offset": 2}
        yield "end_offset", one.end_offset, {"isolation": "read_uncommitted"}
        yield "aborted_transactions", one.aborted_transactions, {"start_offset": 0, "end_offset": 1}
    yield (
        "scan",
        odradek.scan,
        {"path": data, "topics": "events", "partitions": 0, "columns": ["offset"], "start_offset": 0, "end_offset": 1}
        | {"since": 5, "until": 5, "isolation": "read_uncommitted", "rows": 5},
    )
    place = {"path": data, "topics": "events", "group": None, "auto_offset_reset": "earliest", "follow": False}
    times = {"auto_commit_interval_ms": 5, "metadata_max_age_ms": 5, "isolation": "read_committed"}
    # A group of the folder commits under its lock: nobody has this one open for writing.
    unlocked = tmp_path / "unlocked"
    with odradek.open(unlocked) as free:
        free.create_topic("events")
        free.create_topic("__consumer_offsets")
    yield "open_store", lambda group: odradek.open_store(f"folder:{unlocked}?group={group}").load(), {"group": "g"}
    yield "open_store", lambda group: odradek.open_store(f"kafka://localhost:1/{group}"), {"group": "g"}
    place |= {"path": unlocked}
    yield "consume", odradek.consume, place | times
    yield "consume_async", odradek.consume_async, place | times
    store = f"file://{tmp_path}/offsets.json"
    yield "open_store", odradek.open_store, {"address": store, "options": {"timeout_ms": 5}}
    yield "open_store", lambda timeout_ms: odradek.open_store(store, {"timeout_ms": timeout_ms}), {"timeout_ms": 5}
    yield "Position", odradek.Position, {"offset": 0, "leader_epoch": 0, "topic_id": None, "batch": None}
    yield "Positions", odradek.Positions, {"positions": {}, "version": None}
    opened_store = odradek.open_store(store)

    def commit(positions: Any) -> Any:
        return opened_store.commit(positions, expected=opened_store.load())

    yield "commit", commit, {"positions": {}}
    partition = odradek.TopicPartition("events", 0)
    consumer = odradek.consume(data, "events", group=store, auto_offset_reset="earliest")

    def poll(**arguments: Any) -> Any:
        # With something to be had, so that no timeout is waited for.
        consumer.seek_to_beginning()
        return consumer.poll(**arguments)

    yield "poll", poll, {"timeout_ms": 0, "max_records": 5}
    yield "position", consumer.position, {"topic_partition": partition}
    yield "seek", consumer.seek, {"topic_partition": partition, "offset": 1}
    for method in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.pause, consumer.resume):
        yield method.__name__, lambda one, method=method: method(one), {"one": partition}
    yield "TopicConfig.parse", odradek.TopicConfig.parse, {"overrides": {}, "broker_config": {}}
    yield "TopicConfig.value", odradek.TopicConfig().value, {"name": "retention.ms"}
    consumer.close()
    reader.close()
    logs.close()


@pytest.mark.slow
def test_wrong_arguments_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What takes a relative path finds an empty folder.
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    complaints = []
    for name, call, arguments in cases(tmp_path):
        first = complaint(call, arguments)
        complaints += [f"{name} as it should be called: {first}"] * (first is not None)
        for argument in arguments:
            for wrong in WRONG:
                found = complaint(call, arguments | {argument: wrong})
                if found is not None:
                    complaints.append(f"{name}({argument}={wrong!r:.40}): {found:.200}")
    assert not complaints, "\n".join(complaints)


FRONT: Any = odradek
"""As a caller sees it whom no type checker warns."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("call", "kind", "reason"),
    [
        (lambda logs: logs.create_topic("u", partitions="3"), TypeError, r"partitions must be an int, not '3' \(str\)"),
        (lambda logs: logs.create_topic("u", partitions=0), odradek.InvalidPartitionsError, "0 partitions"),
        (lambda logs: logs.create_topic("u", partitions=-1), odradek.InvalidPartitionsError, "-1 partitions"),
        (lambda logs: logs.create_topic(5), TypeError, r"name must be a str, not 5 \(int\)"),
        (lambda logs: logs.create_topic(b"t"), TypeError, r"name must be a str, not b't' \(bytes\)"),
        (lambda logs: logs.create_topic(""), odradek.InvalidTopicError, "empty"),
        (
            lambda logs: logs.create_topic("u", config={5: 5}),
            TypeError,
            "a name in config must be a str, not 5",
        ),
        (
            lambda logs: logs.create_topic("u", config=["x"]),
            TypeError,
            r"config must be a mapping .*not \['x'\]",
        ),
        (lambda logs: logs.create_topic("u", topic_id="x"), TypeError, r"topic_id must be a UUID, not 'x' \(str\)"),
        (lambda logs: logs.delete_topic([]), TypeError, r"name must be a str, not \[\] \(list\)"),
        (lambda logs: logs.topic(None), TypeError, r"name must be a str, not None \(NoneType\)"),
        (lambda logs: logs.topic_config(None), TypeError, "topic must be a str, not None"),
        (lambda logs: logs.topic("t")["0"], TypeError, r"partition must be an int, not '0' \(str\)"),
        (lambda logs: logs.topic("t")[True], TypeError, r"partition must be an int, not True \(bool\)"),
        (lambda logs: logs.topic("t")[-1], odradek.UnknownTopicOrPartitionError, "t--1 is not in"),
        (lambda logs: FRONT.consume(logs.path, "t", group=5), TypeError, r"group must be the address .*not 5 \(int\)"),
        (lambda logs: FRONT.consume(logs.path, 5, auto_offset_reset=0), TypeError, r"not by 5 \(int\)"),
        (lambda logs: FRONT.consume(logs.path, [], auto_offset_reset=0), odradek.OptionError, "topics is empty"),
        (
            lambda logs: FRONT.scan(logs.path, columns=["x"]),
            odradek.OptionError,
            "no column 'x'; there are topic, part",
        ),
        (lambda logs: logs["t", 0].read_within("t"), TypeError, r"times must be a range .*not 't' \(str\)"),
        (lambda logs: FRONT.open(None), TypeError, r"path must be a str or a path, not None \(NoneType\)"),
        (lambda logs: FRONT.open(None, mode="r"), TypeError, r"path must be a str or a path, not None \(NoneType\)"),
        (lambda logs: FRONT.open("a\0b"), odradek.OptionError, "path has a character that no file's name has"),
        (lambda logs: FRONT.open(""), odradek.OptionError, "path is empty"),
        (lambda logs: FRONT.open("x", config=["x"]), TypeError, r"config must be a mapping .*not \['x'\]"),
        (lambda logs: FRONT.open("x", config={5: 5}), TypeError, "a name in config must be a str, not 5"),
    ],
)
def test_an_error_names_the_argument_and_what_was_given(
    tmp_path: Path, call: Callable[[Any], Any], kind: type[Exception], reason: str
) -> None:
    with FRONT.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        with pytest.raises(kind, match=reason):
            call(logs)
        # Nothing is left half done.
        logs.create_topic("u")
        assert logs.topics() == ["t", "u"]


def test_what_is_closed_is_not_entered(tmp_path: Path) -> None:
    with FRONT.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
    reading = FRONT.open(tmp_path, mode="r")
    read = reading["t", 0]
    reading.close()
    consumer = FRONT.consume(tmp_path, "t", auto_offset_reset="earliest")
    consumer.close()
    for closed in (logs, log, reading, read, consumer):
        with pytest.raises(odradek.LogError, match="closed"), closed:
            pytest.fail("entered")


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(odradek.LogError, match="the working directory: No such file"):
        FRONT.open("data")
