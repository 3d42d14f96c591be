"""Texts of ranges that programs before Odradek left: all that they may be, and nothing that would have to be run."""

from __future__ import annotations

import re

import pytest

from odradek.errors import OffsetStoreError
from odradek.offsets.offset_ranges import OffsetSpan, TextForm, format_ranges, parse_ranges
from odradek.storage.names import TopicPartition

RANGES = {TopicPartition("test", 0): OffsetSpan(100, 120), TopicPartition("my-test", 11): OffsetSpan(0, 7)}
PYTHON_3 = str(
    [
        {"topic": "my-test", "partition": 11, "fromOffset": 0, "untilOffset": 7},
        {"topic": "test", "partition": 0, "fromOffset": 100, "untilOffset": 120},
    ]
)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (PYTHON_3, TextForm.PYTHON),
        (
            "[{'topic': u'test', 'partition': 0, 'fromOffset': 100L, 'untilOffset': 120L}, "
            "{u'untilOffset': 7l, u'fromOffset': 0, u'partition': 11, u'topic': U\"my-test\"}]",
            TextForm.PYTHON,
        ),
        (f" {PYTHON_3[:-1]} , ]\n", TextForm.PYTHON),
        (PYTHON_3.replace("'", '"'), TextForm.JSON),
        ("[('test', 0, 100L, 120L), ['my-test', 11, 0, 7],]", TextForm.OTHER),
        (
            "[{'topic': 'test', 'partition': 0, 'until': 120, 'fromOffset': 100, 'x': 'y'}, ('my-test', 11, 0, 7)]",
            TextForm.OTHER,
        ),
        ("test,0,100,120\nmy-test:11:0:7", TextForm.OTHER),
    ],
)
def test_texts(text: str, form: TextForm) -> None:
    ranges, found = parse_ranges(text, "key")
    assert (dict(ranges), found) == (RANGES, form)
    if form is not TextForm.OTHER:
        assert parse_ranges(format_ranges(RANGES, form), "key") == (sorted(ranges), form)


def test_python_3_writes_it_like_this() -> None:
    assert format_ranges(RANGES, TextForm.PYTHON) == PYTHON_3
    assert parse_ranges("[]", "key") == ([], TextForm.PYTHON)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[{'topic': __import__('os')}]", "at position 11 expected a value, got \"__import__('os')}]\""),
        ("[{'topic': 'a' 'b'}]", "at position 15 expected ',' or '}', got \"'b'}]\""),
        ("[{'topic': 'a\\x62'}]", "at position 11 expected a value"),
        ("[{'topic' 'a'}]", "expected a name and ':'"),
        ("[{'topic': 'a', 'partition': 0", "at position 30 expected ',' or '}', got the end"),
        ("[{'topic': 'a', 'partition': -1}]", "at position 29 expected a value, got '-1}]'"),
        ("[{'topic': 'a', 'partition': 1.5}]", "at position 29 expected a value"),
        ("[{'topic': 'a', 'partition': 0x1}]", "at position 29 expected a value"),
        ("[{'topic': 'a', 'partition': 99999999999999999999}]", "at position 29 expected a value"),
        ("[[[[[['a']]]]]]", "at position 3 expected a value"),
        ("[{'topic': 'a'}] + [1]", "at position 17 expected the end, got '+ [1]'"),
        ("[{'topic': 'a'}]", "is no range, such as"),
        ("['test', 'test']", "is no range, such as"),
        ("[('a/b', 0, 0, 7)]", "is no range: Kafka has no such"),
        ("[('a', 9999999999, 0, 7)]", "is no range: Kafka has no such"),
        # Python 2 reads it in octal.
        ("[('a', 0, 010, 12)]", "a value"),
        ("{'topic': 'a', 'topic': 'b'}", "expected each name once"),
        ('{"topic": "a", "partition": 0, "untilOffset": 1, "untilOffset": 2}', "expected each name once"),
        ("[('a', 0, 100, 12)]", "is no range: Kafka has no such"),
        ("[('a', 0, 0, 9223372036854775808)]", "is no range: Kafka has no such"),
        ("a,9999999999,0,7", "is no range: Kafka has no such"),
        ("..,0,0,7", "is no range: Kafka has no such"),
        ("a,0,7,0", "is no range: Kafka has no such"),
        ("a,\u0663,0,7", "is no range, such as"),
        ('["a", "\u0663", 0, 7]', "is no range, such as"),
        ("", "is no range, such as"),
        (" \n", "is no range, such as"),
        ("[" * 100_000, "at position 3 expected a value"),
        ("{'a': " * 100_000, "at position 18 expected a value"),
    ],
)
def test_what_is_none_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(OffsetStoreError, match="^the key: .*" + re.escape(told)):
        parse_ranges(text, "the key")
