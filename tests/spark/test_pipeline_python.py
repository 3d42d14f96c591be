"""Python in a pipeline: transforms, functions for SQL, typed values, sinks."""

from __future__ import annotations

import io
import json
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession

import odradek
from odradek.errors import SinkError
from odradek.spark.pipeline import Job, JobError, Pipeline
from peers.files import create_log

HEAD = """
name = "orders"
[source]
path = "data"
subscribe = "orders"
[offsets]
store = "file:offsets.json"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = [{"id": 1, "amount": 2.5, "tags": ["a", "b"]}, {"id": 2, "amount": 4}, "no JSON", None]
    create_log(
        tmp_path / "data",
        "orders",
        [odradek.Record(key=b"", value=None if value is None else json.dumps(value).encode()) for value in values],
    )
    return tmp_path


def run(folder: Path, spark: SparkSession, text: str) -> None:
    (folder / "job.toml").write_text(HEAD + text, encoding="utf-8")
    Pipeline(Job.read(folder / "job.toml"), spark).run()


def test_typed_values_functions_and_transforms(spark: SparkSession, folder: Path) -> None:
    (folder / "order.ddl").write_text("id BIGINT, amount DOUBLE, tags ARRAY<STRING>", encoding="utf-8")
    (folder / "doubling_of_orders.py").write_text(
        "from pyspark.sql.functions import pandas_udf\n"
        "def _times(number, factor): return None if number is None else number * factor\n"
        "def twice(number): return _times(number, 2)\n"
        "@pandas_udf('double')\n"
        "def half(numbers): return numbers / 2\n"
        "def valid(records): return records.where('data.id IS NOT NULL')\n",
        encoding="utf-8",
    )
    run(
        folder,
        spark,
        """
[source.value]
format = "json"
schema = "order.ddl"
[[udf]]
name = "twice"
function = "doubling_of_orders:twice"
returns = "double"
[[udf]]
name = "half"
function = "doubling_of_orders:half"
[[transform]]
view = "valid"
python = "doubling_of_orders:valid"
[[transform]]
view = "orders"
sql = '''
SELECT topic, partition, offset, data.id, twice(data.amount) AS twice, half(data.amount) AS half, data.tags FROM valid
'''
[[sink]]
type = "parquet"
view = "orders"
path = "out"
""",
    )
    rows = pq.read_table(folder / "out").drop_columns(["topic", "partition"]).to_pylist()
    assert rows == [
        {"offset": 0, "id": 1, "twice": 5.0, "half": 1.25, "tags": ["a", "b"]},
        {"offset": 1, "id": 2, "twice": 8.0, "half": 2.0, "tags": None},
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return None", r"transform\[0\]\.python: failing_\d:change must return a DataFrame, not None"),
        ("return records.select('nothing')", r"transform\[0\]\.python: \[UNRESOLVED_COLUMN"),
        ("return {}['x']", r"transform\[0\]\.python: KeyError: 'x' \(.*failing_\d\.py, line 1, in change\)"),
        ("raise SystemExit", r"transform\[0\]\.python: SystemExit \("),
    ],
)
def test_what_a_transform_does_wrong_is_one_line(spark: SparkSession, folder: Path, body: str, told: str) -> None:
    module = f"failing_{len(body) % 10}"
    (folder / f"{module}.py").write_text(f"def change(records): {body}\n", encoding="utf-8")
    sink = '[[sink]]\ntype = "console"\nview = "changed"\n'
    with pytest.raises(JobError, match=told) as caught:
        run(folder, spark, f'[[transform]]\nview = "changed"\npython = "{module}:change"\n{sink}')
    assert "\n" not in str(caught.value)


def test_a_function_that_sql_has_itself_is_refused(spark: SparkSession, folder: Path) -> None:
    (folder / "own_upper.py").write_text("def upper(text): return 'mine'\n", encoding="utf-8")
    text = """
