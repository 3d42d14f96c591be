"""The tools: bounded answers that go on where they ended, what is redacted, and that nothing is written."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import odradek
import odradek.mcp.server
from odradek.errors import OptionError
from odradek.mcp.answer import LEAST_BYTES
from odradek.mcp.tool import TOOLS, Call, CallEndedError, Served, answered
from odradek.records import Record
from odradek.testing import Broker
from peers.cpu import in_standards
from peers.incidents import plant

Answer = dict[str, Any]
EVERY: dict[str, Answer] = {
    "topics": {"internal": True},
    "describe": {"topic": "orders"},
    "find": {"topic": "*"},
    "get": {"topic": "orders", "partition": 0, "offset": 50, "limit": 10},
    "tail": {"topic": "*"},
    "aggregate": {"topic": "*", "group_by": ["topic", "key"], "values": ["max(offset)", "avg(value.id)"], "top": 200},
    "explain": {"topic": "orders", "partition": 0, "offset": 50, "bytes": True},
    "verify": {},
    "groups_and_lag": {"group": "feeder"},
    "transactions": {},
}
NOT_OF_BROKERS = {"explain", "verify"}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted")
    plant(path)
    return path


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Two partitions with a hundred records each."""
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events", 2)
        for partition in range(2):
            logs["events", partition].append(
                [
                    Record(
                        b"k%d" % (number % 7), json.dumps({"n": number, "card": {"no": f"card-{number:04}"}}).encode()
                    )
                    for number in range(100)
                ]
            )
    return tmp_path


def ask(path: Path | str, name: str, served: Answer | None = None, /, **arguments: Any) -> Answer:
    """Return an answer, after it was compared with the schema and its limit."""
    Draft202012Validator(TOOLS[name].arguments).validate(arguments)
    found = answered(Call(Served(str(path), **(served or {}))), name, arguments)
    Draft202012Validator(TOOLS[name].results).validate(found)
    assert len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()) <= arguments.get(
        "limit_bytes", 6_000
    )
    return found


def everything(path: Path, name: str, **arguments: Any) -> list[Any]:
    """Return the items of an answer and of those after it."""
    items: list[Any] = []
    for _ in range(300):
        found = ask(path, name, **arguments)
        items += found["items"]
        assert (found["cursor"] is None) <= (found["left_out"] is None) or found["left_out"] is not None
        if found["cursor"] is None:
            return items
        assert found["left_out"]
        arguments["cursor"] = found["cursor"]
    raise AssertionError("it does not end")


@pytest.mark.slow
def test_there_are_ten_tools() -> None:
    assert set(TOOLS) == set(EVERY)
    for tool in TOOLS.values():
        Draft202012Validator.check_schema(tool.arguments)
        Draft202012Validator.check_schema(tool.results)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_an_answer_in_parts_is_the_whole(name: str, planted: Path) -> None:
    whole = ask(planted, name, **EVERY[name], limit_bytes=32_000)
    if name in ("aggregate", "find"):
        return
    parts = everything(planted, name, **EVERY[name], limit_bytes=LEAST_BYTES)
    assert len(parts) >= len(whole["items"])
    if whole["cursor"] is None and name != "tail":
        assert parts == whole["items"]


@pytest.mark.slow
def test_find_goes_on_where_it_ended(events: Path) -> None:
    parts = everything(events, "find", topic="events", limit=9, limit_bytes=LEAST_BYTES)
    assert [(one["partition"], one["offset"]) for one in parts] == [
        (partition, offset) for partition in range(2) for offset in range(100)
    ]
    found = everything(events, "find", topic="events", pattern='"n": 9[0-4]', fields=["value"], limit=3)
    assert [one["offset"] for one in found] == [90, 91, 92, 93, 94] * 2
    found = everything(events, "find", topic="events", condition="value.n in (1, 2)")
    assert [one["offset"] for one in found] == [1, 2] * 2


def test_tail_goes_back_where_it_ended(events: Path) -> None:
    found = ask(events, "tail", topic="events", count=30, limit_bytes=LEAST_BYTES)
    assert found["items"][-1]["offset"] == 99
    before = ask(events, "tail", topic="events", count=30, limit_bytes=LEAST_BYTES, cursor=found["cursor"])
    assert before["items"][-1]["timestamp"] <= found["items"][0]["timestamp"]


def test_a_large_value_is_read_in_pieces(tmp_path: Path) -> None:
    value = ("äöü" * 5_000).encode()
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, value), Record(b"\xff", b"\xfe" * 1_000)])
    text, from_byte = "", 0
    while True:
        [item] = ask(
            tmp_path,
            "get",
            topic="t",
            partition=0,
            offset=0,
            field_bytes=9_001,
            from_byte=from_byte,
            limit_bytes=32_000,
        )["items"]
        text += item["untrusted"]["value"]["text"]
        assert item["untrusted"]["value"]["bytes"] == len(value)
        if "next_byte" not in item["untrusted"]["value"]:
            break
        from_byte = item["untrusted"]["value"]["next_byte"]
    assert text.encode() == value
    [item] = ask(tmp_path, "get", topic="t", partition=0, offset=1)["items"]
    assert item["untrusted"]["key"] == {"base64": "/w==", "bytes": 1}
    assert item["value_kind"] == "binary"


