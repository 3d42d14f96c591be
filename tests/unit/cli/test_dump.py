"""`odradek dump` against what real consumers saw, and against Kafka's own tool."""

from __future__ import annotations

import base64
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from odradek.messages.coordinators.transaction_records import STATE_NAMES
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.segment.batch_reader import BatchReader, Damage
from peers.command import rows, run
from peers.kafka_fixture import KafkaFixture

DECODERS = {"__consumer_offsets-0": ["--offsets-decoder"], "__transaction_state-0": ["--transaction-log-decoder"]}


def lines_of(result: Result) -> list[str]:
    text = result.stdout_bytes.decode()
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1]


dump = partial(rows, "dump", "--raw")


def from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def as_record(line: dict[str, Any]) -> Record:
    assert list(line) == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    return Record(
        from_json(line["key"]),
        from_json(line["value"]),
        [(name, from_json(value)) for name, value in line["headers"]],
        line["timestamp"],
        line["offset"],
        line["timestamp_type"],
    )


def by_partition(lines: list[dict[str, Any]]) -> dict[str, list[Record]]:
    partitions: dict[str, list[Record]] = {}
    for line in lines:
        partitions.setdefault(f"{line['topic']}-{line['partition']}", []).append(as_record(line))
    return partitions


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["log-dir", "log-dir-unclean"])
def test_every_topic_is_what_a_consumer_saw(kafka_fixture: KafkaFixture, folder: str) -> None:
    dumped = by_partition(dump(kafka_fixture.path / folder))
    for name, consumed in kafka_fixture.consumed.items():
        visible = [record for record in dumped.get(name, []) if record.offset >= consumed["logStartOffset"]]
        assert visible == kafka_fixture.records(name), name


def test_base64_is_the_same_records(fixture_4_3_1: KafkaFixture) -> None:
    lines = dump("--bytes", "base64", fixture_4_3_1.log_dir / "v2-none-0")
    for line, record in zip(lines, fixture_4_3_1.records("v2-none-0"), strict=True):
        pairs = [(line["key"], record.key), (line["value"], record.value)]
        pairs += [(mine[1], theirs[1]) for mine, theirs in zip(line["headers"], record.headers, strict=True)]
        assert [None if text is None else base64.b64decode(text) for text, _ in pairs] == [data for _, data in pairs]
        assert all(text is None or isinstance(text, str) for text, _ in pairs)


def test_control_records_only_when_asked_for(fixture_4_3_1: KafkaFixture) -> None:
    folder = fixture_4_3_1.log_dir / "transactional-0"
    data, all_records = dump(folder), dump(folder, "--control")
    markers = [line["offset"] for line in all_records if line not in data]
    batches = dump(folder, "--control", "--batches")
    assert markers == [batch["base_offset"] for batch in batches if batch["is_control"]]
    assert len(markers) > 10
    assert dump(folder, "--batches") == [batch for batch in batches if not batch["is_control"]]


@pytest.mark.sampled
@pytest.mark.parametrize("offsets", ["0:1", ":7", "1100:", "600:610", "633", "5000:", "0:0"])
@pytest.mark.parametrize("topic", ["v2-lz4-0", "compacted-0", "transactional-0"])
def test_a_range_of_offsets(kafka_fixture: KafkaFixture, topic: str, offsets: str) -> None:
    folder = kafka_fixture.log_dir / topic
    start, colon, end = offsets.partition(":")
    first, last = int(start or 0), int(end or 10**9) if colon else int(start) + 1
    expected = [line for line in dump(folder) if first <= line["offset"] < last]
    assert dump(folder, "--offsets", offsets) == expected


@pytest.mark.slow
@pytest.mark.parametrize("index", ["absent", "garbage"])
def test_indexes_are_not_believed(writable_log_dir: Path, index: str) -> None:
    folder = writable_log_dir / "v2-none-0"
    expected = [line for line in dump(folder) if 700 <= line["offset"] < 720]
    for path in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        if index == "absent":
            path.unlink()
        else:
            path.write_bytes(b"\x00\x00\x00\x07\x00\x00\x10\x01" * 30)
    assert dump(folder, "--offsets", "700:720") == expected
    times = sorted(line["timestamp"] for line in expected)
    in_time = [line for line in dump(folder) if times[3] <= line["timestamp"] < times[-3]]
    assert dump(folder, "--since", str(times[3]), "--until", str(times[-3])) == in_time