[[udf]]
name = "{}"
function = "own_upper:upper"
returns = "string"
[[sink]]
type = "console"
sql = "SELECT {}(CAST(value AS STRING)) FROM records"
"""
    with pytest.raises(JobError, match=r"udf\[0\]\.name: SQL has a function upper, and Spark would take that"):
        run(folder, spark, text.format("upper", "upper"))
    run(folder, spark, text.format("my_upper", "my_upper"))


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "prices",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "P",
                    "fields": [
                        {
                            "name": "net",
                            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                        },
                    ],
                },
            },
        },
        {"name": "last", "type": ["null", "P"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "wide", "type": ["int", "long"]},
    ],
}
AT = datetime(2026, 11, 1, 12, 30, 0, 123000, tzinfo=UTC)
TYPED = """
[source.value]
format = "{format}"
schema = "schema"
{more}
[[transform]]
view = "orders"
sql = "SELECT topic, partition, offset, data FROM records"
[[sink]]
type = "parquet"
view = "orders"
path = "out"
"""


def write(folder: Path, *values: bytes | None) -> None:
    with odradek.open(folder / "data") as logs:
        logs["orders", 0].append([odradek.Record(value=value) for value in values])


def typed(folder: Path) -> list[Any]:
    return sorted(pq.read_table(folder / "out").select(["offset", "data"]).to_pylist(), key=lambda row: row["offset"])


def test_avro(spark: SparkSession, folder: Path) -> None:
    order = {
        "id": 1 << 40, "note": None, "tags": ["a", ""], "prices": {"x": {"net": Decimal("-1.25")}}, "at": AT,
        "last": {"net": Decimal("3.00")}, "on": AT.date(), "time": 1000, "key": "7", "kind": "OLD", "hash": b"\0\xff",
        "wide": 1 << 40,
    }  # fmt: skip
    out = io.BytesIO(b"\0\0\0\0\7")  # as Confluent's serializer begins
    out.seek(5)
    fastavro.schemaless_writer(out, {**AVRO, "fields": [
        {**field, "type": "int"} if field["name"] == "time" else {**field, "type": "string"} if field["name"] == "key"
        else field for field in AVRO["fields"]
    ]}, order)  # fmt: skip
    write(folder, out.getvalue(), out.getvalue()[:-1], out.getvalue() + b"x", b"")
    (folder / "schema").write_text(json.dumps(AVRO), encoding="utf-8")
    run(folder, spark, TYPED.format(format="avro", more="skip_bytes = 5"))
    rows = typed(folder)
    assert [row["offset"] for row in rows] == list(range(8))
    found = rows.pop(4)["data"]
    assert {**found, "prices": dict(found["prices"]), "at": found["at"].astimezone(UTC)} == order
    # What is not of this schema is null, as in JSON.
    assert all(row["data"] is None for row in rows)


def test_values_that_do_not_fit_fail_if_asked_for(spark: SparkSession, folder: Path) -> None:
    (folder / "schema").write_text(json.dumps(AVRO), encoding="utf-8")
    with pytest.raises((JobError, SinkError), match="a value is not of this schema"):
        run(folder, spark, TYPED.format(format="avro", more='options = { mode = "FAILFAST" }'))


def test_protobuf(spark: SparkSession, folder: Path) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().MergeFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = files.file.add(
        name="shop.proto", package="shop", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    order.nested_type.add(name="Line").field.add(name="net", number=1, type=kinds.TYPE_DOUBLE, label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_UINT32, label=1)
    for number, (name, of, type_name, label) in enumerate(
        [
            ("id", kinds.TYPE_SINT64, None, 1),
            ("big", kinds.TYPE_UINT64, None, 1),
            ("raw", kinds.TYPE_BYTES, None, 1),
            ("kind", kinds.TYPE_ENUM, ".shop.Kind", 1),
            ("lines", kinds.TYPE_MESSAGE, ".shop.Order.Line", 3),
            ("counts", kinds.TYPE_MESSAGE, ".shop.Order.CountsEntry", 3),
            ("at", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp", 1),
            ("first", kinds.TYPE_MESSAGE, ".shop.Order.Line", 1),
            ("note", kinds.TYPE_STRING, None, 1),
        ],
        1,
    ):
        field = order.field.add(name=name, number=number, type=of, type_name=type_name, label=label)
        if name == "note":
            field.proto3_optional, field.oneof_index = True, 0
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    value = made(id=-5, big=(1 << 64) - 1, raw=b"\xff", kind=1, lines=[{"net": 1.5}, {}], counts={"a": (1 << 32) - 1})
    value.at.FromDatetime(AT)
    write(folder, value.SerializeToString(), b"\xff")
    (folder / "schema").write_bytes(files.SerializeToString())
    run(folder, spark, TYPED.format(format="protobuf", more='message = "shop.Order"'))
    rows = typed(folder)
    found = rows[4]["data"]
    assert {**found, "counts": dict(found["counts"]), "at": found["at"].astimezone(UTC)} == {
        "id": -5, "big": Decimal((1 << 64) - 1), "raw": b"\xff", "kind": "OLD", "lines": [{"net": 1.5}, {"net": 0.0}],
        "counts": {"a": (1 << 32) - 1}, "at": AT, "first": None, "note": None,
    }  # fmt: skip
    assert rows[3]["data"] is None
    assert rows[5]["data"] is None


LEDGER = """
import os, sqlite3

