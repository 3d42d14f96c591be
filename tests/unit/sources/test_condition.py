"""Conditions on records: what they mean, and that nothing else is accepted."""

from __future__ import annotations

import pytest

from odradek.errors import OptionError
from odradek.records import Record
from odradek.records.partitioner import partition_for_key
from odradek.sources.condition import MOST_CHARACTERS, Row, condition, expression
from odradek.storage.names import TopicPartition
from peers.cpu import in_standards

VALUE = b'{"user":{"id":17,"name":"Ann"},"items":[{"sku":"x"},{"sku":"y"}],"amount":2.5,"paid":true,"a b":1,"id":"42"}'


def row(value: bytes | None = VALUE, key: bytes | None = b"k1") -> Row:
    record = Record(key, value, timestamp=1_700_000_000_000, offset=5)
    return Row(TopicPartition("events", 1), record, key, value, [("trace", b"x\xff")], 3, {})


@pytest.mark.parametrize(
    "text",
    [
        "topic = 'events' and partition = 1 and offset <> 4",
        "value.user.id in (16, 17) and not key like 'test-%'",
        "value.items.1.sku = 'y' or value.nothing = 1",
        "value.id > 41.5 and value.id = 42",
        'value."a b" = 1 and value.paid = true',
        "timestamp >= '2023-11-14T22:13:20Z' and timestamp < '2023-11-15'",
        "timestamp between 1699999999999 and '2023-11-14T22:13:20+00:00'",
        "headers.trace = 'x\\xff' and headers.other is null",
        "matches(value, 'A(n+)') and contains(value.user.name, 'nn') and length(key) = 2",
        "lower(value.user.name) = 'ann' and starts_with(key, 'k') and ends_with(upper(key), '1')",
        "coalesce(value.nothing, key) = 'k1'",
        "is_json(value) and not is_json(key) and value.user is not null",
        "key not in ('a', 'it''s') and offset not between 6 and 9 and key not like '_'",
        "(partition = 0 or (partition = 1))",
        f"default_partition = {partition_for_key(b'k1', 3)}",
    ],
)
def test_what_is_true(text: str) -> None:
    assert condition(text)(row())
    assert not condition(f"not ({text})")(row())


@pytest.mark.parametrize("text", ["value = 'x'", "not value = 'x'", "value in ('x')", "value.a = 1", "value like '%'"])
def test_null_is_neither_equal_nor_different(text: str) -> None:
    assert not condition(text)(row(None))


def test_a_known_side_decides_beside_null() -> None:
    assert condition("value = 'x' or key = 'k1'")(row(None))
    assert not condition("not (value = 'x' and key = 'no')")(row(None, None))
    assert condition("not (value = 'x' and key = 'no')")(row(None))


def test_an_expression() -> None:
    assert expression("value.amount")(row()) == 2.5
    assert expression("value.user")(row()) == '{"id": 17, "name": "Ann"}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "select 1",
        "key = (select 1)",
        "read_csv('/etc/passwd') is not null",
        "key = 'a'; drop table x",
        "key = 'a' -- comment",
        "key",
        "a = 1",
        "key like key",
        "matches(key, '(')",
        "matches(key, value)",
        "lower(key, key) = 'a'",
        "timestamp > 'yesterday'",
        "key = 'a' garbage",
        "value.'x' = 1",
        "(" * 50 + "key = 'a'" + ")" * 50,
        "not " * 1000 + "true",
        "key = '" + "x" * MOST_CHARACTERS + "'",
        "__import__('os') = 1",
        'key = "a"',
    ],
)
def test_what_is_refused(text: str) -> None:
    if text == "key":
        assert not condition(text)(row())
        return
    with pytest.raises(OptionError):
        condition(text)


@pytest.mark.slow
def test_no_text_takes_long() -> None:
    deep = row(b"[" * 100_000)

    def judge() -> None:
        assert not condition("matches(value, '(a+)+$')")(row(b"a" * 100_000 + b"b"))
        assert not condition("value like '%a%a%a%a%a%a%a%a%a%a%c'")(row(b"a" * 100_000))
        assert not condition("value.a = 1 or is_json(value)")(deep)

    assert in_standards(judge) < 150


@pytest.mark.parametrize("before", ["(", "not ", "lower(", "coalesce(1, "])
def test_what_is_nested_too_deeply_is_refused(before: str) -> None:
    depth = 3_000 // len(before)
    with pytest.raises(OptionError, match="nested"):
        condition(before * depth + "key" + ")" * (depth if "(" in before and depth < 500 else 0))