@pytest.mark.sampled
@pytest.mark.parametrize("topic", ["v2-zstd-0", "v2-append-time-0", "keyed-1", "transactional-0"])
def test_a_range_of_time(kafka_fixture: KafkaFixture, topic: str) -> None:
    folder = kafka_fixture.log_dir / topic
    everything = dump(folder)
    times = sorted(line["timestamp"] for line in everything)
    since, until = times[len(times) // 2], times[len(times) * 2 // 3] + 1
    expected = [line for line in everything if since <= line["timestamp"] < until]
    assert expected
    assert dump(folder, "--since", str(since), "--until", str(until)) == expected
    assert dump(folder, "--since", "2020-09-13T12:26:40") == [x for x in everything if x["timestamp"] >= 1600000000000]


def test_v0_has_no_time_to_ask_for(fixture_2_8_2: KafkaFixture) -> None:
    assert dump(fixture_2_8_2.log_dir / "v0-none-0", "--since", "0") == []


@pytest.mark.slow
def test_a_segment_by_each_of_its_names(writable_log_dir: Path) -> None:
    segment = writable_log_dir / "keyed-0" / f"{0:020d}.log"
    expected = dump(segment)
    assert expected[0]["topic"] == "keyed"
    for suffix in [".deleted", ".cleaned", ".swap"]:
        renamed = segment.with_name(segment.name + suffix)
        shutil.copyfile(segment, renamed)
        assert dump(renamed) == expected
        assert dump(str(writable_log_dir / "keyed-*" / f"{0:020d}.log{suffix}")) == expected
    # A folder is read as its log is: what compaction or deletion left behind is not part of it.
    assert [line for line in dump(segment.parent) if line["offset"] < 10] == expected[:10]
    elsewhere = shutil.copyfile(segment, writable_log_dir / segment.name)
    assert dump(elsewhere) == [line | {"topic": None, "partition": None} for line in expected]


@pytest.mark.slow
def test_a_log_directory_may_be_named_like_a_partition(writable_log_dir: Path, tmp_path: Path) -> None:
    renamed = writable_log_dir.rename(tmp_path / "data-0")
    assert {line["topic"] for line in dump(renamed)} > {"keyed", "v2-none"}
    (renamed / "meta.properties").unlink()
    assert {line["topic"] for line in dump(renamed)} > {"keyed", "v2-none"}


def test_the_other_files(fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture) -> None:
    folder = fixture_4_3_1.log_dir / "transactional-0"
    base = folder / f"{8:020d}"
    assert dump(f"{base}.index")[0].keys() == {"file", "offset", "position"}
    assert dump(f"{base}.timeindex")[0].keys() == {"file", "timestamp", "offset"}
    aborted = {"producer_id", "first_offset", "last_offset", "last_stable_offset"}
    assert dump(f"{base}.txnindex")[0].keys() == {"file", *aborted}
    assert dump(f"{base}.snapshot")[0]["producer_id"] == 1
    assert dump(folder / "leader-epoch-checkpoint")[0].keys() == {"file", "epoch", "start_offset"}
    assert len(dump(folder / "partition.metadata")[0]["topic_id"]) == 22
    [start] = dump(fixture_2_8_2.log_dir / "log-start-offset-checkpoint")
    assert (start["topic"], start["partition"]) == ("truncated-head", 0)
    assert dump(fixture_2_8_2.log_dir / "meta.properties")[0]["node_id"] == 1
    assert dump(fixture_4_3_1.log_dir / "bootstrap.checkpoint")
    assert run("dump", folder / "leader-epoch-checkpoint").stdout.endswith("epoch=0 start_offset=0\n")


@pytest.mark.slow
def test_kafka_compat_is_what_kafka_s_tool_printed(
    fixture_4_3_1: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fixture_4_3_1.log_dir)
    names = [path.stem for path in sorted(fixture_4_3_1.dump.iterdir())]
    assert len(names) == 17
    for name in names:
        result = run("dump", "--kafka-compat", "--print-data-log", *DECODERS.get(name, []), name, code=0)
        printed = (fixture_4_3_1.dump / f"{name}.txt").read_bytes()
        for state, shown in STATE_NAMES.items():
            # Since then the tool names it.
            printed = printed.replace(b'"transactionStatus":%d,' % state, b'"transactionStatus":"%s",' % shown.encode())
        assert result.stdout_bytes == printed, name


def largest_segment(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda path: path.stat().st_size)


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["v2-none-0", "v2-gzip-0", "transactional-0"])
def test_a_segment_cut_at_every_byte_of_its_last_batches(fixture_4_3_1: KafkaFixture, topic: str) -> None:
    data = largest_segment(fixture_4_3_1.log_dir / topic).read_bytes()
    headers = list(scan_batches(data))
    for size in range(headers[-3].position, len(data)):
        damages: list[Damage] = []
        held = [header for header in headers if header.end_position <= size]
        assert (
            list(BatchReader(Path("cut.log"), data[:size], damages.append, headers[-9].position))
            == held[len(headers) - 9 :]
        )
        end = held[-1].end_position
        assert [(damage.position, damage.size_bytes) for damage in damages] == (
            [(end, size - end)] if size > end else []
        )


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["v2-none-0", "v2-gzip-0", "transactional-0"])
def test_a_cut_segment_is_dumped_up_to_the_cut(writable_log_dir: Path, topic: str) -> None:
    segment = largest_segment(writable_log_dir / topic)
    data, whole = segment.read_bytes(), dump(segment)
    *_, previous, last = scan_batches(data)
    for size in [*range(last.position, last.position + 20), last.end_position - 1]:
        segment.write_bytes(data[:size])
        result = run("dump", "--format", "jsonl", segment)
        assert [json.loads(line) for line in lines_of(result)] == [
            line for line in whole if line["offset"] < previous.next_offset
        ]
        torn = size - last.position
        assert result.exit_code == (1 if torn else 0)
        expected = f"odradek: {segment}: position {last.position}: {torn} bytes not read: " if torn else ""
        assert result.stderr.startswith(expected)
        assert result.stderr.count("\n") == (1 if torn else 0)


