"""What a record may be made of, how it is shown, and which points in time there are."""

from __future__ import annotations

import pickle
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from odradek.errors import OptionError, TimestampWarning
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.timestamps import iso_text, timestamp_ms

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOON_MS = 1_793_534_400_000


@pytest.mark.parametrize(
    ("parts", "expected", "given"),
    [
        ({"key": "text"}, "a record's key is bytes or None", "not 'text' (str): encode it"),
        ({"value": "text"}, "a record's value is bytes or None", "not 'text' (str): encode it"),
        ({"value": 5}, "a record's value is bytes or None", "not 5 (int)"),
        ({"timestamp": 1.5}, "a time is an int of milliseconds since the epoch, an aware datetime", "not 1.5 (float)"),
        ({"timestamp": True}, "a time is an int of milliseconds", "not True (bool)"),
        (
            {"headers": {"a": b"1"}},
            "headers are pairs, [('name', b'value')]",
            "not {'a': b'1'} (dict): names may repeat",
        ),
        ({"headers": "name"}, "headers are pairs", "not 'name' (str)"),
        ({"headers": b"name"}, "headers are pairs", "not b'name' (bytes)"),
        ({"headers": None}, "headers are pairs", "not None (NoneType)"),
        ({"headers": ["ab"]}, "header is a pair", "not 'ab' (str)"),
        ({"headers": [("a", b"1", b"2")]}, "header is a pair", "(tuple)"),
        ({"headers": [(b"a", b"1")]}, "the name of a record's header is a str", "not b'a' (bytes)"),
        ({"headers": [("a", "1")]}, "a record's header 'a' is bytes or None", "not '1' (str)"),
        ({"offset": "3"}, "a record's offset is an int or None", "not '3' (str)"),
        ({"timestamp_type": "Created"}, "CreateTime, LogAppendTime or None", "not 'Created' (str)"),
        ({"value": "x" * 1000}, "value is bytes or None", "xxx... (str)"),
    ],
)
def test_wrong_types_are_told_where_a_record_is_made(parts: dict[str, Any], expected: str, given: str) -> None:
    with pytest.raises(TypeError) as refused:
        Record(**parts)
    assert expected in str(refused.value)
    assert given in str(refused.value)
    assert len(str(refused.value)) < 250


def test_bytes_of_any_kind_are_kept_as_bytes() -> None:
    headers: list[Any] = [["a", bytearray(b"1")], ("a", None)]
    record = Record(bytearray(b"k"), memoryview(b"v"), headers)
    assert record == Record(b"k", b"v", (("a", b"1"), ("a", None)))
    assert {type(record.key), type(record.value), type(record.headers[0][1])} == {bytes}
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_record_is_shown_in_a_line() -> None:
    assert repr(Record(b"k", None)) == "Record(key=b'k', value=None)"
    assert (
        repr(Record(b"k", b"", [("a", None)], 5, 42, "CreateTime"))
        == "Record(offset=42, timestamp=5, timestamp_type='CreateTime', key=b'k', value=b'', headers=[('a', None)])"
    )
    long = Record(b"k" * 61, b"v" * (1 << 20), [(f"h{n}", b"x" * 100) for n in range(50)])
    assert f"key={b'k' * 60!r}... (61 bytes)" in repr(long)
    assert "(1048576 bytes)" in repr(long)
    assert "and 47 more]" in repr(long)
    assert len(repr(long)) < 600


def test_a_record_is_shown_in_a_notebook_as_text() -> None:
    shown = Record(b"<key>", b"\xff", [("a&b", "ä".encode())], 5)._repr_html_()
    for cell in ("<td>&lt;key&gt;</td>", "<td>b&#x27;\\xff&#x27;</td>", "<td>header a&amp;b</td><td>ä</td>"):
        assert cell in shown
    assert "offset" not in shown


@pytest.mark.parametrize("before", range(197, 201))
def test_what_is_cut_in_a_notebook_is_cut_between_characters(before: int) -> None:
    value = b"x" * before + "\N{SNOWMAN}".encode() * 50
    shown = Record(None, value)._repr_html_()
    whole = "\N{SNOWMAN}" * ((200 - before) // 3)
    assert f"<td>{'x' * before}{whole}... ({len(value)} bytes)</td>" in shown
    # What is no text is shown as bytes: within what is shown, or cut off by the value's own end.
    for binary in (b"\xff" + value, b"ab\xe2"):
        assert "<td>b&#x27;" in Record(None, binary)._repr_html_()


@pytest.mark.parametrize(
    "time",
    [
        NOON_MS,
        NOON,
        NOON.astimezone(timezone(timedelta(hours=5, minutes=30))),
        "2026-11-01T12:00:00Z",
        "2026-11-01 14:00+02:00",
    ],
)
def test_one_point_in_time(time: Any) -> None:
    assert timestamp_ms(time) == NOON_MS
    assert Record(timestamp=time).timestamp == NOON_MS


def test_a_date_is_its_midnight_in_utc() -> None:
    assert (
        timestamp_ms(date(2026, 11, 1))
        == timestamp_ms("2026-11-01")
        == timestamp_ms("20261101")
        == NOON_MS - 43_200_000
    )


@pytest.mark.parametrize("time", [NOON.replace(tzinfo=None), "2026-11-01T12:00:00", "2026-11-01 12"])
def test_a_time_of_day_needs_a_time_zone(time: Any) -> None:
    for make in (timestamp_ms, lambda time: Record(timestamp=time)):
        with pytest.raises(OptionError, match=r"2026-11-01T12:00:00 has no time zone"):
            make(time)


@pytest.mark.parametrize("text", ["", "soon", "2026", "2026-13-01", "12:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(OptionError, match="is no time in ISO 8601"):
        timestamp_ms(text)


def test_seconds_are_noticed_at_the_line_that_gives_them() -> None:
    with pytest.warns(TimestampWarning, match="1700000000 is 1970-01-20 in milliseconds.*2023-11-14.*by 1000") as told:
        record = Record(timestamp=1_700_000_000)
    assert told[0].filename == __file__
    # It is a valid time to Kafka, and a log that has it can be copied.
    assert record.timestamp == 1_700_000_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for timestamp in (0, 1, 5_000, 10**9 - 1, 4_102_444_800, 1_700_000_000_000, -1):
            Record(timestamp=timestamp)
        # What is unpickled or copied was told of before.
        assert pickle.loads(pickle.dumps(record)) == record


def test_times_as_text() -> None:
    assert iso_text(NOON_MS + 5) == "2026-11-01T12:00:00.005+00:00"
    assert iso_text((1 << 63) - 1) == f"{(1 << 63) - 1} ms"


def test_the_name_of_a_header_that_cannot_be_written() -> None:
    for name in ("\ud800", "a\udfff", "\udc00é"):
        with pytest.raises(OptionError, match="half a surrogate pair"):
            Record(b"k", b"v", [(name, b"")])
    # The bytes of a name that is no UTF-8, as they are read; they are written as they were.
    kept = Record(b"k", b"v", [("\udcff", b""), ("é\U0001f600", None)], timestamp=1)
    data = build_batch([kept])
    assert b"\xff" in data
    (read,) = read_records(data, next(iter(scan_batches(data))))
    assert read.headers == kept.headers
