"""A value that is JSON is written as it stands, in one line, and what is none is left to Python's parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.inspection.record_json import to_text_json
from odradek.records.kernels.lines import json_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PIECES = st.sampled_from(
    [
        *'[]{},:"\\ \n\t-+.eE0123456789/bfnrtu\x00\x1f\x7f',
        *["true", "false", "null", "NaN", "Infinity", '"a"', "\\u00e9", "\\ud800", "é", "\u2028", "1e9", "0.5"],
    ]
).map(str.encode) | st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc3"])


def _parsed(data: bytes | str) -> str | None:
    try:
        return to_text_json(json.loads(data))
    except (ValueError, RecursionError):
        return None


@pytest.mark.slow
@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_json_is_written(value: object, indent: int | None, ensure_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    line = json_line(data)
    if line is None:
        # Only what not every reader takes is left out.
        assert "e" in text
        return
    assert json.loads(line) == value
    assert to_text_json(json.loads(line)) == to_text_json(value)
    assert line.isprintable() or not ensure_ascii
    assert not set(line) & {"\n", "\r", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\u202e"}


@pytest.mark.slow
@given(st.lists(PIECES, max_size=8).map(b"".join))
@example(b"[1,]")
@example(b'{"a":1,}')
@example(b'{"a"}')
@example(b"[]]")
@example(b"01")
@example(b'"\\x"')
def test_what_is_taken_is_json(data: bytes) -> None:
    line = json_line(data)
    if line is not None:
        assert _parsed(line) is not None
        assert _parsed(line) == _parsed(data)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b' {"a" : [1, 2.50,1E+2 ],\n"a":"\\u00e9\xc2\x85"} ', '{"a":[1,2.50,1E+2],"a":"\\u00e9\\u0085"}'),
        (b"\0\0\0\0\7[true]", "[true]"),
        (b"[[[{}]],[]]", "[[[{}]],[]]"),
        (b"[" * 512 + b"]" * 512, "[" * 512 + "]" * 512),
        (b"[" * 513 + b"]" * 513, None),
        (b"1e999", None),
        (b"1" * 400, None),
        (b"", None),
        (b"\0\0\0\0\0", None),
        ("[1]".encode("utf-16"), None),
    ],
)
def test_what_is_written(data: bytes, line: str | None) -> None:
    assert json_line(data) == line
