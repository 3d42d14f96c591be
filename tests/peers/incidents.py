"""A log directory with planted causes of thirty incidents, and the question that each of them makes somebody ask."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import odradek
from odradek.coordination.transactions.metadata import TransactionMetadata
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    encode_transaction_record,
)
from odradek.places.group_log import append_group_records
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.partitioner import partition_for_key
from odradek.storage.names import TopicPartition
from peers.batches import transactional

NOW = int(time.time() * 1000)
Answer = dict[str, Any]
Check = Callable[[Answer], bool]


class Question(NamedTuple):
    """A question of an incident.

    Attributes:
        text: What somebody asks.
        tool: The tool to begin with.
        arguments: Its arguments.
        evidence: What has to be seen, in whatever answers.
    """

    text: str
    tool: str
    arguments: dict[str, Any]
    evidence: Sequence[Check]


def _json(number: int, **fields: Any) -> bytes:
    return json.dumps({"id": number, **fields}).encode()


def _records(prefix: str, count: int, **fields: Any) -> list[Record]:
    return [
        Record(f"{prefix}-{number}".encode(), _json(number, **fields), timestamp=NOW - 100_000 + number)
        for number in range(count)
    ]


def _transaction(log: Any, records: list[Record], producer: int, epoch: int = 0, sequence: int = 0) -> None:
    log.append_batches(bytearray(transactional(records, producer, sequence, producer_epoch=epoch)))


def plant(path: Path) -> None:
    """Write the log directory."""
    with odradek.open(path) as logs:
        logs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        logs.create_topic("__transaction_state", 1, {"cleanup.policy": "compact"})
        plain = ("orders", "orders-eu", "bills", "images", "contacts", "reports", "events", "late", "done", "small")
        for topic in plain:
            logs.create_topic(topic, 1)
            logs[topic, 0].append(_records(topic, 60))
        logs["orders", 0].delete_records(40)
        logs["orders-eu", 0].append([Record(b"k", b'{"order":"ZX-81"}')])
        _plant_deletions(logs)
        _plant_transactions(logs)
        _plant_records(logs)
        _plant_groups(logs)
        _plant_segments(logs)
    _plant_damage(path)


def _plant_deletions(logs: Any) -> None:
    logs.create_topic("metrics", 1, {"retention.ms": "10000000", "file.delete.delay.ms": "0"})
    log = logs["metrics", 0]
    log.append([Record(b"m1", b"old", timestamp=NOW - 10**8)])
    log.roll()
    log.append([Record(b"m2", b"new", timestamp=NOW)])
    compacting = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    logs.create_topic("users", 1, compacting)
    log = logs["users", 0]
    log.append([Record(b"u1", b"first"), Record(b"u2", b"other"), Record(b"u1", b"second")])
    log.roll()
    log.append([Record(b"u3", b"last")])
    logs.maintain()
    logs.create_topic("profiles", 1, {"cleanup.policy": "compact"})
    logs["profiles", 0].append([Record(b"p1", b"Ann"), Record(b"p1", None)])


def _plant_transactions(logs: Any) -> None:
    for topic in ("payments", "ledger", "transfers", "stock", "prices", "bids", "settled"):
        logs.create_topic(topic, 1)
        logs[topic, 0].append(_records(topic, 5))
    log = logs["payments", 0]
    _transaction(log, [Record(b"pay-7", b'{"amount":7}')], 1)
    log.end_transaction(1, 0, commit=False)
    _transaction(logs["ledger", 0], [Record(b"led-7", b'{"entry":7}')], 2)
    log = logs["transfers", 0]
    _transaction(log, [Record(b"tr-1", b'{"from":1}')], 3)
    log.end_transaction(3, 1, commit=False)
    _transaction(log, [Record(b"tr-1", b'{"from":1}')], 3, 1)
    log.end_transaction(3, 1, commit=True)
    for producer, topic in enumerate(("stock", "prices", "bids", "settled"), 4):
        _transaction(logs[topic, 0], [Record(b"open", b"{}")], producer)
        logs[topic, 0].append(_records(topic, 5))
    states = {
        "payer": (1, 0, TransactionState.COMPLETE_ABORT, ()),
        "book": (2, 0, TransactionState.ONGOING, (("ledger", 0),)),
        "transferrer": (3, 1, TransactionState.COMPLETE_COMMIT, ()),
        "pricer": (5, 0, TransactionState.COMPLETE_COMMIT, ()),
        "bidder": (6, 0, TransactionState.ONGOING, (("bids", 0),)),
        "settler": (7, 0, TransactionState.ONGOING, (("settled", 0),)),
    }
    for name, (producer, epoch, state, partitions) in states.items():
        # The others may go on for a day: the tests that read them may run an hour after this module was imported.
        began, timeout_ms = (NOW - 3_600_000, 900_000) if name == "book" else (NOW, 86_400_000)
        known = TransactionMetadata(
            producer, epoch, timeout_ms, state, began, frozenset(TopicPartition(*one) for one in partitions), began
        )
        key, value = encode_transaction_record(name, known.to_value(0), 0)
        batch = build_batch([Record(key, value, timestamp=NOW)])
        logs["__transaction_state", 0].append_batches(bytearray(batch), origin=AppendOrigin.COORDINATOR)


def _plant_records(logs: Any) -> None:
    logs.create_topic("shipments", 3)
    wrong = (partition_for_key(b"ship-1", 3) + 1) % 3
    logs["shipments", wrong].append([Record(b"ship-1", b"{}")])
    logs["shipments", partition_for_key(b"ship-2", 3)].append([Record(b"ship-2", b"{}")])
    logs.create_topic("invoices", 1)
    same = Record(b"inv-1", b'{"total":9}')
    logs["invoices", 0].append([same, Record(b"inv-2", b"{}"), same])
    logs["invoices", 0].append([same])
    logs.create_topic("sensors", 1, {"retention.ms": "3600000", "message.timestamp.after.max.ms": str(2**62)})
    logs["sensors", 0].append([Record(b"s1", b"{}", timestamp=NOW + 10**11), Record(b"s2", b"{}", timestamp=NOW)])
    logs["bills", 0].append([Record(b"bad", b"{not json"), *_records("bills", 5)])
    logs["images", 0].append([Record(b"big", b'{"image":"' + b"A" * 60_000 + b'"}'), *_records("images", 5)])
    logs["contacts", 0].append([Record(b"gone", None), *_records("contacts", 5)])
    logs["events", 0].append(_records("events", 5, schema=2))
    logs["late", 0].append([Record(b"clock", b"{}", timestamp=86_400_000)])
    logs.create_topic("feed", 2)
    logs["feed", 0].append(_records("feed", 20))
    logs["feed", 1].append([Record(b"celebrity", _json(number)) for number in range(200)])


def _plant_groups(logs: Any) -> None:
    positions = {
        "billing": {("bills", 0): 60},
        "resize": {("images", 0): 60},
        "crm": {("contacts", 0): 60},
        "reporting": {("reports", 0): 10},
        "settle": {("settled", 0): 5},
        "feeder": {("feed", 0): 18, ("feed", 1): 0},
        "slow": {("orders", 0): 3},
        "restored": {("small", 0): 500},
        "old": {("vanished", 0): 5},
        "finished": {("done", 0): 60},
    }
    for group, offsets in positions.items():
        records = [
            encode_offset_commit(OffsetCommitKey(group, *name), OffsetCommitValue(offset, "", NOW))
            for name, offset in offsets.items()
        ]
        append_group_records(logs, group, records)


def _plant_segments(logs: Any) -> None:
    for topic in ("audit", "clicks", "carts", "views"):
        logs.create_topic(topic, 1, {"index.interval.bytes": "50"})
        for _ in range(3):
            logs[topic, 0].append(_records(topic, 10))
            logs[topic, 0].append(_records(topic, 10))
            logs[topic, 0].roll()
        logs[topic, 0].append(_records(topic, 10))
        logs[topic, 0].append(_records(topic, 10))


def _plant_damage(path: Path) -> None:
    for file in (path / "audit-0").glob("00000000000000000020.*"):
        file.unlink()
    torn = path / "clicks-0" / "00000000000000000060.log"
    torn.write_bytes(torn.read_bytes()[:-10])
    flipped = path / "carts-0" / "00000000000000000020.log"
    data = bytearray(flipped.read_bytes())
    data[100] ^= 0xFF
    flipped.write_bytes(data)
    index = path / "views-0" / "00000000000000000020.index"
    index.write_bytes(bytes(7 + 8 * 5))
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)


# -- questions


def item(**fields: Any) -> Check:
    """Return what sees an item with these fields."""
    return lambda answer: any(all(one.get(name) == value for name, value in fields.items()) for one in answer["items"])


def note(text: str) -> Check:
    """Return what sees a note that has a text in it."""
    return lambda answer: any(text in one for one in answer["notes"])


def reason(text: str, isolation: str = "read_uncommitted") -> Check:
    """Return what sees why `explain` says that a record is given, or is not."""
    return lambda answer: any(one.get(isolation, {}).get("reason") == text for one in answer["items"])


def written(part: str, content: Any) -> Check:
    """Return what sees a record with a key or a value."""
    return lambda answer: any((one.get("untrusted") or {}).get(part) == content for one in answer["items"])


def finding(kind: str, topic: str) -> Check:
    """Return what sees a finding of `verify`."""
    return lambda answer: any(one.get("kind") == kind and one.get("topic") == topic for one in answer["items"])


def _get(topic: str, offset: int) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "offset": offset}


QUESTIONS = [
    Question(
        "Where is offset 7 of orders?",
        "get",
        _get("orders", 7),
        [reason("below the log start offset"), item(log_start_offset=40)],
    ),
    Question(
        "Where is m1 of metrics?",
        "get",
        {"topic": "metrics", "key": "m1"},
        [note("offsets below 1 were deleted"), note("retention.ms is 10000000")],
    ),
    Question(
        "Where is the first version of u1?",
        "get",
        _get("users", 0),
        [reason("compacted away"), note("cleanup.policy has compact")],
    ),
    Question(
        "A consumer never saw pay-7.",
        "find",
        {"topic": "payments", "pattern": "pay-7", "isolation": "read_committed"},
        [reason("aborted", "read_committed"), item(kind="aborted", producer_id=1)],
    ),
    Question(
        "A consumer never saw led-7.",
        "find",
        {"topic": "ledger", "pattern": "led-7", "isolation": "read_committed"},
        [reason("undecided", "read_committed"), item(kind="open", producer_id=2, is_hanging=True)],
    ),
    Question("Who deleted profile p1?", "get", {"topic": "profiles", "key": "p1"}, [item(offset=1, value_kind="null")]),
    Question(
        "Where is order ZX-81?",
        "find",
        {"topic": "orders", "pattern": "ZX-81"},
        [item(topic="orders-eu", offset=60)],
    ),
    Question(
        "Where is audit's offset 25?",
        "get",
        _get("audit", 25),
        [reason("missing"), finding("gap", "audit")],
    ),
    Question("What became of the last clicks?", "describe", {"topic": "clicks"}, [finding("damage", "clicks")]),
    Question(
        "Reading carts stops at 21.",
        "explain",
        _get("carts", 21),
        [reason("damaged"), finding("damage", "carts")],
    ),
    Question("Look-ups in views are odd.", "verify", {"topic": "views"}, [finding("index", "views")]),
    Question(
        "Which shipments are in the wrong partition?",
        "find",
        {"topic": "shipments", "condition": "partition <> default_partition"},
        [written("key", "ship-1")],
    ),
    Question(
        "Which invoices are there twice?",
        "aggregate",
        {"topic": "invoices", "group_by": ["key", "value"], "values": ["min(offset)", "max(offset)"], "top": 1},
        [item(count=3), lambda answer: "producer" not in str([one.get("facts") for one in answer["items"]])],
    ),
    Question("Was a producer of transfers fenced?", "transactions", {"topic": "transfers"}, [item(is_fenced=True)]),
    Question(
        "read_committed readers of stock stand still.",
        "describe",
        {"topic": "stock"},
        [item(kind="open", producer_id=4, is_hanging=True), note("no transactional id has its producer")],
    ),
    Question(
        "read_committed readers of prices stand still.",
        "describe",
        {"topic": "prices"},
        [item(kind="open", is_hanging=True), note("its id is COMPLETE_COMMIT")],
    ),
    Question(
        "Does the transaction in bids hang?", "describe", {"topic": "bids"}, [item(kind="open", is_hanging=False)]
    ),
    Question(
        "Why does retention delete nothing of sensors?",
        "describe",
        {"topic": "sensors"},
        [item(future_offset=0), note("retention.ms is 3600000"), item(offset=0, topic="sensors")],
    ),
    Question(
        "billing fails again and again.",
        "groups_and_lag",
        {"group": "billing"},
        [item(topic="bills", offset=60, value_kind="text"), item(topic="bills", offset=61, value_kind="json")],
    ),
    Question(
        "resize runs out of memory.",
        "groups_and_lag",
        {"group": "resize"},
        [lambda answer: any(_size(one) > 60_000 for one in answer["items"])],
    ),
    Question(
        "crm fails with a null pointer.",
        "groups_and_lag",
        {"group": "crm"},
        [item(topic="contacts", offset=60, value_kind="null")],
    ),
    Question(
        "reporting is behind.",
        "groups_and_lag",
        {"group": "reporting"},
        [item(lag=50), note("the group has no members")],
    ),
    Question(
        "settle does not get on.",
        "groups_and_lag",
        {"group": "settle"},
        [note("it waits for the transaction"), item(kind="open", topic="settled", producer_id=7)],
    ),
    Question(
        "Why is feeder so far behind in one partition?",
        "groups_and_lag",
        {"group": "feeder"},
        [
            item(topic="feed", partition=1, lag=200),
            lambda answer: any((one.get("untrusted") or {}).get("group") == ["celebrity"] for one in answer["items"]),
        ],
    ),
    Question(
        "slow has lost records.",
        "groups_and_lag",
        {"group": "slow"},
        [note("its position 3 was deleted"), item(log_start_offset=40)],
    ),
    Question(
        "restored reads nothing.",
        "groups_and_lag",
        {"group": "restored"},
        [note("its position 500 is beyond the end 60")],
    ),
    Question(
        "What does old read?",
        "groups_and_lag",
        {"group": "old"},
        [note("the partition does not exist any more")],
    ),
    Question(
        "Has done's offset 30 been read?",
        "explain",
        _get("done", 30),
        [reason("given", "read_committed"), item(kind="group", lag=0)],
    ),
    Question(
        "Since when have events schema 2?",
        "find",
        {"topic": "events", "condition": "value.schema = 2", "limit": 1},
        [item(offset=60)],
    ),
    Question(
        "Which writer of late has a wrong clock?",
        "find",
        {"topic": "late", "condition": "timestamp < '2001-01-01'"},
        [written("key", "clock")],
    ),
]


def _size(one: dict[str, Any]) -> int:
    value = (one.get("untrusted") or {}).get("value")
    return int(value["bytes"]) if isinstance(value, dict) else 0
