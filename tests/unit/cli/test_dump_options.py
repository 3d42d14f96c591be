"""What `odradek dump` chooses, leaves out and decodes."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import partial
from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.testing import Broker
from peers import command
from peers.kafka_fixture import KafkaFixture

run = partial(command.run, "dump", code=0)


lines = partial(command.rows, "dump")


def log_of(folder: Path, *records: Record) -> Path:
    """Write a segment with one batch."""
    path = folder / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(build_batch(records))
    return path


def test_csv_gives_back_what_was_in_it(tmp_path: Path) -> None:
    records = [
        Record(b"k,1", b'a "quoted"\r\nvalue', [('na"me', b"x"), ("n", None)], timestamp=5),
        Record(None, b""),
        Record(b"", b"\xff\x00"),
        Record(b"base64:", b"base64"),
    ]
    text = run("--format", "csv", log_of(tmp_path, *records)).stdout_bytes.decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert [row[:7] for row in rows[1:]] == [
        ["t", "0", "0", "5", "CreateTime", "k,1", 'a "quoted"\r\nvalue'],
        ["t", "0", "1", "", "CreateTime", "", ""],
        ["t", "0", "2", "", "CreateTime", "", "base64:/wA="],
        ["t", "0", "3", "", "CreateTime", "base64:YmFzZTY0Og==", "base64"],
    ]
    assert [json.loads(row[7]) for row in rows[1:]] == [[['na"me', "x"], ["n", None]], [], [], []]
    # Null and empty differ, although Python's reader does not tell.
    assert ',CreateTime,,"",[]' in text
    assert ',CreateTime,"","base64' in text


@pytest.mark.slow
def test_partitions_keys_and_a_limit(fixture_4_3_1: KafkaFixture) -> None:
    arguments = ("--topic", "key*", "--topic", "compacted", "--partition", "0", "--key", "k4?")
    expected = [
        line
        for line in lines(fixture_4_3_1.log_dir)
        if line["topic"] in ("keyed", "compacted")
        and line["partition"] == 0
        and isinstance(line["key"], str)
        and re.fullmatch("k4.", line["key"])
    ]
    assert {line["topic"] for line in expected} == {"keyed", "compacted"}
    assert lines(fixture_4_3_1.log_dir, *arguments) == expected
    for limit in (0, 1, len(expected) - 1):
        assert lines(fixture_4_3_1.log_dir, *arguments, "--limit", str(limit)) == expected[:limit]
    assert len(lines(fixture_4_3_1.log_dir, "--batches", "--limit", "3")) == 3


def test_topics_of_kafka_s_own(fixture_4_3_1: KafkaFixture) -> None:
    decoded = lines(fixture_4_3_1.log_dir / "__consumer_offsets-0")
    raw = lines(fixture_4_3_1.log_dir / "__consumer_offsets-0", "--raw")
    assert [line["offset"] for line in decoded] == [line["offset"] for line in raw]
    groups = {line["key"]["data"]["group"] for line in decoded}
    assert "group-1" in groups
    assert all(isinstance(line["key"], dict) and "base64" not in line["key"] for line in decoded)
    assert not any(isinstance(line["key"], dict) and "data" in line["key"] for line in raw)
    [first] = lines(fixture_4_3_1.log_dir / "__transaction_state-0", "--limit", "1")
    assert first["key"]["data"] == {"transactionalId": "tx-1"}
    [record] = lines(fixture_4_3_1.log_dir / "__cluster_metadata-0", "--limit", "1")
    assert record["value"]["type"] == "BEGIN_TRANSACTION_RECORD"


def test_what_is_left_out_is_nowhere(tmp_path: Path) -> None:
    card = {"card": {"number": "4111", "holder": "A\u2028B"}, "items": [{"price": 1}, {"price": 2}, 3]}
    log = log_of(
        tmp_path,
        Record(b"secret", json.dumps(card).encode(), [("h", b"secret"), ("n", None)]),
        Record(None, None),
        Record(b"k", b"secret, no JSON"),
    )
    whole = run("--redact", "key", "--redact", "value", "--redact", "headers", "--format", "jsonl", log).stdout
    assert "secret" not in whole
    first, second, _ = map(json.loads, whole.splitlines())
    assert (first["key"], first["value"]) == ("[redacted]", "[redacted]")
    assert first["headers"] == [["h", "[redacted]"], ["n", None]]
    assert (second["key"], second["value"]) == (None, None)
    for form in ("text", "csv", "jsonl"):
        shown = run("--redact", "value.card.number", "--redact", "value.items.price", "--format", form, log).stdout
        assert "4111" not in shown
        assert "price" in shown
        assert "no JSON" not in shown
    [shown_first, *_] = lines("--redact", "value.card.number", "--redact", "value.items.price", log)
    assert json.loads(shown_first["value"]) == {
        "card": {"number": "[redacted]", "holder": "A\u2028B"},
        "items": [{"price": "[redacted]"}, {"price": "[redacted]"}, "[redacted]"],
    }
    assert "secret" not in run("--redact", "key", "--redact", "headers", log).stdout.splitlines()[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "value",
    [
        b'"4111"',
        b"4111",
        b'{"card": "4111"}',
        b'{"card": "{\\"number\\": \\"4111\\"}"}',
        b'{"card": [[{"number": "4111"}], "4111"]}',
        b'{"card.number": "4111", "card": {"number": 4111}}',
        b'{"card": {"number": "4111"}, "card": {"number": "4111"}}',
        b'{"c\\u0061rd": {"number": "4111"}}',
        b'{"card": {"number": "4111"}, "limit": 1e999}',
        *(b"[" * depth + b'{"card": {"number": "4111"}}' + b"]" * depth for depth in (300, 500, 800, 930, 3000)),
    ],
)
def test_a_path_leads_to_it_wherever_it_is(tmp_path: Path, value: bytes) -> None:
    log = log_of(tmp_path, Record(b"k", value), Record(b"the last one", b""))
    for form in ("text", "csv", "jsonl"):
        for decoded in ([], ["--values", "json"]):
            code = 1 if decoded else 0
            shown = run(*decoded, "--redact", "value.card.number", "--format", form, log, code=code).stdout
            assert "4111" not in shown
            assert "the last one" in shown


def test_values_that_are_json(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, Record(None, b' {"a": [1, null, "\\u2028"]}'), Record(None, b"\0\0\0\0\7[2]"), Record(None, None),
        Record(None, b"{"),
    )  # fmt: skip
    result = run("--values", "json", "--format", "jsonl", log, code=1)
    assert [json.loads(line)["value"] for line in result.stdout.split("\n")[:-1]] == [
        {"a": [1, None, "\u2028"]},
        [2],
        None,
        "{",
    ]
    assert "\u2028" not in result.stdout
    assert f"{log}: offset 3: the value cannot be decoded: " in result.stderr
    [redacted] = lines("--values", "json", "--redact", "value.a", "--limit", "1", log)
    assert redacted["value"] == {"a": "[redacted]"}


@pytest.mark.parametrize("value", [b"NaN", b"[1e999]", b'{"a": -Infinity}'])
def test_numbers_that_json_does_not_have(tmp_path: Path, value: bytes) -> None:
    result = run("--values", "json", "--format", "jsonl", log_of(tmp_path, Record(None, value)), code=1)
    assert json.loads(result.stdout)["value"] == value.decode()


def test_values_of_an_avro_schema(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "raw", "type": "bytes"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"id": 0, "raw": b"\xff", "at": 0})
    plain = out.getvalue()
    log = log_of(tmp_path, Record(None, plain), Record(None, b"\0\0\0\0\1" + plain), Record(None, plain + b"x"))
    shown = lines("--values", "avro", "--schema", path, log, code=1)
    expected = {"id": 0, "raw": {"base64": "/w=="}, "at": "1970-01-01T00:00:00+00:00"}
    assert [line["value"] for line in shown[:2]] == [expected, expected]
    assert isinstance(shown[2]["value"], dict)
    assert "base64" in shown[2]["value"]
    path.write_text("{}")
    assert "no Avro schema" in run("--values", "avro", "--schema", path, log, code=2).stderr
    assert "needs --schema" in run("--values", "avro", log, code=2).stderr


@pytest.mark.slow
def test_values_of_a_protobuf_message(tmp_path: Path) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="order_id", number=1, type=3, label=1)
    message.field.add(name="name", number=2, type=9, label=1)
    path = tmp_path / "shop.desc"
    path.write_bytes(files.SerializeToString())
    plain = b"\x08\x07\x12\x03ann"
    log = log_of(
        tmp_path,
        *[Record(None, value) for value in (plain, b"\0\0\0\0\1\0" + plain, b"\0\0\0\0\1\4\0\2" + plain, b"\x0f")],
    )
    arguments = ("--values", "protobuf", "--schema", path, log)
    shown = lines(*arguments, "--message", "shop.Order", code=1)
    assert [line["value"] for line in shown[:3]] == [{"order_id": "7", "name": "ann"}] * 3
    assert shown[3]["value"] == "\x0f"
    assert "shop.Order" in run(*arguments, code=2).stderr
    assert "no message" in run(*arguments, "--message", "shop.None", code=2).stderr


@pytest.mark.slow
def test_a_broker_is_dumped_as_its_folder(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.create_topic("events", partitions=2)
        for number in range(6):
            broker.logs["events", number % 2].append(
                [Record(b"k%d" % number, b"v", [("h", b"x")], timestamp=1_600_000_000_000 + number)]
            )
        address = f"kafka://{broker.bootstrap_servers}"
        folder = lines(tmp_path / "data", "--topic", "events")
        assert len(folder) == 6
        assert lines(address, "--topic", "events") == folder
        assert lines(f"{address}/events", "--partition", "1", "--key", "k[3]") == []
        assert lines(f"{address}/events", "--partition", "1", "--offsets", "1:") == folder[4:]
        assert lines(f"{address}/events", "--since", str(1_600_000_000_005)) == folder[5:]
        assert lines(f"{address}/events", "--limit", "4") == folder[:4]
        run(address, "--batches", code=2)
