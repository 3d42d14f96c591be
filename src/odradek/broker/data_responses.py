"""Writes the responses to Produce and Fetch, by hand: the writer of all messages takes four times as long.

    Produce   topics: (name or id, partitions: (number, error, offsets, time, errors of records))
    Fetch     error, session, topics: (name or id, partitions: (number, error, offsets, aborted transactions, records))

Tests hold them to the bytes of the writer of all messages and of kio, in all versions.

Source in Kafka: `ProduceResponse.json`, `FetchResponse.json`.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from odradek.broker.protocol import (
    FETCH_KEY,
    PRODUCE_KEY,
    Encoded,
    Message,
    RequestHeader,
    Writer,
    begin_response,
    end_response,
    is_flexible,
    records_writer,
    size_writer,
    text_writer,
)
from odradek.messages.uuids import ZERO_UUID

_NO_TAGS = b"\0"
_INT32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")


class _Layout(NamedTuple):
    """How a version of a response is written.

    Attributes:
        partition: The fields of fixed sizes that a partition begins with.
        has_ids: Whether topics are named by their ids.
        tags: The end of each structure: no tagged fields, or nothing in versions that are not flexible.
        one: The size of an array of one item.
        size: Writes the size of an array.
        text: Writes a text.
    """

    partition: struct.Struct
    has_ids: bool
    tags: bytes
    one: bytes
    size: Writer
    text: Writer


def _layout(partition: str, *, has_ids: bool, flexible: bool) -> _Layout:
    tags, one = (_NO_TAGS, b"\2") if flexible else (b"", b"\0\0\0\1")
    return _Layout(struct.Struct(partition), has_ids, tags, one, size_writer(flexible), text_writer(flexible))


# -- Produce

_PRODUCE_FIRST_WITH_START = 5
_PRODUCE_FIRST_WITH_ERRORS = 8
_PRODUCE_FIRST_WITH_IDS = 13


@cache
def _without_errors(version: int) -> bytes:
    """Return the last fields of a partition without errors: no record errors, no error message."""
    if version < _PRODUCE_FIRST_WITH_ERRORS:
        return b""
    return b"\x01\0\0" if is_flexible(PRODUCE_KEY, version) else b"\0\0\0\0\xff\xff"


@cache
def _produce_layout(version: int) -> _Layout:
    partition = ">ihqqq" if version >= _PRODUCE_FIRST_WITH_START else ">ihqq"
    has_ids = version >= _PRODUCE_FIRST_WITH_IDS
    return _layout(partition, has_ids=has_ids, flexible=is_flexible(PRODUCE_KEY, version))


def encode_produce(header: RequestHeader, message: Message) -> Encoded:
    """Return a response to Produce as bytes, from its size on."""
    version = header.version
    layout = _produce_layout(version)
    pack, tags, one_item, write_size = layout.partition.pack, layout.tags, layout.one, layout.size
    without_errors = _without_errors(version)
    out = begin_response(header, tags)
    topics = message["responses"]
    if len(topics) == 1:
        out += one_item
    else:
        write_size(out, len(topics))
    for topic in topics:
        if layout.has_ids:
            out += (topic["topic_id"] or ZERO_UUID).bytes
        else:
            layout.text(out, topic["name"])
        partitions = topic["partition_responses"]
        if len(partitions) == 1:
            out += one_item
        else:
            write_size(out, len(partitions))
        for one in partitions:
            fields = one["index"], one["error_code"], one["base_offset"], one["log_append_time_ms"]
            if version < _PRODUCE_FIRST_WITH_START:
                out += pack(*fields)
            else:
                out += pack(*fields, one.get("log_start_offset", -1))
            if not one["record_errors"] and one["error_message"] is None:
                out += without_errors
                continue
            if version >= _PRODUCE_FIRST_WITH_ERRORS:
                write_size(out, len(one["record_errors"]))
                for error in one["record_errors"]:
                    out += _INT32.pack(error["batch_index"])
                    layout.text(out, error["batch_index_error_message"])
                    out += tags
                layout.text(out, one["error_message"])
            out += tags
        out += tags
    out += _INT32.pack(message.get("throttle_time_ms", 0))
    out += tags
    return end_response(out)


# -- Fetch

_FETCH_FIRST_WITH_START = 5
_FETCH_FIRST_WITH_SESSIONS = 7
_FETCH_FIRST_WITH_REPLICA = 11
_FETCH_FIRST_WITH_IDS = 13
_SESSION = struct.Struct(">hi")


@cache
def _fetch_layout(version: int) -> _Layout:
    partition = ">ihqqq" if version >= _FETCH_FIRST_WITH_START else ">ihqq"
    has_ids = version >= _FETCH_FIRST_WITH_IDS
    return _layout(partition, has_ids=has_ids, flexible=is_flexible(FETCH_KEY, version))


def encode_fetch(header: RequestHeader, message: Message) -> Encoded:
    """Return a response to Fetch as bytes, from its size on; records may be parts of files."""
    version = header.version
    layout = _fetch_layout(version)
    pack, tags, write_size = layout.partition.pack, layout.tags, layout.size
    write_records = records_writer(bool(tags))
    out = begin_response(header, tags)
    out += _INT32.pack(message.get("throttle_time_ms", 0))
    if version >= _FETCH_FIRST_WITH_SESSIONS:
        out += _SESSION.pack(message["error_code"], message["session_id"])
    write_size(out, len(message["responses"]))
    for topic in message["responses"]:
        if layout.has_ids:
            out += (topic["topic_id"] or ZERO_UUID).bytes
        else:
            layout.text(out, topic["topic"])
        partitions = topic["partitions"]
        write_size(out, len(partitions))
        for one in partitions:
            fields = one["partition_index"], one["error_code"], one["high_watermark"], one["last_stable_offset"]
            if version < _FETCH_FIRST_WITH_START:
                out += pack(*fields)
            else:
                out += pack(*fields, one["log_start_offset"])
            aborted = one["aborted_transactions"]
            write_size(out, -1 if aborted is None else len(aborted))
            for transaction in aborted or ():
                out += _ABORTED.pack(transaction["producer_id"], transaction["first_offset"])
                out += tags
            if version >= _FETCH_FIRST_WITH_REPLICA:
                out += _INT32.pack(one["preferred_read_replica"])
            write_records(out, one["records"])
            out += tags
        out += tags
    out += tags
    return end_response(out)
