"""`meta.properties` and `partition.metadata`."""

import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from odradek.errors import CheckpointError, LogError
from odradek.messages.uuids import METADATA_TOPIC_ID, format_uuid, parse_uuid, random_uuid
from odradek.storage.formats.meta_properties import (
    MetaProperties,
    format_properties,
    parse_properties,
    read_properties,
    timestamp_comment,
)
from odradek.storage.formats.partition_metadata import (
    format_partition_metadata,
    parse_partition_metadata,
    read_partition_metadata,
    write_partition_metadata,
)
from peers.kafka_fixture import KafkaFixture


def test_uuids_both_ways() -> None:
    assert format_uuid(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    for value in (METADATA_TOPIC_ID, UUID(int=2**128 - 1), random_uuid()):
        assert parse_uuid(format_uuid(value)) == value
    for text in ("", "AAAA", "A" * 23, "A" * 400, "AAAAAAAAAAAAAAAAAAAAA+", "ÄAAAAAAAAAAAAAAAAAAAAA"):
        with pytest.raises(ValueError):
            parse_uuid(text)


def test_real_meta_properties_are_read_and_written_alike(kafka_fixture: KafkaFixture) -> None:
    for log_dir in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        path = log_dir / "meta.properties"
        meta = MetaProperties.read(path)
        assert meta is not None
        assert meta.node_id == 1
        assert meta.version == (0 if kafka_fixture.version == "2.8.2" else 1)
        assert (meta.directory_id is None) == (meta.version == 0)
        assert meta.format() == path.read_bytes()


def test_meta_properties_are_made(tmp_path: Path) -> None:
    meta = MetaProperties("T2RyYWRla0ZpeHR1cmVzQQ", 7, random_uuid())
    meta.write(tmp_path / "meta.properties")
    assert MetaProperties.read(tmp_path / "meta.properties") == meta
    assert MetaProperties.read(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb:2\nc 3\n  d  =  4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# a=1\n! b=2\n\n   \n", {}),
        ("a\nb=\nc==\n", {"a": "", "b": "", "c": "="}),
        ("a\\=b=c\\\\\nd=1\\\n   2\n", {"a=b": "c\\", "d": "12"}),
        ("a=\\u00e9\\t\\q\r\nb=2\rc=3", {"a": "é\tq", "b": "2", "c": "3"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\ud83d\\ude00 \xc3\xa4", {"a": "\U0001f600 \xc3\xa4"}),
    ],
)
def test_java_properties(text: str, properties: dict[str, str]) -> None:
    assert dict(parse_properties(text)) == properties
    assert dict(parse_properties(format_properties(properties, ("x",)).decode("latin-1"))) == properties


@pytest.mark.slow
def test_a_line_of_very_many_parts_is_joined_once() -> None:
    begin = time.thread_time()
    assert dict(parse_properties("a=" + "x\\\n" * 200_000)) == {"a": "x" * 200_000}
    assert time.thread_time() - begin < 1


def test_an_escape_that_is_cut_short_is_an_error_as_in_java(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("version=1\na=domain\\user\n")
    with pytest.raises(LogError, match=r"x: a has a \\u that"):
        read_properties(tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"a has a \\u that"):
        MetaProperties.read(tmp_path / "x")


def test_settings_are_latin_1_as_in_kafka_and_those_in_utf_8_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# für\nplain=a\npassword=pässword\nother=\\u00e4\n", encoding="utf-8")
    assert read_properties(path) == {"plain": "a", "password": "p\xc3\xa4ssword", "other": "ä"}
    [told] = caplog.messages
    assert "server.properties: password: read as Latin-1" in told
    assert told.count("ssword") == 1
    caplog.clear()
    assert read_properties(path, "utf-8")["password"] == "pässword"
    path.write_text("# für\npassword=p\\u00e4ssword\n", encoding="utf-8")
    assert read_properties(path) == {"password": "pässword"}
    path.write_text("password=pässword\n", encoding="latin-1")
    assert read_properties(path) == {"password": "pässword"}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("listeners=x\n".encode("utf-16"), "x has NUL characters"),
        ("authorizer.class.name=x\n".encode("utf-8-sig"), "x begins with a byte order mark, .* authorizer.class.name"),
    ],
)
def test_a_file_whose_settings_would_be_ignored_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    """As editors of Windows save it; who may connect would not be what its owner wrote."""
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(LogError, match=told):
        read_properties(tmp_path / "x")
    (tmp_path / "x").write_text("# y\nlisteners=x\n", encoding="utf-8-sig")
    assert read_properties(tmp_path / "x")["listeners"] == "x"


def test_the_date_is_as_java_writes_it() -> None:
    assert timestamp_comment(datetime(2026, 11, 20, 23, 5, 17, tzinfo=UTC)) == "Fri Nov 20 23:05:17 UTC 2026"


def test_real_partition_metadata_is_read_and_written_alike(fixture_4_3_1: KafkaFixture) -> None:
    ids = set()
    for path in fixture_4_3_1.log_dir.glob("*/partition.metadata"):
        topic_id = read_partition_metadata(path)
        assert topic_id is not None
        ids.add((path.parent.name.rpartition("-")[0], topic_id))
        assert format_partition_metadata(topic_id) == path.read_bytes()
    assert ("__cluster_metadata", METADATA_TOPIC_ID) in ids
    assert len(ids) == len({topic for topic, _ in ids}) == len({topic_id for _, topic_id in ids})


def test_partition_metadata_is_made(tmp_path: Path) -> None:
    topic_id = random_uuid()
    write_partition_metadata(tmp_path / "x", topic_id)
    assert (tmp_path / "x").stat().st_size == 43
    assert read_partition_metadata(tmp_path / "x") == topic_id
    assert read_partition_metadata(tmp_path / "none") is None


def test_partition_metadata_that_kafka_refuses() -> None:
    whole = format_partition_metadata(METADATA_TOPIC_ID).decode()
    for cut in range(len(whole)):
        with pytest.raises(CheckpointError):
            parse_partition_metadata(whole[:cut])
    for text in (
        "version: x\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        whole + "\nx",
    ):
        with pytest.raises(CheckpointError):
            parse_partition_metadata(text)
