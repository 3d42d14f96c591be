"""The tools that look at topics and their logs: topics, describe, explain and verify."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from odradek.arguments import is_broker
from odradek.errors import OdradekError, OptionError
from odradek.inspection.explaining.explanation import Explanation, Reason, Verdict, explain
from odradek.inspection.explaining.summary import decoded_record, hexdump, summary_lines
from odradek.inspection.finding import FindingKind
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, PartitionFolder, locate, partition_folder
from odradek.inspection.verification.run import Verification
from odradek.mcp.answer import Answer, TimeOverError, place_number
from odradek.mcp.tool import (
    COUNT,
    FLAG,
    RECORD_PART,
    TEXT,
    Call,
    Schema,
    several,
    shape,
    tool,
    untrusted,
)
from odradek.mcp.untrusted import untrusted_part, visible
from odradek.places.path import PathPlace
from odradek.places.place import Place
from odradek.records.timestamps import iso_text, now_ms
from odradek.sources.redaction import Redaction
from odradek.storage.names import TopicPartition, is_internal, matches_topic

_FUTURE_MS = 3_600_000
_PARTITION: dict[str, Schema] = {"topic": TEXT, "partition": COUNT}


@tool(
    "topics",
    "List topics: partitions, and how many offsets they hold.",
    {"pattern": {**TEXT, "description": "such as events-*"}, "internal": {**FLAG, "description": "Kafka's own, too"}},
    shape("topic:text partitions:count offsets:count|null problem:text|null"),
)
def _topics(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    pattern, internal = arguments.get("pattern"), arguments.get("internal", False)
    first = place_number(arguments.get("cursor"))
    with call.place() as place:
        found = [
            (topic, list(names))
            for topic, names in groupby(sorted(place.partitions()), lambda name: name.topic)
            if (internal or not is_internal(topic)) and (pattern is None or matches_topic(pattern, topic))
        ]
        answer.add_all((_topic_item(call, place, *one) for one in found[first:]), first, "topics")
    answer.note(f"{len(found)} topics")
    for item in answer.items[:2]:
        answer.hint("describe", "settings and partitions", topic=item["topic"])


def _topic_item(call: Call, place: Place, topic: str, names: list[TopicPartition]) -> dict[str, Any]:
    call.check()
    offsets, problem = None, None
    try:
        offsets = sum(bounds.end_offset - bounds.start_offset for bounds in place.all_bounds(names).values())
    except OdradekError as error:
        problem = str(error)
    return {"topic": topic, "partitions": len(names), "offsets": offsets, "problem": problem}


@tool(
    "describe",
    "Show a topic: the settings that were made for it, and of each partition its offsets, its size, open transactions, "
    "and the newest timestamp. Says what its settings delete, and what is odd.",
    {"topic": TEXT},
    shape(
        "kind:kind topic_id:text|null? settings:object? partition:count? log_start_offset:count? log_end_offset:count? "
        "last_stable_offset:count? segments:count? size_bytes:count? newest_time:text|null? future_offset:count|null?",
        kind={"enum": ["topic", "partition"]},
    ),
    ("topic",),
)
def _describe(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    topic = arguments["topic"]
    first = place_number(arguments.get("cursor"))
    with call.place() as place:
        (described,) = place.describe([topic])
        names = [name for name in place.partitions() if name.topic == topic]
        settings = dict(described.config)

        def items() -> Iterator[dict[str, Any]]:
            if not first:
                yield {"kind": "topic", "topic_id": described.topic_id, "settings": settings}
                _note_settings(answer, topic, settings)
            for name in names[max(0, first - 1) :]:
                call.check()
                yield _partition_item(place, name, answer)

        answer.add_all(items(), first, "partitions")
    answer.hint("tail", "its last records", topic=topic)


def _note_settings(answer: Answer, topic: str, settings: dict[str, str]) -> None:
    policy = settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        answer.note("cleanup.policy has compact: of each key only the newest record stays, and a null value deletes it")
        answer.hint("get", "what is left of a key: put it here", topic=topic, key="KEY")
    for name in ("retention.ms", "retention.bytes", "delete.retention.ms", "message.timestamp.type"):
        if name in settings:
            answer.note(f"{name} is {settings[name]}")


def _partition_item(place: Place, name: TopicPartition, answer: Answer) -> dict[str, Any]:
    bounds = place.bounds(name)
    stable = place.bounds(name, "read_committed").end_offset
    future = place.find_timestamp(name, now_ms() + _FUTURE_MS)
    where = {"topic": name.topic, "partition": name.partition}
    item: dict[str, Any] = {
        "kind": "partition",
        "partition": name.partition,
        "log_start_offset": bounds.start_offset,
        "log_end_offset": bounds.end_offset,
        "last_stable_offset": stable,
        "future_offset": future,
    }
    if bounds.start_offset:
        answer.note(f"{name}: offsets below {bounds.start_offset} were deleted, by retention or by DeleteRecords")
        answer.hint("explain", "what became of the last one deleted", **where, offset=bounds.start_offset - 1)
    if stable < bounds.end_offset:
        answer.note(f"{name}: a transaction is open since offset {stable}; read_committed consumers wait there")
        answer.hint("transactions", "whose it is, and whether it hangs", **where)
    if future is not None:
        answer.note(f"{name}: offset {future} has a time in the future; retention.ms keeps its segment until after it")
        answer.hint("get", "the record with a time in the future", **where, offset=future)
    if isinstance(place, PathPlace):
        log = place.log(name)
        newest = log.find_max_timestamp()
        item |= {"segments": len(log.segments), "size_bytes": log.size_bytes}
        item["newest_time"] = None if newest is None else iso_text(newest.timestamp)
        for damage in log.damage:
            answer.note(f"{name}: damaged: {damage}")
            answer.hint("verify", "what is damaged", **where)
        lost = place.lost_end(name)
        if lost is not None:
            answer.note(f"{name}: offsets {lost[0]} to {lost[1] - 1} were there when the folder was closed")
            answer.hint("verify", "what is missing", **where)
    return item


# -- explain

_VERDICT = shape("is_given:flag reason:text text:text")
_NEXT: dict[Reason, tuple[str, str]] = {
    Reason.ABORTED: ("transactions", "who aborted it"),
    Reason.UNDECIDED: ("transactions", "which transaction is open, and whether it hangs"),
    Reason.CONTROL_RECORD: ("transactions", "which transaction it ends"),
    Reason.BELOW_LOG_START: ("describe", "which settings delete records"),
    Reason.COMPACTED: ("describe", "whether it is compacted, and by which settings"),
    Reason.MISSING: ("verify", "what is missing"),
    Reason.DAMAGED: ("verify", "what is damaged"),
    Reason.ABOVE_HIGH_WATERMARK: ("describe", "where the log ends"),
    Reason.BEYOND_LOG_END: ("describe", "where the log ends"),
    Reason.GIVEN: ("groups_and_lag", "which groups have read it"),
}


@tool(
    "explain",
    "Say where the record of an offset lies in the files (segment, index entries, batch), which transaction it is in, "
    "and whether a consumer is given it, and why not; with bytes, each byte of its batch and its meaning. For folders.",
    {**_PARTITION, "offset": COUNT, "bytes": {**FLAG, "default": False}},
    shape(
        "kind:kind facts:object? read_uncommitted:verdict? read_committed:verdict? findings:texts? untrusted:part",
        kind={"enum": ["explanation", "bytes"]},
        verdict=_VERDICT,
        texts=several(TEXT),
        part={"anyOf": [RECORD_PART, untrusted("line:text"), {"type": "null"}]},
    ),
    ("topic", "partition", "offset"),
)
def _explain(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    if is_broker(call.served.address):
        raise OptionError("explain: this needs the files: serve the log directory of the broker instead")
    topic, offset = arguments["topic"], arguments["offset"]
    with call.place() as place:
        (name,) = place.choose(topic, arguments["partition"])
        assert isinstance(place, PathPlace)
        found = explain(place.log(name).path, offset)
    redaction = Redaction(call.served.redact)
    first = place_number(arguments.get("cursor"))
    if not first and not answer.add_cut(lambda size: _explanation(name, found, redaction, size), 400):
        answer.full("the explanation", "#0")
    if arguments.get("bytes"):
        _add_bytes(answer, found, redaction, max(0, first - 1))
    elif found.own_fields:
        answer.note("with bytes=true, each byte of the batch is shown with its meaning")
    where = {"topic": topic, "partition": name.partition}
    for verdict in (found.read_uncommitted, found.read_committed):
        tool_name, why = _NEXT[verdict.reason]
        answer.hint(tool_name, why, **(where if tool_name in ("transactions", "verify") else {"topic": topic}))
    if found.findings:
        answer.hint("verify", "what is damaged", **where)
    if found.record is not None:
        answer.hint("get", "the records around it", **where, offset=max(0, offset - 2), limit=5)


def _explanation(name: TopicPartition, found: Explanation, redaction: Redaction, most_bytes: int) -> dict[str, Any]:
    contents = decoded_record(found)
    row = None if found.record is None or found.batch is None or found.batch.is_control else found.record
    return {
        "kind": "explanation",
        "facts": {fact: text for fact, text in summary_lines(found) if fact not in contents},
        "read_uncommitted": _verdict(found.read_uncommitted),
        "read_committed": _verdict(found.read_committed),
        "findings": [str(finding) for finding in found.findings[:5]],
        "untrusted": None if row is None else untrusted_part(redaction.row(name, row), most_bytes),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"is_given": verdict.is_given, "reason": str(verdict.reason), "text": verdict.text}


def _add_bytes(answer: Answer, found: Explanation, redaction: Redaction, first: int) -> None:
    shown = found.own_fields
    if redaction.hides_anything:
        shown = [one for one in shown if one.record is None]
        answer.leave_out("the bytes of records: parts of them are redacted")
    lines = list(hexdump(shown, full=False))[first:]
    answer.add_all(({"kind": "bytes", "untrusted": {"line": visible(line)}} for line in lines), first + 1, "bytes")


# -- verify


@tool(
    "verify",
    "Verify the files of one partition, of a topic or of all: checksums, order, gaps, indexes, checkpoints. Changes "
    "nothing. For folders.",
    {**_PARTITION, "records": {**FLAG, "description": "decode each record too"}},
    shape(
        "file:text position:int|null kind:kind reason:text topic:text|null partition:count|null",
        kind={"enum": [str(kind) for kind in FindingKind]},
    ),
)
def _verify(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    if is_broker(call.served.address):
        raise OptionError("verify: this needs the files: serve the log directory of the broker instead")
    parts = list(_parts(call, arguments))
    first, _, skipped_text = (arguments.get("cursor") or "#0").removeprefix("#").partition(".")
    start, skipped = place_number(f"#{first}"), place_number(f"#{skipped_text or 0}")
    verification = Verification(decode=arguments.get("records", False), each=call.check)
    for number, part in enumerate(parts[start:], start):
        owner = part.topic_partition if isinstance(part, PartitionFolder) else None
        try:
            for count, finding in enumerate(verification.findings(part)):
                item = {
                    "file": str(finding.path),
                    "position": finding.position,
                    "kind": str(finding.kind),
                    "reason": finding.reason,
                    "topic": None if owner is None else owner.topic,
                    "partition": None if owner is None else owner.partition,
                }
                if count >= skipped and not answer.add(item):
                    answer.full("more findings", f"#{number}.{count}")
                    return
            call.check()
        except TimeOverError as error:
            answer.leave_out(
                f"{owner or 'the files of the root'} was not verified to its end: {error}; run `odradek verify` on it",
                f"#{number + 1}" if number + 1 < len(parts) else None,
            )
            break
        skipped = 0
    files, batches = verification.files, verification.batches
    answer.note(f"{files} files and {batches} batches were verified: {'findings' if answer.items else 'clean so far'}")
    for item in answer.items[:2]:
        if item["topic"] is not None:
            answer.hint("tail", "its last sound records", topic=item["topic"], partitions=[item["partition"]])
    if answer.items:
        answer.note("odradek verify --repair rebuilds indexes, odradek salvage copies what is sound")


def _parts(call: Call, arguments: dict[str, Any]) -> Iterator[PartitionFolder | LogDirectoryFolder]:
    """Yield what is verified by itself: partitions, and then the files of the root."""
    topic = arguments.get("topic")
    if topic is not None:
        with call.place() as place:
            assert isinstance(place, PathPlace)
            for name in place.choose(topic, arguments.get("partition")):
                yield partition_folder(place.log(name).path)
        return
    located = locate(Path(call.served.address))
    if isinstance(located, LogFile):
        raise OptionError("verify: name the folder of the partition, not a file in it")
    if isinstance(located, PartitionFolder):
        yield located
        return
    yield from located.partitions
    yield replace(located, partitions=[])
