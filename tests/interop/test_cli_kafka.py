"""The command line against Apache Kafka: its dump tool, and whether it starts on what was salvaged."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from odradek.messages.coordinators.group_records import (
    SHOWN_GROUP_TYPES,
    GroupMetadataValue,
    MemberMetadata,
    encode_group_metadata,
)
from odradek.messages.coordinators.share_records import SHARE_TYPES
from odradek.messages.coordinators.transaction_records import TYPES as TRANSACTION_TYPES
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from peers.command import run
from peers.fixtures import BrokerFactory
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.random_messages import coordinator_records, metadata_values

pytestmark = pytest.mark.interop

FLAGS: list[list[str]] = [
    [],
    ["--deep-iteration"],
    ["--print-data-log"],
    ["--print-data-log", "--skip-record-metadata"],
]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_kafka_compat_is_what_the_tool_prints(
    kafka_fixture: KafkaFixture, kafka_tools: KafkaTools, flags: list[str]
) -> None:
    log_dir = kafka_fixture.log_dir
    paths = [
        path
        for path in sorted(log_dir.glob("*/*"))
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    ]
    theirs = kafka_tools.dump_log(paths, *flags)
    result = run("dump", "--kafka-compat", *flags, *paths, code=0)
    mine = result.stdout_bytes.decode("utf-8", "surrogateescape").split("\n")
    for number, (line, expected) in enumerate(zip(mine, theirs.stdout.split("\n"), strict=False)):
        assert line == expected, number
    assert len(mine) == len(theirs.stdout.split("\n"))


@pytest.mark.parametrize(
    "flags",
    [["--max-bytes", "700"], ["--max-bytes", "0"], ["--verify-index-only"], ["--index-sanity-check"]],
    ids=" ".join,
)
def test_a_part_of_the_bytes_and_what_is_said_of_indexes(
    kafka_fixture: KafkaFixture, kafka_tools: KafkaTools, flags: list[str]
) -> None:
    # Not of compacted logs, of which the tool names entries that are right.
    topics = ("keyed", "transactional", "truncated-head")
    files = (path for topic in topics for path in sorted((kafka_fixture.log_dir / f"{topic}-0").iterdir()))
    paths = [path for path in files if path.suffix in {".log", ".index", ".timeindex", ".txnindex"}]
    theirs = kafka_tools.dump_log(paths, *flags)
    result = run("dump", "--kafka-compat", *flags, *paths)
    assert (result.exit_code, theirs.code) == (0, 0)
    assert result.stdout == theirs.stdout
    assert (result.stderr, theirs.stderr) == ("", "")


@pytest.mark.parametrize(
    ("topic", "flag"),
    [("__consumer_offsets-0", "--offsets-decoder"), ("__transaction_state-0", "--transaction-log-decoder")],
)
def test_decoders(kafka_fixture: KafkaFixture, kafka_tools: KafkaTools, topic: str, flag: str) -> None:
    paths = sorted((kafka_fixture.log_dir / topic).glob("*.log"))
    result = run("dump", "--kafka-compat", flag, *paths)
    assert result.stdout == kafka_tools.dump_log(paths, flag).stdout


def test_records_of_every_type_and_version(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    source = random.Random(1)
    # Kafka reads offsets under the oldest key in their oldest version only.
    groups = {number: types for number, types in SHOWN_GROUP_TYPES.items() if number}
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {
        "--offsets-decoder": [*coordinator_records(source, groups, 6)],
        "--transaction-log-decoder": [*coordinator_records(source, TRANSACTION_TYPES, 6)],
        "--share-group-state-decoder": [*coordinator_records(source, SHARE_TYPES, 6)],
        "--cluster-metadata-decoder": [(None, value) for value in metadata_values(source, 6)],
    }
    for flag, records in written.items():
        path = tmp_path / flag / f"{0:020}.log"
        path.parent.mkdir()
        path.write_bytes(build_batch([Record(key, value, timestamp=1) for key, value in records]))
        result = run("dump", "--kafka-compat", flag, path, code=0)
        for line, expected in zip(
            result.stdout.split("\n"), kafka_tools.dump_log(path, flag).stdout.split("\n"), strict=True
        ):
            assert line == expected
            assert "skipping" not in line


def _offset_records() -> list[tuple[bytes, bytes | None]]:
    """Keys and values of `__consumer_offsets` that are cut short, or of versions that are not known."""
    number = struct.Struct(">h").pack

    def key(kind: int) -> bytes:
        return number(kind) + number(1) + b"g" + number(1) + b"t" + bytes(4)

    offset = struct.pack(">hqihq", 3, 100, 0, 0, 1)
    group, _ = encode_group_metadata("g", GroupMetadataValue("consumer", 1, "range", "m", (), 1))
    found: list[tuple[bytes, bytes | None]] = [
        (key(0), struct.pack(">hqhq", 0, 100, 0, 1)),
        (key(0), struct.pack(">hqhqq", 1, 100, 0, 1, 2)),
        (key(0), offset),
        (key(0), None),
        (key(1), number(9) + offset[2:]),
        (key(1), number(-1) + offset[2:]),
        (key(1), b"\0"),
        (key(1), b""),
        (key(1), offset[:-3]),
        (key(1)[:-2], offset),
        (key(1)[:3], offset),
        (key(1) + b"x", offset + b"y"),
        (b"\0", offset),
        (b"", offset),
        (number(77) + b"x", offset),
    ]
    for version in (-1, 0, 3, 4, 100):
        about = number(version) + struct.pack(">ihcii", 1, 1, b"t", 1, 0) + struct.pack(">i", -1)
        member = MemberMetadata("m", "c", "/h", 1000, about, about, None, 1000)
        found.append(encode_group_metadata("g", GroupMetadataValue("consumer", 1, "range", "m", (member,), 1)))
    return [*found, (group, number(3) + b"abc")]


def test_offsets_that_cannot_be_decoded(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    paths = []
    for offset, (key, value) in enumerate(_offset_records()):
        paths.append(tmp_path / f"{offset:020}.log")
        paths[-1].write_bytes(build_batch([Record(key, value, timestamp=1)], base_offset=offset))
    theirs = kafka_tools.dump_log(paths, "--offsets-decoder").stdout
    result = run("dump", "--kafka-compat", "--offsets-decoder", *paths)
    assert result.stdout == theirs
    assert theirs.count("skipping") > 10


def test_cluster_metadata(fixture_4_3_1: KafkaFixture, kafka_tools: KafkaTools) -> None:
    folder = fixture_4_3_1.log_dir / "__cluster_metadata-0"
    paths = [*sorted(folder.glob("*.log")), *sorted(folder.glob("*.checkpoint"))]
    paths.append(fixture_4_3_1.log_dir / "bootstrap.checkpoint")
    flag = "--cluster-metadata-decoder"
    result = run("dump", "--kafka-compat", flag, *paths, code=0)
    assert result.stdout == kafka_tools.dump_log(paths, flag).stdout


def test_bytes_that_are_no_text(fixture_4_3_1: KafkaFixture, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """Where the checksum is wrong the tool prints on, so any bytes can be put into a value to see how it shows them."""
    source = max((fixture_4_3_1.log_dir / "v2-none-0").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(source.read_bytes())
    hostile = b"\xed\xa0\x80 \xed\xa0A \xe1\x80A \xf4\x90\x80\x80 \xc0\x80 "
    hostile += b"\xf0\x90\x80A \xf5\x80 \xe0\x80\x80 \xf0\x80\x80\x80 "
    spot = data.index(b"leader log")
    end = next(header.end_position for header in scan_batches(bytes(data)) if header.end_position > spot)
    hostile = hostile[: max(10, min(len(hostile), end - spot - 40))]
    data[spot : spot + len(hostile)] = hostile
    path = tmp_path / "v2-none-0" / source.name
    path.parent.mkdir()
    path.write_bytes(data)
    theirs = kafka_tools.dump_log(path, "--print-data-log")
    result = run("dump", "--kafka-compat", "--print-data-log", path, code=1)
    assert result.stdout == theirs.stdout
    assert "isvalid: false" in result.stdout


def test_kafka_serves_what_was_salvaged(
    writable_log_dir: Path,
    tmp_path: Path,
    fixture_4_3_1: KafkaFixture,
    kafka_tools: KafkaTools,
    kafka_broker: BrokerFactory,
) -> None:
    segment = min((writable_log_dir / "v2-lz4-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    damaged = list(scan_batches(bytes(data)))[1]
    data[damaged.position + 80] ^= 0xFF
    segment.write_bytes(data)
    assert run("salvage", writable_log_dir, tmp_path / "out").exit_code == 1
    broker = kafka_broker(tmp_path / "out")
    consumed = kafka_tools.consume(broker.bootstrap_servers, ["v2-lz4", "transactional"])
    lost = range(damaged.base_offset, damaged.next_offset)
    for name in ("v2-lz4-0", "transactional-0"):
        expected = fixture_4_3_1.consumed[name]["records"]
        if name == "v2-lz4-0":
            expected = [record for record in expected if record["offset"] not in lost]
        assert consumed[name]["records"] == expected
