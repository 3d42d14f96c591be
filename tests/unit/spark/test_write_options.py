"""The options and the columns of a write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from odradek.errors import OptionError
from odradek.records.compression import Codec
from odradek.spark.spark_schema import HEADERS_TYPE
from odradek.spark.writing.write_options import WriteOptions
from odradek.spark.writing.writers import check_columns

TO_FOLDER = {"path": "/logs/data", "topic": "t"}
TO_BROKER = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


def test_what_is_used_by_default() -> None:
    to_folder = WriteOptions.parse(TO_FOLDER)
    assert to_folder.path == Path("/logs/data")
    assert to_folder.staging_path == Path("/logs/data.odradek-staging")
    assert not to_folder.is_transactional
    assert WriteOptions.parse(TO_FOLDER, streaming=True).is_transactional
    to_broker = WriteOptions.parse({**TO_BROKER, "kafka.sasl.mechanism": "PLAIN", "includeHeaders": "true"})
    assert to_broker.kafka == {"bootstrap.servers": "h:1", "sasl.mechanism": "PLAIN"}
    assert to_broker.codec is Codec.NONE


def test_what_is_given() -> None:
    # Spark gives names in lower case, and the options of the stream itself too.
    given = {"checkpointlocation": "c", "queryname": "q", "stagingpath": "/s", "kafka.compression.type": "zstd"}
    options = WriteOptions.parse({**TO_FOLDER, **given, "kafka.transactional.id": "job"}, streaming=True)
    assert (options.staging_path, options.codec, options.transactional_id) == (Path("/s"), Codec.ZSTD, "job")
    assert WriteOptions.parse({**TO_BROKER, "kafka.transactional.id": "job"}).is_transactional
    assert not WriteOptions.parse({**TO_BROKER, "transactional": "False"}, streaming=True).is_transactional
    for path in ("file:///logs/data", "file:/logs/data", "FILE:/logs/data"):
        assert WriteOptions.parse({"path": path}).path == Path("/logs/data")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give either path"),
        ({**TO_FOLDER, **TO_BROKER}, "give either path"),
        ({**TO_FOLDER, "topics": "u"}, "unknown option topics of a write; did you mean topic"),
        ({**TO_FOLDER, "topic": " "}, "topic is empty"),
        ({**TO_FOLDER, "kafka.linger.ms": "1"}, r"kafka\.linger\.ms is for a broker"),
        (
            {**TO_FOLDER, "kafka.compression.type": "zip"},
            r"kafka\.compression\.type must be one of none, .*, not 'zip'",
        ),
        ({**TO_FOLDER, "transactional": "maybe"}, "transactional must be one of true, false, not 'maybe'"),
        ({**TO_FOLDER, "path": "s3://bucket/data"}, "on a file system of this machine, not at s3:"),
        ({**TO_FOLDER, "path": "file://host/data"}, "path: file:/// and the folder's path, not file://host/data"),
        ({**TO_BROKER, "kafka.transactional.id": "job", "transactional": "false"}, "transactional is false"),
        ({**TO_BROKER, "kafka.transactional.id": ""}, r"kafka\.transactional\.id is empty"),
        ({**TO_BROKER, "kafka.key.serializer": "x"}, r"kafka\.key\.serializer cannot be set"),
        ({**TO_BROKER, "stagingPath": "/s"}, "stagingPath is for a folder"),
        ({**TO_FOLDER, "stagingPath": "/logs/data/staging"}, "stagingPath is within /logs/data, and Kafka"),
        ({**TO_FOLDER, "stagingPath": ""}, "stagingPath is empty"),
        ({"path": "", "topic": "t"}, "path is empty"),
    ],
)
def test_mistakes(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        WriteOptions.parse(options)


def schema(**columns: str) -> StructType:
    types = {"string": StringType(), "int": IntegerType(), "headers": HEADERS_TYPE}
    return StructType([StructField(name, types[kind]) for name, kind in columns.items()])


def test_columns_of_one_name() -> None:
    with pytest.raises(OptionError, match="more than one column is called 'value'"):
        check_columns(StructType([*schema(value="string", key="string"), *schema(value="string")]), "t")


def test_columns() -> None:
    check_columns(schema(value="string", other="int"), "t")
    check_columns(schema(value="string", key="string", topic="string", partition="int", headers="headers"), None)
    # The option takes precedence.
    check_columns(schema(value="string", topic="int"), "t")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"topic": "string", "other": "string"}, "Required attribute 'value' not found"),
        ({"value": "string"}, "topic option required when no 'topic' attribute is present"),
        ({"topic": "int", "value": "string"}, r"topic attribute unsupported type int. topic must be a\(n\) string"),
        ({"topic": "string", "value": "int"}, r"value must be a\(n\) string or binary"),
        ({"topic": "string", "value": "string", "partition": "string"}, "partition attribute unsupported type string"),
        ({"topic": "string", "value": "string", "headers": "string"}, "headers attribute unsupported type string"),
    ],
)
def test_columns_that_are_missing_or_of_another_type(columns: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        check_columns(schema(**columns), None)