def _open():
    db = sqlite3.connect(os.path.join(os.path.dirname(__file__), "ledger.db"))
    db.execute("CREATE TABLE IF NOT EXISTS orders (value)")
    db.execute("CREATE TABLE IF NOT EXISTS positions (topic, partition, next, PRIMARY KEY (topic, partition))")
    return db

def store(rows, batch):
    with _open() as db:
        db.executemany("INSERT INTO orders VALUES (?)", rows.select("value").toLocalIterator())
        places = [(*name, end) for name, start, end in batch.ranges]
        db.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", places)
    if os.path.exists(os.path.join(os.path.dirname(__file__), "crash")):
        raise MemoryError("the machine is gone")

def positions():
    with _open() as db:
        return {(topic, number): end for topic, number, end in db.execute("SELECT * FROM positions")}

def wrong():
    return {"orders-0": 1}
"""
LEDGER_SINK = """
[trigger]
max_offsets_per_batch = 3
[[sink]]
type = "python"
function = "ledger_of_orders:store"
positions = "ledger_of_orders:positions"
"""


def test_a_function_that_keeps_its_positions_gets_each_record_once(spark: SparkSession, folder: Path) -> None:
    (folder / "ledger_of_orders.py").write_text(LEDGER, encoding="utf-8")
    (folder / "crash").touch()
    with pytest.raises(JobError, match=r"sink\[0\]\.function: MemoryError: the machine is gone \(.*ledger_of_orders"):
        run(folder, spark, LEDGER_SINK)
    (folder / "crash").unlink()
    run(folder, spark, LEDGER_SINK)
    with odradek.open(folder / "data", mode="r") as logs:
        expected = [record.value for record in logs["orders", 0].read()]
    with sqlite3.connect(folder / "ledger.db") as db:
        assert [value for (value,) in db.execute("SELECT value FROM orders ORDER BY rowid")] == expected
    (folder / "offsets.json").unlink()
    with pytest.raises(SinkError, match="python ledger_of_orders:store holds orders-0 up to offset 4 already"):
        run(folder, spark, LEDGER_SINK)
    with pytest.raises(JobError, match=r"sink\[0\]\.positions: ledger_of_orders:wrong must return the next offset by"):
        run(folder, spark, LEDGER_SINK.replace(":positions", ":wrong"))


def test_rows_are_appended_to_a_table_by_jdbc(spark: SparkSession, folder: Path) -> None:
    # Derby would write its log into the current directory.
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))  # type: ignore[union-attr, unused-ignore]
    url = f"jdbc:derby:{folder / 'derby'};create=true"
    sink = f"""
[trigger]
max_offsets_per_batch = 3
[[transform]]
view = "numbered"
sql = "SELECT partition AS part, offset AS number, coalesce(CAST(value AS STRING), '') AS text FROM records"
[[sink]]
type = "jdbc"
view = "numbered"
url = "{url}"
table = "ORDERS"
options = {{ createTableColumnTypes = "text VARCHAR(100)" }}
"""
    run(folder, spark, sink)
    rows = spark.read.jdbc(url, "ORDERS").orderBy("number").collect()
    assert [(row.number, row.text) for row in rows] == [
        (0, '{"id": 1, "amount": 2.5, "tags": ["a", "b"]}'),
        (1, '{"id": 2, "amount": 4}'),
        (2, '"no JSON"'),
        (3, ""),
    ]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            'type = "delta"\npath = "delta"',
            r"sink\[0\]\.type: this needs io\.delta:delta-spark_2\.13, which is not among",
        ),
        ('type = "iceberg"\ntable = "db.t"', r"sink\[0\]\.type: this needs org\.apache\.iceberg:iceberg-spark-runtime"),
        ('type = "jdbc"\nurl = "jdbc:none:x"\ntable = "t"', r"sink\[0\]: .*No suitable driver"),
    ],
)
def test_what_spark_lacks_is_told_by_name(spark: SparkSession, folder: Path, keys: str, told: str) -> None:
    with pytest.raises(JobError, match=told):
        run(folder, spark, f"[[sink]]\n{keys}\n")