def test_aggregates(events: Path) -> None:
    found = ask(
        events,
        "aggregate",
        topic="events",
        group_by=["key"],
        values=["min(offset)", "sum(value.n)", "distinct(partition)", "avg(value.n)"],
        order_by="sum(value.n)",
        condition="value.n < 14",
        top=1,
    )
    assert found["items"] == [
        {
            "count": 4,
            "untrusted": {
                "group": ["k6"],
                "values": {"min(offset)": 6, "sum(value.n)": 38, "distinct(partition)": 2, "avg(value.n)": 9.5},
            },
        }
    ]
    assert "6 more groups" in found["left_out"]
    [whole] = ask(events, "aggregate", topic="events", values=["max(key)"])["items"]
    assert whole["count"] == 200


def test_numbers_and_texts_that_json_has_no_form_for(tmp_path: Path) -> None:
    values = [
        b"NaN",
        b"Infinity",
        b"-1e999",
        b'"\\ud800"',
        b'{"n":' + b"9" * 400 + b"}",
        b"x" * 300 + b"1",
        b"x" * 300 + b"2",
    ]
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"k", b'{"v":%s}' % value) for value in values[:4]])
        logs["t", 0].append([Record(b"k", value) for value in values[4:]])
    found = ask(
        tmp_path, "aggregate", topic="t", group_by=["coalesce(value.v, value)"], values=["sum(value.n)", "max(value.v)"]
    )
    assert len(found["items"]) == 7
    [whole] = ask(tmp_path, "aggregate", topic="t", values=["sum(value.v)", "avg(value.v)", "distinct(value)"])["items"]
    assert whole["untrusted"]["values"]["distinct(value)"] == 7


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("find", {"topic": "events", "pattern": "("}),
        ("find", {"topic": "events", "pattern": r"(a)\1"}),
        ("find", {"topic": "events", "condition": "read_text('/etc/passwd') = ''"}),
        ("find", {"topic": "events", "cursor": "../../etc-0@1"}),
        ("find", {"topic": "events", "cursor": "#1"}),
        ("find", {"topic": "events", "since": "yesterday"}),
        ("get", {"topic": "events", "offset": 1}),
        ("get", {"topic": "events", "partition": 0}),
        ("aggregate", {"topic": "events", "values": ["median(offset)"]}),
        ("aggregate", {"topic": "events", "order_by": "max(offset)"}),
        ("topics", {"cursor": "#x"}),
    ],
)
def test_a_wrong_argument_is_refused(name: str, arguments: Answer, events: Path) -> None:
    with pytest.raises(OptionError):
        ask(events, name, **arguments)


@pytest.mark.parametrize("topic", ["../events", "events/../events", "/etc", "nothing"])
@pytest.mark.parametrize("name", ["describe", "explain", "find"])
def test_a_path_is_no_topic(name: str, topic: str, events: Path) -> None:
    with pytest.raises(odradek.OdradekError):
        ask(events, name, topic=topic, **({"partition": 0, "offset": 0} if name == "explain" else {}))


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_hostile_pattern_takes_no_time(isolation: str, tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"a" * 50_000 + b"!")])

    def find() -> None:
        assert ask(tmp_path, "find", topic="t", pattern="(a+)+$", isolation=isolation)["items"] == []

    assert in_standards(find, time.process_time) < 100


# -- what is left out


SECRET = "card-0042"


@pytest.mark.parametrize("part", ["value", "value.card", "value.card.no"])
def test_what_is_redacted_is_nowhere(part: str, events: Path) -> None:
    served = {"redact": (part,)}
    asked: dict[str, Answer] = {
        "find": {"topic": "events", "start_offset": 40, "end_offset": 45},
        "get": {"topic": "events", "partition": 0, "offset": 42},
        "tail": {"topic": "events", "count": 60, "limit_bytes": 32_000},
        "explain": {"topic": "events", "partition": 0, "offset": 42, "bytes": True},
        "aggregate": {"topic": "events", "group_by": ["value"], "values": ["max(value.card.no)", "max(value)"]},
    }
    for name, arguments in asked.items():
        assert SECRET not in json.dumps(ask(events, name, served, **arguments)), name
    # Nor does a search tell whether it is there.
    questions: tuple[Answer, ...] = (
        {"pattern": SECRET},
        {"condition": f"value.card.no = '{SECRET}'"},
        {"condition": f"value like '%{SECRET}%'"},
    )
    for question in questions:
        assert ask(events, "find", topic="events", **question)["items"]
        assert ask(events, "find", served, topic="events", **question)["items"] == []