@pytest.mark.slow
def test_the_dump_goes_on_behind_damage(writable_log_dir: Path) -> None:
    folder = writable_log_dir / "v2-none-0"
    segment = folder / f"{0:020d}.log"
    before = dump(folder)
    data = bytearray(segment.read_bytes())
    headers = list(scan_batches(bytes(data)))
    bad_crc, bad_length, zeroed = headers[1], headers[3], headers[5]
    data[bad_crc.end_position - 1] ^= 1
    data[bad_length.position + 8] = 0x7F
    data[zeroed.position : zeroed.end_position] = bytes(zeroed.size_bytes)
    segment.write_bytes(data)
    result = run("dump", "--format", "jsonl", folder, code=1)
    lost = {offset for h in (bad_crc, bad_length, zeroed) for offset in range(h.base_offset, h.next_offset)}
    expected = [line for line in before if line["offset"] not in lost]
    assert [json.loads(line) for line in lines_of(result)] == expected
    reports = result.stderr.splitlines()
    assert len(reports) == 3
    for report, header in zip(reports, (bad_crc, bad_length, zeroed), strict=True):
        assert f"{segment}: position {header.position}: {header.size_bytes} bytes not read: " in report
    compat = run("dump", "--kafka-compat", "--print-data-log", folder, code=1)
    assert compat.stdout.count("isvalid: false") == 1


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_lines_keep_their_order_around_a_wrong_checksum(
    number: int, fixture_4_3_1: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's tool prints such a batch where it lies, with its records: it differs in one word from a sound one."""
    source = fixture_4_3_1.log_dir / "v2-none-0"
    shutil.copytree(source, tmp_path / source.name)
    segment = min((tmp_path / source.name).glob("*.log"))
    data = bytearray(segment.read_bytes())
    header = list(scan_batches(bytes(data)))[number]
    crc_position = header.position + 17
    data[crc_position] ^= 1
    wrong = int.from_bytes(data[crc_position : crc_position + 4], "big")
    segment.write_bytes(data)
    monkeypatch.chdir(fixture_4_3_1.log_dir)
    sound = run("dump", "--kafka-compat", "--print-data-log", f"{source.name}/{segment.name}").stdout
    monkeypatch.chdir(tmp_path)
    result = run("dump", "--kafka-compat", "--print-data-log", f"{source.name}/{segment.name}")
    line = next(line for line in sound.splitlines() if f"crc: {header.crc} isvalid: true" in line)
    assert result.stdout == sound.replace(line, line.replace(f"{header.crc} isvalid: true", f"{wrong} isvalid: false"))
    assert result.exit_code == 1


def test_control_records_say_what_they_are_and_data_does_not(kafka_fixture: KafkaFixture) -> None:
    folder = kafka_fixture.log_dir / "transactional-0"
    records = rows("dump", folder, "--control")
    control = [record for record in records if "control" in record]
    assert {record["control"] for record in control} == {"COMMIT", "ABORT"}
    data = rows("dump", folder)
    assert [record for record in records if "control" not in record] == data
    keys = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert all(list(record) == keys for record in data)
    assert all(list(record) == [*keys, "control"] for record in control)


def test_records_of_share_groups_as_kafka_shows_them(tmp_path: Path) -> None:
    """Apache Kafka 4.3.1 wrote these bytes, and printed these lines; an escape has capital digits, as Jackson's has."""
    topic_id = "9fb8643c597e4ef9bc293957ce889404"
    written = {
        "offsets": (
            "000f 0002 7367",
            f"00 00 02 {topic_id} 0261 03 00000000 00000001 00 01 01 00",
            'key: {"type":"15","data":{"groupId":"sg"}} payload: {"version":"0","data":{"initializingTopics":[{'
            '"topicId":"n7hkPFl-Tvm8KTlXzoiUBA","topicName":"a","partitions":[0,1]}],"initializedTopics":[],"deletingTopics":[]}}',
        ),
        "share-group-state": (
            f"0001 0002 7367 {topic_id} 00000000",
            "0000 00000000 00000000 0000000000000000 02 0000000000000000 0000000000000009 02 0001 00 01 00 04 0000000a",
            'key: {"type":"1","data":{"groupId":"sg","topicId":"n7hkPFl-Tvm8KTlXzoiUBA","partition":0}} payload: '
            '{"version":"0","data":{"snapshotEpoch":0,"leaderEpoch":0,"startOffset":0,"deliveryCompleteCount":10,'
            '"stateBatches":[{"firstOffset":0,"lastOffset":9,"deliveryState":2,"deliveryCount":1}]}}',
        ),
        "transaction-log": (
            "0000 0003 0b5c75",
            "",
            r'key: {"type":"0","data":{"transactionalId":"\u000B\\u"}} payload: <DELETE>',
        ),
    }
    for name, (key, value, line) in written.items():
        path = tmp_path / f"{name}-0" / f"{0:020}.log"
        path.parent.mkdir()
        record = Record(bytes.fromhex(key), bytes.fromhex(value) if value else None, timestamp=1)
        path.write_bytes(build_batch([record]))
        result = run("dump", "--kafka-compat", "--skip-record-metadata", f"--{name}-decoder", path)
        assert lines_of(result)[-1] == f"| {line}"


compat = partial(run, "dump", "--kafka-compat")


def test_of_the_first_bytes_whole_batches_are_shown(tmp_path: Path) -> None:
    segment = tmp_path / "t-0" / f"{0:020}.log"
    segment.parent.mkdir()
    batches = [build_batch([Record(value=b"%d" % n)], base_offset=n) for n in range(3)]
    size = len(batches[0])
    for data, most, shown, code in [
        (b"".join(batches), 3 * size, 3, 0),
        (b"".join(batches), 3 * size - 1, 2, 0),
        (b"".join(batches), size + 5, 1, 0),
        (b"".join(batches), size - 1, 0, 0),
        (b"".join(batches), 0, 0, 0),
        # What does not count is not looked at.
        (batches[0] + b"\xff" * 100, size, 1, 0),
        (batches[0] + bytes(20), 1000, 1, 1),
    ]:
        segment.write_bytes(data)
        ended = compat("--max-bytes", str(most), segment)
        assert (ended.exit_code, ended.stdout.count("baseOffset")) == (code, shown), ended.output
        assert "invalid bytes" not in ended.output


def test_indexes_are_compared_with_their_segment(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "keyed-0"
    shutil.copytree(fixture_4_3_1.log_dir / folder.name, folder)
    index = max(folder.glob("*.index"), key=lambda path: path.stat().st_size)
    times = index.with_suffix(".timeindex")
    for path in (index, times):
        ended = compat("--verify-index-only", path)
        assert (ended.exit_code, ended.stdout, ended.stderr) == (0, f"Dumping {path}\n", "")
        ended = compat("--index-sanity-check", path)
        assert (ended.exit_code, ended.stdout) == (0, f"Dumping {path}\n{path} passed sanity check.\n")
        # Of both, Kafka's tool takes this one.
        assert compat("--index-sanity-check", "--verify-index-only", path).stdout == ended.stdout
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    ended = compat("--verify-index-only", index)
    assert (ended.exit_code, ended.stdout) == (1, f"Dumping {index}\n")
    assert ended.stderr.startswith(f"odradek: {index}: position 0: index: ")
    assert compat("--index-sanity-check", index).exit_code == 0
    index.write_bytes(data[:-1])
    ended = compat("--index-sanity-check", index)
    assert (ended.exit_code, ended.stdout) == (1, f"Dumping {index}\n")
    assert "not a multiple of the entry size" in ended.stderr
    early = bytearray(times.read_bytes())
    early[-12:-8] = b"\0\0\0\1"
    times.write_bytes(early)
    ended = compat("--index-sanity-check", times)
    assert ended.exit_code == 1
    assert "is below the first" in ended.stderr
