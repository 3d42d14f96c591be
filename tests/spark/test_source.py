from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import odradek.spark
from odradek.errors import OptionError
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, write_offset_checkpoint
from peers.kafka_fixture import KafkaFixture, consumed_record
from peers.ledger import require_same

TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("odradek").options(**options).load(str(path))


def expected_rows(consumed: dict[str, dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: [
            (
                record.offset,
                row["timestamp"] * 1000,
                TIMESTAMP_TYPES[row["timestampType"]],
                record.key,
                record.value,
                list(record.headers) or None,
            )
            for row in partition["records"]
            for record in (consumed_record(row),)
        ]
        for name, partition in consumed.items()
    }


def rows_read(frame: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    rows: dict[str, list[tuple[Any, ...]]] = {}
    columns = frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "unix_micros(timestamp) AS timestamp",
        "timestampType",
        "key",
        "value",
        "headers",
    )
    for row in columns.toArrow().to_pylist():
        headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
        rows.setdefault(f"{row['topic']}-{row['partition']}", []).append(
            (row["offset"], row["timestamp"], row["timestampType"], row["key"], row["value"], headers)
        )
    return {name: sorted(found, key=lambda row: row[0]) for name, found in rows.items()}


@pytest.mark.parametrize("folder", ["log_dir", "log_dir_unclean"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_gives_what_consumers_were_given(
    spark: SparkSession, kafka_fixture: KafkaFixture, folder: str, isolation: str, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(getattr(kafka_fixture, folder), tmp_path / "data"))
    # As the broker would have done within a minute: until then a crash forgets that records were deleted.
    write_offset_checkpoint(path / LOG_START_OFFSET_CHECKPOINT, kafka_fixture.log_start_offsets)
    consumed = kafka_fixture.consumed if isolation == "read_uncommitted" else kafka_fixture.consumed_committed
    frame = read(
        spark,
        path,
        subscribePattern="(?!__).*",
        includeHeaders="true",
        **{"isolation.level": isolation},
    )
    found = rows_read(frame)
    for name, rows in expected_rows(consumed).items():
        assert found.get(name, []) == rows, name


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    plain = read(spark, fixture_4_3_1.log_dir, subscribe="v2-none")
    assert plain.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = read(spark, fixture_4_3_1.log_dir, subscribe="v2-none", includeHeaders="true")
    assert with_headers.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_honours_a_narrowed_schema(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    frame = (
        spark.read.format("odradek")
        .schema("value binary, offset bigint NOT NULL")
        .option("subscribe", "v2-zstd")
        .load(str(fixture_4_3_1.log_dir))
    )
    records = fixture_4_3_1.records("v2-zstd-0")
    assert [(row.offset, row.value) for row in frame.collect()] == [(one.offset, one.value) for one in records]


def test_reads_the_columns_that_are_named(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    log_dir = fixture_4_3_1.log_dir
    every = odradek.spark.read(spark, log_dir, subscribe="keyed", includeHeaders=True)
    assert len(every.columns) == 8
    some = odradek.spark.read(spark, log_dir, subscribe="keyed", columns=("value", "headers", "offset"))
    assert some.columns == ["value", "headers", "offset"]
    assert sorted(some.collect(), key=repr) == sorted(every.select(some.columns).collect(), key=repr)
    # What workers decode, and hand over, is what was asked for.
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert "headers#" in plan
    assert "key#" not in plan


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"columns": ["offset", "valeu"]}, OptionError, "there is no column 'valeu'; did you mean value?"),
        ({"columns": ["Offset"]}, OptionError, "there is no column 'Offset'; did you mean offset?"),
        ({"columns": ["xyz"]}, OptionError, "there is no column 'xyz'; there are key, value, topic, partition, offset"),
        ({"columns": ["offset", "value", "offset"]}, OptionError, "the column 'offset' is named twice"),
        ({"columns": []}, OptionError, "columns names none: give one at least"),
        ({"columns": "offset"}, TypeError, "columns must be a list of names, not 'offset'"),
        ({"columns": [b"offset"]}, TypeError, "a column must be a str, not b'offset'"),
        ({"subscribe": 3.5}, TypeError, "the option subscribe must be a text, a whole number, True or False, not 3.5"),
        ({"subscrib": "keyed"}, OptionError, "unknown option subscrib; did you mean subscribe?"),
        ({"path": None}, OptionError, "give either path"),
        ({"spark": None}, TypeError, "spark must be a SparkSession, not None"),
    ],
)
def test_wrong_arguments_of_read_are_told_before_spark_does_anything(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    given: dict[str, Any] = {"spark": spark, "path": fixture_4_3_1.log_dir, "subscribe": "keyed", **arguments}
    if "subscrib" in given:
        del given["subscribe"]
    with pytest.raises(error, match=re.escape(told)):
        odradek.spark.read(**given)


def test_starts_and_ends_where_the_offsets_say(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    frame = read(
        spark,
        fixture_4_3_1.log_dir,
        subscribe="keyed",
        startingOffsets='{"keyed": {"0": 100, "1": -2, "2": 7}}',
        endingOffsets='{"keyed": {"0": 150, "1": 5, "2": -1}}',
    )
    ends = {
        row.partition: (row.low, row.high)
        for row in frame.groupBy("partition")
        .agg({"offset": "min"})
        .withColumnRenamed("min(offset)", "low")
        .join(frame.groupBy("partition").agg({"offset": "max"}).withColumnRenamed("max(offset)", "high"), "partition")
        .collect()
    }
    last = fixture_4_3_1.consumed["keyed-2"]["highWatermark"] - 1
    assert ends == {0: (100, 149), 1: (0, 4), 2: (7, last)}


def test_splits_on_batch_boundaries_when_more_partitions_are_wanted(
    spark: SparkSession, fixture_4_3_1: KafkaFixture
) -> None:
    frame = read(
        spark, fixture_4_3_1.log_dir, subscribe="v2-none", minPartitions="3", startingOffsets='{"v2-none": {"0": 5}}'
    )
    assert frame.rdd.getNumPartitions() >= 3
    offsets = [row.offset for row in frame.select("offset").collect()]
    require_same(
        sorted(offsets),
        [record["offset"] for record in fixture_4_3_1.consumed["v2-none-0"]["records"]][5:],
        "the records",
    )


def test_starts_at_a_time(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    records = fixture_4_3_1.consumed["v2-append-time-0"]["records"]
    time = records[600]["timestamp"]
    first = next(record["offset"] for record in records if record["timestamp"] >= time)
    frame = read(spark, fixture_4_3_1.log_dir, subscribe="v2-append-time", startingTimestamp=str(time))
    assert frame.agg({"offset": "min"}).collect()[0][0] == first


def test_is_a_view_in_sql(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW texts USING odradek "
        f"OPTIONS (path '{fixture_4_3_1.log_dir}', subscribe 'v2-gzip')"
    )
    assert spark.sql("SELECT count(*) FROM texts").collect()[0][0] == 1200


def test_an_empty_topic_has_no_rows(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    assert read(spark, fixture_4_3_1.log_dir, subscribe="empty").collect() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "v2-none", "startingOfsets": "earliest"}, "unknown option startingofsets"),
        ({"subscribe": "nowhere"}, "topic nowhere does not exist"),
        ({"subscribe": "truncated-head", "startingOffsets": '{"truncated-head": {"0": 3}}'}, "deleted by retention"),
    ],
)
def test_says_what_is_wrong(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=rf"\[PYTHON_DATA_SOURCE_ERROR\].*Error: .*{said}") as raised:
        read(spark, fixture_4_3_1.log_dir, **options).count()
    assert "Traceback" not in str(raised.value)


def test_a_deleted_head_can_be_passed_over(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    frame = read(
        spark,
        fixture_4_3_1.log_dir,
        subscribe="truncated-head",
        startingOffsets='{"truncated-head": {"0": 3}}',
        failOnDataLoss="false",
    )
    assert frame.agg({"offset": "min"}).collect()[0][0] == 777


def test_corruption_is_an_error_and_never_a_shorter_answer(spark: SparkSession, writable_log_dir: Path) -> None:
    segment = sorted((writable_log_dir / "v2-lz4-0").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(PySparkException, match=r"CorruptRecordError|checksum"):
        read(spark, writable_log_dir, subscribe="v2-lz4").count()


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("offset >= 100 AND offset < 130", lambda row: 100 <= row["offset"] < 130),
        ("partition = 2 AND offset > 300", lambda row: row["partition"] == 2 and row["offset"] > 300),
        (
            "topic IN ('keyed') AND partition IN (0, 1) AND offset = 7",
            lambda row: row["partition"] < 2 and row["offset"] == 7,
        ),
        ("topic = 'nowhere'", lambda row: False),
        (
            "timestamp >= '2020-09-13 12:31:40.001' AND timestamp < '2020-09-13 12:33:20'",
            lambda row: 1_600_000_300_001 <= row["timestamp"] < 1_600_000_400_000,
        ),
        ("timestamp = '2020-09-13 12:31:40.001'", lambda row: row["timestamp"] == 1_600_000_300_001),
        ("offset IS NOT NULL AND NOT (partition = 1)", lambda row: row["partition"] != 1),
    ],
)
def test_filters_are_taken_over(
    spark: SparkSession, fixture_4_3_1: KafkaFixture, condition: str, kept: Callable[[dict[str, Any]], bool]
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, fixture_4_3_1.log_dir, subscribe="keyed", pushDownFilters="true").where(condition)
        found = {(row.partition, row.offset) for row in frame.select("partition", "offset").collect()}
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found == {
        (partition, record["offset"])
        for partition in range(3)
        for record in fixture_4_3_1.consumed[f"keyed-{partition}"]["records"]
        if kept({**record, "partition": partition})
    }


def test_spark_lets_one_filter_narrow_all_queries_of_a_frame(spark: SparkSession, fixture_4_3_1: KafkaFixture) -> None:
    """Why filters are not pushed down by default. Where this fails, Spark is mended, and they may be."""
    everything = read(spark, fixture_4_3_1.log_dir, subscribe="keyed").count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, fixture_4_3_1.log_dir, subscribe="keyed", pushDownFilters="true")
        narrowed = frame.where("partition = 1").count()
        assert frame.count() == narrowed < everything
        # Without the option, and with another `load`, nothing is lost.
        assert read(spark, fixture_4_3_1.log_dir, subscribe="keyed", pushDownFilters="true").count() == everything
        plain = read(spark, fixture_4_3_1.log_dir, subscribe="keyed")
        assert plain.where("partition = 1").count() == narrowed
        assert plain.count() == everything
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_times_that_no_calendar_has(spark: SparkSession, tmp_path: Path) -> None:
    """2^63-1 was a thousandth of a second before 1970, and nanoseconds a day of the year 2404."""
    near, far = 1_700_000_000_000, (1_700_000_000_000 * 10**6, (1 << 63) - 1)
    with odradek.open(tmp_path) as logs:
        config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
        logs.create_topic("t", partitions=1, config=config)
        logs["t", 0].append([odradek.Record(None, b"v", timestamp=time) for time in (near, *far)])
    with pytest.raises(PySparkException, match=r"t-0, offset 1: 1700000000000000000 \(are these nanoseconds\?\) ms is"):
        read(spark, tmp_path, subscribe="t").collect()
    found = read(spark, tmp_path, subscribe="t", farTimestamps="null").selectExpr("unix_millis(timestamp) AS at")
    assert [row["at"] for row in found.collect()] == [near, None, None]