def test_no_pattern_tells_what_a_path_leaves_out(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        values = [b'{"card":"4111"}', b'{"card":"4222"}']
        logs["events", 0].append([Record(b"k", value, headers=[("4111", b"")]) for value in values])

    def offsets(pattern: str, **more: Any) -> list[int]:
        found = ask(tmp_path / "data", "find", {"redact": ("value.card",)}, topic="events", pattern=pattern, **more)
        return [item["offset"] for item in found["items"]]

    # In the bytes only one of them has the first part, and none the second one.
    assert offsets(r"4111|\[redacted\]", fields=["value"]) == [0, 1]
    assert offsets("4111", fields=["value"]) == []
    assert offsets("4111") == [0, 1]


def test_no_hash_of_a_redacted_key_is_told(events: Path) -> None:
    for redact in ("key", "key.id"):
        found = ask(events, "find", {"redact": (redact,)}, topic="events", condition="default_partition is not null")
        assert found["items"] == []


def test_redacted_keys_are_not_looked_for(events: Path) -> None:
    with pytest.raises(OptionError, match="redacted"):
        ask(events, "get", {"redact": ("key",)}, topic="events", key="k1")
    with pytest.raises(OptionError, match="redacted"):
        ask(events, "find", {"redact": ("key",)}, topic="events", pattern="k1", fields=["key"])
    found = ask(events, "find", {"redact": ("key", "headers")}, topic="events", limit=1)
    assert found["items"][0]["untrusted"]["key"] == "[redacted]"


# -- time, and callers that leave


def test_a_call_ends_with_its_time_and_goes_on(events: Path) -> None:
    served = {"time_limit_s": 0.0}
    found = ask(events, "find", served, topic="events", condition="value.n = 99")
    assert "the time of a call" in found["left_out"]
    assert found["cursor"] == "events-0@0"
    found = ask(events, "find", topic="events", condition="value.n = 99", cursor="events-0@50")
    assert [one["partition"] for one in found["items"]] == [0, 1]
    for name in ("topics", "describe", "verify", "transactions", "aggregate"):
        arguments = {"topic": "events"} if name in ("describe", "aggregate") else {}
        assert "the time of a call" in ask(events, name, served, **arguments)["left_out"], name


@pytest.mark.parametrize("name", ["find", "aggregate", "verify", "transactions"])
def test_a_call_that_nobody_waits_for_ends(name: str, events: Path) -> None:
    call = Call(Served(str(events)), threading.Event())
    call.ended.set()
    with pytest.raises(CallEndedError):
        answered(call, name, {"topic": "events", "pattern": "x"} if name == "find" else {"topic": "events"})


# -- places


def _state(path: Path) -> dict[str, tuple[int, int]]:
    return {str(found.relative_to(path)): (found.stat().st_size, found.stat().st_mtime_ns) for found in path.rglob("*")}


@pytest.mark.slow
def test_nothing_is_written(planted: Path) -> None:
    before = _state(planted)
    for name, arguments in EVERY.items():
        ask(planted, name, **arguments)
    assert _state(planted) == before


def test_a_partition_alone(planted: Path) -> None:
    folder = planted / "orders-0"
    assert ask(folder, "topics")["items"] == [{"topic": "orders", "partitions": 1, "offsets": 20, "problem": None}]
    assert ask(folder, "explain", topic="orders", partition=0, offset=50)["items"]
    assert ask(folder, "verify")["items"] == []


@pytest.mark.slow
def test_a_broker() -> None:
    pytest.importorskip("kafka")
    with Broker() as running:
        running.create_topic("events", 2)
        running.logs["events", 1].append([Record(b"k", b'{"n":1}'), Record(b"k", b"{")])
        address = f"kafka://{running.bootstrap_servers}"
        assert ask(address, "topics")["items"][0]["offsets"] == 2
        assert ask(address, "describe", topic="events")["items"][2]["log_end_offset"] == 2
        assert [one["offset"] for one in ask(address, "find", topic="events", pattern="n")["items"]] == [0]
        assert ask(address, "find", topic="events", condition="not is_json(value)")["items"][0]["offset"] == 1
        assert ask(address, "get", topic="events", key="k")["items"][1]["value_kind"] == "text"
        assert len(ask(address, "tail", topic="events")["items"]) == 2
        assert ask(address, "aggregate", topic="events")["items"][0]["count"] == 2
        assert ask(address, "groups_and_lag")["items"] == []
        assert ask(address, "transactions", topic="events")["items"] == []
        for name in NOT_OF_BROKERS:
            with pytest.raises(OptionError, match="needs the files"):
                ask(address, name, **EVERY[name])


@pytest.mark.parametrize("number", [1.0, 1 << 63, -1, True])
def test_what_is_no_offset_is_refused(number: object) -> None:
    validator = odradek.mcp.server._Validator(TOOLS["get"].arguments)
    assert not validator.is_valid({"topic": "t", "partition": 0, "offset": number})
    assert validator.is_valid({"topic": "t", "partition": 0, "offset": (1 << 63) - 1})
