"""`topics`, `groups`, `produce` and `offsets set`: the same on a folder and on a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentTopicPartition

import odradek
from odradek.cli.app import main
from odradek.errors import BrokerUnavailableError
from odradek.messages.coordinators.group_records import GroupMetadataValue, MemberMetadata, encode_group_metadata
from odradek.places.group_log import append_group_records
from odradek.places.opening import open_place
from odradek.records.partitioner import partition_for_key
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import rows
from peers.command import run as result_of
from peers.command import told as run

pytestmark = pytest.mark.usefixtures("collected")


def topics(source: str) -> list[tuple[Any, ...]]:
    found = rows("topics", source)
    return [
        (row["topic"], row["partition"], row["log_start_offset"], row["log_end_offset"])
        for row in found
        if not row["topic"].startswith("__")
    ]


@pytest.fixture(params=["folder", "broker"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
    if request.param == "folder":
        yield str(path)
        return
    with Broker(path) as broker:
        yield f"kafka://{broker.bootstrap_servers}"


def store_of(source: str, group: str) -> str:
    return f"{source}/{group}" if source.startswith("kafka:") else f"folder:{source}?group={group}"


@pytest.mark.slow
def test_topics_are_made_changed_and_deleted(source: str) -> None:
    run("topics", "create", source, "events", "--partitions", "2", "--config", "retention.ms=-1")
    run("topics", "create", source, "other")
    assert topics(source) == [("events", 0, 0, 0), ("events", 1, 0, 0), ("other", 0, 0, 0)]
    assert topics(source) == topics(source.rstrip("/"))
    run("topics", "alter", source, "events", "--config", "segment.ms=7000", "--delete-config", "retention.ms")
    run("topics", "alter", source, "events", "--partitions", "3")
    (described,) = rows("topics", "describe", source, "events")
    assert described["config"] == {"segment.ms": "7000"}
    partition = {"leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1], "log_start_offset": 0}
    assert described["partitions"] == [{"partition": number, **partition, "log_end_offset": 0} for number in range(3)]
    assert len(described["topic_id"]) == 22
    assert [row["topic"] for row in rows("topics", "describe", source) if row["topic"][0] != "_"] == ["events", "other"]
    assert run("topics", "describe", source, "events").splitlines() == [
        f"events  id {described['topic_id']}  3 partitions",
        "  segment.ms=7000",
        "PARTITION  LEADER  EPOCH  REPLICAS  ISR  LOG_START  LOG_END",
        *(f"        {number}       1      0         1    1          0        0" for number in range(3)),
    ]
    run("topics", "delete", source, "events")
    assert topics(source) == [("other", 0, 0, 0)]


@pytest.mark.slow
def test_what_is_refused_is_one_line(source: str) -> None:
    run("topics", "create", source, "events")
    run("topics", "create", source, "events", "--if-not-exists")
    for arguments, told in (
        (("create", source, "events"), "TOPIC_ALREADY_EXISTS (36): "),
        (("create", source, "a b"), "INVALID_TOPIC_EXCEPTION (17): "),
        (("create", source, "b", "--partitions", "0"), "INVALID_PARTITIONS (37): "),
        (("create", source, "b", "--config", "no.such=1"), "INVALID_CONFIG (40): "),
        (("alter", source, "events", "--config", "segment.ms=x"), "INVALID_CONFIG (40): "),
        (("alter", source, "events", "--partitions", "1"), "INVALID_PARTITIONS (37): "),
        (("delete", source, "events", "nope"), "nope is not in "),
        (("describe", source, "nope"), "nope is not in "),
    ):
        said = run("topics", *arguments, code=3)
        assert said.startswith(f"odradek: {told}")
        assert said.count("\n") == 1
    assert topics(source) == [("events", 0, 0, 0)]
    assert "GROUP_ID_NOT_FOUND (69)" in run("groups", "describe", source, "nope", code=3)
    assert "GROUP_ID_NOT_FOUND (69)" in run("groups", "delete", source, "nope", code=3)
    assert "nope is not in" in run("produce", source, "nope", given=b"x\n", code=3)
    assert "nothing is to be changed" in run("topics", "alter", source, "events", code=2)
    assert "a setting is named twice" in run(
        "topics", "alter", source, "events", "--config", "a=1", "--delete-config", "a", code=2
    )


@pytest.mark.slow
@pytest.mark.parametrize("codec", [None, "none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_become_records(source: str, codec: str | None, tmp_path: Path) -> None:
    run("topics", "create", source, "events", "--partitions", "2")
    options = () if codec is None else ("--compression", codec)
    lines = b"".join(b"k%d\tv%d\tw\n" % (number, number) for number in range(100))
    said = run("produce", source, "events", "--key-separator", "\\t", "--header", "h=1=2", *options, given=lines)
    assert said == "100 records appended to events\n"
    assert run("produce", source, "events", "--partition", "1", *options, given=b"last\r\nend") == (
        "2 records appended to events\n"
    )
    found = {number: dumped(tmp_path / "data", "events", number) for number in (0, 1)}
    keyed = [(row["key"], row["value"], row["headers"]) for row in found[0] + found[1][:-2]]
    assert sorted(keyed) == sorted((f"k{number}", f"v{number}\tw", [["h", "1=2"]]) for number in range(100))
    assert [(row["key"], row["value"]) for row in found[1][-2:]] == [(None, "last"), (None, "end")]
    # The same key goes to the same partition, whoever chooses it.
    assert {row["key"]: number for number in found for row in found[number] if row["key"]} == {
        f"k{number}": partition_for_key(b"k%d" % number, 2) for number in range(100)
    }


@pytest.mark.slow
def test_what_dump_prints_becomes_records(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events", "--partitions", "3")
    lines = [
        {"topic": "x", "partition": 2, "offset": 70, "timestamp": 5, "key": "k", "value": "\u2028", "headers": []},
        {
            "partition": 2,
            "timestamp": 6,
            "key": {"base64": "AP8="},
            "value": None,
            "headers": [["h", None], ["h", "v"]],
        },
        {"partition": 2, "key": "", "value": "", "control": "COMMIT"},
        {"partition": 0, "key": None, "value": ""},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert run("produce", source, "events", "--format", "jsonl", given=given) == "3 records appended to events\n"
    first, second = dumped(tmp_path / "data", "events", 2)
    assert (first["timestamp"], first["key"], first["value"]) == (5, "k", "\u2028")
    assert (second["timestamp"], second["key"], second["value"]) == (6, {"base64": "AP8="}, None)
    assert second["headers"] == [["h", None], ["h", "v"]]
    assert [(row["key"], row["value"]) for row in dumped(tmp_path / "data", "events", 0)] == [(None, "")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x", "it is not JSON: "),
        ("[]", "it is no JSON object"),
        ('{"value":{"base64":"YQ"}}', "value is no byte string: "),
        ('{"value":{"base64":"?"}}', "value is no byte string: "),
        ('{"value":"\\ud800"}', "value is no byte string: "),
        ('{"headers":[["a"]]}', "a header must be [name, value], not "),
        ('{"headers":[["\\ud800","a"]]}', "the name of a header is no byte string: "),
        ('{"partition":-1}', "the partition must be a number, not -1"),
        ('{"timestamp":"now"}', "the timestamp must be a number of milliseconds, not "),
        ("[" * 100_000, "it is not JSON: "),
    ],
)
def test_a_line_that_is_no_record_ends_it_and_the_lines_before_are_appended(
    line: str, told: str, tmp_path: Path
) -> None:
    run("topics", "create", empty_folder(tmp_path), "events")
    given = f'{{"value":"a"}}\n{{"value":"b"}}\n{line}\n{{"value":"c"}}\n'.encode()
    said = run("produce", tmp_path / "data", "events", "--format", "jsonl", given=given, code=3)
    went_on, error = said.splitlines()
    assert went_on == "odradek: 2 records appended; go on with line 3 of the input"
    assert error.startswith(f"odradek: stdin, line 3: {told}")
    assert [row["value"] for row in dumped(tmp_path / "data", "events", 0)] == ["a", "b"]


@pytest.mark.slow
def test_whole_files_become_records(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events", "--config", "max.message.bytes=1000")
    values = [b"a\n\xffb\r\n", b"", bytes(2000)]
    files = [tmp_path / f"{number}.bin" for number in range(3)]
    for file, value in zip(files, values, strict=True):
        file.write_bytes(value)
    named = [word for file in files for word in ("--file", file)]
    options = ("--key", "k", "--header", "h=1", "--compression", "none")
    said = run("produce", source, "events", *named, *options, code=3).splitlines()
    assert said[0].startswith(f"odradek: {files[2]}: MESSAGE_TOO_LARGE (10)")
    assert said[1:] == ["odradek: 2 records appended"]
    found = [(row["key"], row["value"], row["headers"]) for row in dumped(tmp_path / "data", "events", 0)]
    assert found == [("k", {"base64": "YQr/Yg0K"}, [["h", "1"]]), ("k", "", [["h", "1"]])]
    run("produce", source, "events", "--file", files[0], "--format", "jsonl", code=2)
    run("produce", source, "events", "--file", tmp_path / "missing", code=3)
    run("produce", source, "events", "--key", "k", code=2)


@pytest.mark.slow
def test_records_before_a_place_are_deleted(source: str) -> None:
    run("topics", "create", source, "t", "--partitions", "2")
    run("topics", "create", source, "compacted", "--config", "cleanup.policy=compact")
    lines = [json.dumps({"partition": at % 2 if at < 4 else 0, "timestamp": at + 1}) for at in range(7)]
    run("produce", source, "t", "--format", "jsonl", given="\n".join(lines).encode())
    run("produce", source, "compacted", "--key-separator", ":", given=b"k:v")

    def starts(topic: str, *arguments: str, code: int = 0) -> list[int]:
        run("topics", "delete-records", source, topic, *arguments, code=code)
        return [start for name, _, start, _ in topics(source) if name == "t"]

    assert starts("t", "--to-latest", "--dry-run") == [0, 0]
    # As Kafka's OFFSET_OUT_OF_RANGE: one digit too many is not to delete all.
    assert starts("t", "--to-offset", "3", code=3) == [0, 0]
    assert starts("t", "--to-offset", "2") == [2, 2]
    assert starts("t", "--to-offset", "3", "--partition", "0") == [3, 2]
    assert starts("t", "--to-earliest") == [3, 2]
    assert starts("t", "--to-time", "7", "--partition", "0") == [4, 2]
    assert starts("t", "--shift", "1") == [5, 2]
    assert starts("t", code=2) == [5, 2]
    assert starts("missing", "--to-latest", code=3) == [5, 2]
    assert starts("compacted", "--to-latest", code=3) == [5, 2]


@pytest.mark.slow
def test_refused_lines_are_named_and_the_others_appended(source: str, tmp_path: Path) -> None:
    config = ("--config", "max.message.bytes=1000", "--config", "cleanup.policy=compact")
    run("topics", "create", source, "events", "--partitions", "2", *config)
    lines = [json.dumps({"key": f"k{number}", "value": "v" * 100, "partition": number % 2}) for number in range(40)]
    lines[6] = json.dumps({"value": "no key", "partition": 0})
    lines[7] = json.dumps({"key": "k", "value": "x" * 2000, "partition": 1})
    lines[30] = json.dumps({"key": "k", "partition": 2})
    given = "".join(f"{line}\n" for line in lines).encode()
    for codec in ((), ("--compression", "none")):
        said = run("produce", source, "events", "--format", "jsonl", *codec, given=given, code=3).splitlines()
        assert [line[: line.index(")") + 1] for line in said[:2]] == [
            "odradek: stdin, line 7: INVALID_RECORD (87)",
            "odradek: stdin, line 8: MESSAGE_TOO_LARGE (10)",
        ]
        assert said[2].startswith("odradek: stdin, line 31: events-2 is not in ")
        assert said[3:] == ["odradek: 37 records appended, 3 refused; go on with line 41 of the input"]
    for partition in (0, 1):
        keys = [row["key"] for row in dumped(tmp_path / "data", "events", partition)]
        expected = [f"k{n}" for n in range(40) if n % 2 == partition and n not in (6, 7, 30)]
        assert keys == expected * 2


@pytest.mark.slow
def test_a_refused_line_before_one_that_is_no_record(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events", "--config", "cleanup.policy=compact")
    given = b'{"value":"a"}\n{"key":"b"}\nnonsense\n{"key":"c"}'
    said = run("produce", source, "events", "--format", "jsonl", given=given, code=3).splitlines()
    assert said[0].startswith("odradek: stdin, line 1: INVALID_RECORD (87)")
    assert said[1].startswith("odradek: stdin, line 3: it is not JSON")
    assert said[2:] == ["odradek: 1 record appended, 2 refused; go on with line 3 of the input"]
    assert [row["key"] for row in dumped(tmp_path / "data", "events", 0)] == ["b"]
    assert "events-7 is not in" in run("produce", source, "events", "--partition", "7", given=b"a\n", code=3)


@pytest.mark.slow
def test_what_became_of_lines_without_an_answer_is_not_claimed() -> None:
    with Broker() as broker, broker.fault("Produce", error="UNKNOWN_SERVER_ERROR"):
        broker.create_topic("events")
        said = run("produce", f"kafka://{broker.bootstrap_servers}", "events", given=b"a\nb\n", code=3).splitlines()
    assert said[0] == "odradek: 0 records appended for sure; it is not known whether lines 1 to 2 of the input are"
    assert "writing to events-0" in said[1]


@pytest.mark.slow
def test_two_at_once(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events")
    command = [sys.executable, "-m", "odradek", "produce", source, "events"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        first.stdin.write("a\n" * 1000)
        first.stdin.flush()
        while not end_of(source, tmp_path):
            assert first.poll() is None
        if source.startswith("kafka"):
            assert run("produce", source, "events", given=b"b\n" * 1000) == "1,000 records appended to events\n"
        else:
            said = run("produce", source, "events", given=b"b\n", code=3)
            assert said.startswith(f"odradek: {tmp_path}/data is locked: process {first.pid} (")
        first.stdin.write("a\n" * 1000)
        out, _ = first.communicate()
        assert out == "2,000 records appended to events\n"
    values = [row["value"] for row in dumped(tmp_path / "data", "events", 0)]
    assert values.count("a") == 2000
    assert values.count("b") == (1000 if source.startswith("kafka") else 0)


def end_of(source: str, tmp_path: Path) -> int:
    path = source if source.startswith("kafka") else tmp_path / "data"
    with open_place(path) as opened:
        return opened.bounds(TopicPartition("events", 0)).end_offset


@pytest.mark.slow
def test_a_line_without_a_separator_ends_it(tmp_path: Path) -> None:
    run("topics", "create", empty_folder(tmp_path), "events")
    said = run("produce", tmp_path / "data", "events", "--key-separator", ":", given=b"a:b\nc", code=3)
    assert said.endswith("odradek: stdin, line 2: there is no separator ':' between a key and a value\n")
    assert "is for text" in run("produce", tmp_path, "t", "--format", "jsonl", "--key-separator", ":", code=2)


@pytest.mark.slow
def test_offsets_are_reset_within_the_log(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events", "--partitions", "2")
    lines = "".join(
        json.dumps({"partition": 0, "timestamp": 1000 + number, "value": "v"}) + "\n" for number in range(10)
    )
    run("produce", source, "events", "--format", "jsonl", given=lines.encode())
    store = store_of(source, "words")

    def reset(*options: str) -> list[tuple[Any, ...]]:
        return [(row["partition"], row["before"], row["after"]) for row in rows("offsets", "set", store, *options)]

    assert reset("--to-latest", "--topic", "events") == [(0, None, 10), (1, None, 0)]
    assert reset("--shift", "-3", "--partition", "0") == [(0, 10, 7)]
    assert reset("--to-time", "1004", "--dry-run") == [(0, 7, 4), (1, 0, 0)]
    assert reset("--to-time", "1005") == [(0, 7, 5), (1, 0, 0)]
    assert reset("--to-time", "9999") == [(0, 5, 10), (1, 0, 0)]
    assert reset("--to-earliest") == [(0, 10, 0), (1, 0, 0)]
    assert reset("--to-offset", "6") == [(0, 0, 6), (1, 0, 0)]
    assert reset("--shift", "-7") == [(0, 6, 0), (1, 0, 0)]
    assert reset("events-0=4", "--dry-run") == [(0, 0, 4)]
    assert reset("events-0=40", "--source", source) == [(0, 0, 10)]
    shown = rows("offsets", "show", store)
    assert [(row["partition"], row["offset"]) for row in shown] == [(0, 10), (1, 0)]
    said = run("offsets", "set", store, "--shift", "5", "--dry-run").splitlines()
    assert said == [
        "TOPIC   PARTITION  BEFORE  AFTER  LOG_START  LOG_END",
        "events          0      10     10          0       10",
        "events          1       0      0          0        0",
    ]
    (group,) = rows("groups", "describe", source, "words")
    assert [(part["partition"], part["offset"], part["lag"]) for part in group["offsets"]] == [(0, 10, 0), (1, 0, 0)]
    run("groups", "delete", source, "words")
    assert rows("groups", source) == []
    run("offsets", "show", store, code=3)


@pytest.mark.slow
def test_a_reset_that_cannot_be_is_refused(source: str, tmp_path: Path) -> None:
    run("topics", "create", source, "events")
    store = store_of(source, "words")
    assert "events-0 has no position that could be shifted" in run(
        "offsets", "set", store, "--shift", "1", "--topic", "events", code=3
    )
    assert "has no such position: name topics with --topic" in run("offsets", "set", store, "--to-latest", code=3)
    assert "nope is not in" in run("offsets", "set", store, "--to-latest", "--topic", "nope", code=3)
    assert "give either" in run("offsets", "set", store, "--to-latest", "--shift", "1", code=2)
    assert "give either" in run("offsets", "set", store, code=2)
    assert "--topic and --partition are for" in run("offsets", "set", store, "events-0=1", "--topic", "events", code=2)
    file = f"file:{tmp_path}/offsets.json"
    assert "name it with --source" in run("offsets", "set", file, "--to-latest", "--topic", "events", code=2)
    run("offsets", "set", file, "--to-latest", "--topic", "events", "--source", source)
    assert rows("offsets", "show", file)[0]["offset"] == 0


@pytest.mark.slow
def test_a_group_with_members_is_shown_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Broker(path) as broker:
        source = f"kafka://{broker.bootstrap_servers}"
        run("topics", "create", source, "events", "--partitions", "2")
        run("produce", source, "events", given=b"one\n")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "words", "client.id": "counter"}
        with closing(Consumer(settings | {"enable.auto.commit": False})) as consumer:
            consumer.subscribe(["events"])
            while len(consumer.assignment()) < 2:
                consumer.poll(0.1)
            consumer.commit(offsets=[ConfluentTopicPartition("events", 0, 0)], asynchronous=False)
            seen = {place: rows("groups", "describe", place)[0] for place in (source, str(path))}
            assert seen[source] == seen[str(path)]
            listed = {place: rows("groups", place) for place in (source, str(path))}
            assert listed[source] == listed[str(path)]
            assert run("groups", source) == run("groups", path)
            assert run("groups", "describe", source) == run("groups", "describe", path)
            assert (listed[source][0]["state"], listed[source][0]["members"]) == ("Stable", 1)
            (member,) = seen[source]["members"]
            assert member["client_id"] == "counter"
            assert member["partitions"] == [["events", 0], ["events", 1]]
            for arguments in (
                ("groups", "delete", source, "words"),
                ("offsets", "set", store_of(source, "words"), "events-0=1"),
            ):
                said = run(*arguments, code=3)
                assert said.count("\n") == 1
            assert "NON_EMPTY_GROUP (68)" in run("groups", "delete", source, "words", code=3)
            assert "is locked: this program has it open" in run("topics", "create", path, "other", code=3)


@pytest.mark.slow
def test_a_partition_that_its_broker_cannot_read_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odradek.open(tmp_path) as logs:
        for topic in "abc":
            logs.create_topic(topic)
            logs[topic, 0].append([odradek.Record(None, b"v")])
    unreadable = tmp_path / "b-0" / f"{0:020d}.log"
    unreadable.unlink()
    unreadable.mkdir()
    with Broker(tmp_path) as broker:
        source = f"kafka://{broker.bootstrap_servers}"
        listed = result_of("topics", "list", source, "--format", "jsonl", code=1)
        ends = {row["topic"]: row["log_end_offset"] for row in map(json.loads, listed.stdout.splitlines())}
        assert ends == {"a": 1, "b": None, "c": 1}
        assert listed.stderr == f"odradek: {source}: b-0: its broker cannot read it (KAFKA_STORAGE_ERROR)\n"
        described = result_of("topics", "describe", source, "--format", "jsonl")
        partitions = [json.loads(line)["partitions"][0] for line in described.stdout.splitlines()]
        assert [part["log_end_offset"] for part in partitions] == [1, None, 1]
    # However often it was asked for.
    assert [message for message in caplog.messages if "b-0 cannot be read" in message] == [
        f"b-0 cannot be read: {unreadable}: this is a directory, not a file"
    ]


@pytest.mark.slow
def test_a_refused_deletion_has_the_name_that_the_broker_gave_it(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("events")
        broker.commit_offsets("words", {("events", 0): 0})
        address = f"kafka://{broker.bootstrap_servers}"
        with broker.fault("DeleteGroups", error="GROUP_AUTHORIZATION_FAILED"):
            said = run("groups", "delete", address, "words", code=3)
        servers = broker.bootstrap_servers
        assert said.startswith(f"odradek: GROUP_AUTHORIZATION_FAILED (30): {servers}: group words: ")


@pytest.mark.slow
def test_who_may_not_read_the_settings_of_topics_sees_and_deletes_them() -> None:
    """Kafka gives the right to read settings (DescribeConfigs) apart from that to see a topic (Describe)."""
    with Broker() as broker:
        broker.create_topic("events", config={"retention.ms": "7"})
        address = f"kafka://{broker.bootstrap_servers}"
        with broker.fault("DescribeConfigs", error="TOPIC_AUTHORIZATION_FAILED"):
            (events,) = rows("topics", "describe", address, "events")
            assert (events["config"], len(events["partitions"])) == ({}, 1)
            # Without them a copy would be another topic.
            with (
                open_place(address) as place,
                pytest.raises(BrokerUnavailableError, match="TOPIC_AUTHORIZATION_FAILED"),
            ):
                place.topic_config("events")
            with broker.fault("DeleteTopics", error="POLICY_VIOLATION"):
                said = run("topics", "delete", address, "events", code=3)
            assert "POLICY_VIOLATION (44)" in said
            assert said.endswith("deleting events: Request parameters do not satisfy the configured policy.\n")
            run("topics", "delete", address, "events")


@pytest.mark.slow
def test_members_that_a_broker_left_are_refused_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic("events")
        member = MemberMetadata("m-1", "counter", "/10.0.0.7", 45_000, b"", b"")
        value = GroupMetadataValue("consumer", 1, "range", "m-1", (member,), 0)
        append_group_records(logs, "words", [encode_group_metadata("words", value)])
        logs["events", 0].append([odradek.Record(b"a")])
    delete = ("groups", "delete", path, "words")
    reset = ("offsets", "set", f"folder:{path}?group=words", "--to-latest", "--topic", "events")
    for arguments in (delete, reset):
        said = run(*arguments, code=3)
        assert "NON_EMPTY_GROUP (68): group words has 1 member (counter /10.0.0.7), as its broker left it" in said
        assert "--force" in said
    run(*reset, "--force")
    (words,) = rows("groups", "describe", path, "words")
    assert (words["state"], words["members"], words["offsets"][0]["offset"]) == ("Empty", [], 1)
    with Broker(path) as broker:
        with broker.fault("ListGroups", error="COORDINATOR_LOAD_IN_PROGRESS", times=1):
            (words,) = rows("groups", "describe", f"kafka://{broker.bootstrap_servers}", "words")
        assert (words["state"], words["members"], words["offsets"][0]["offset"]) == ("Empty", [], 1)
        address = f"kafka://{broker.bootstrap_servers}"
        assert "--force is for a log directory" in run("groups", "delete", address, "words", "--force", code=2)
        assert "--force is for a log directory" in run(
            "offsets", "set", f"{address}/words", "events-0=0", "--force", code=2
        )
    with odradek.open(path) as logs:
        append_group_records(logs, "words", [encode_group_metadata("words", value)])
    run(*delete, "--force")
    assert rows("groups", path) == []


@pytest.mark.slow
def test_a_deleted_topic_takes_the_offsets_with_it(source: str) -> None:
    for topic in ("events", "other"):
        run("topics", "create", source, topic)
        run("offsets", "set", store_of(source, "words"), "--to-latest", "--topic", topic)
    run("topics", "delete", source, "events")
    assert [row["topic"] for row in rows("offsets", "show", store_of(source, "words"))] == ["other"]


@pytest.mark.slow
def test_a_folder_that_another_process_has_names_it(tmp_path: Path) -> None:
    program = "import odradek, sys; logs = odradek.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "data"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        said = run("topics", "create", tmp_path / "data", "events", code=3)
        assert said.startswith(f"odradek: {tmp_path}/data is locked: process {process.pid} (python")
        process.stdin.close()


@pytest.mark.slow
def test_a_folder_may_have_the_name_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with odradek.open("create") as logs:
        logs.create_topic("events")
    assert topics("./create") == [("events", 0, 0, 0)]
    assert "Missing argument 'SOURCE'" in run("topics", "create", code=2)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("odradek topics describe {} ev", ["events", "events-2"]),
        ("odradek topics delete {} events other ev", ["events", "events-2"]),
        ("odradek produce {} oth", ["other"]),
        ("odradek groups describe {} w", ["words"]),
        ("odradek topics describe {}nowhere ev", []),
        ("odradek topics describe kafka://127.0.0.1:1 ev", []),
    ],
)
def test_topics_and_groups_are_completed(words: str, completed: list[str], tmp_path: Path) -> None:
    folder = empty_folder(tmp_path)
    for topic in ("events", "events-2", "other"):
        run("topics", "create", folder, topic)
    run("offsets", "set", f"folder:{folder}?group=words", "--to-latest", "--topic", "events")
    *given, last = words.format(folder).split()[1:]
    completion = ShellComplete(main, {}, "odradek", "_ODRADEK_COMPLETE")
    assert [item.value for item in completion.get_completions(given, last)] == completed


def empty_folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def dumped(folder: Path, topic: str, partition: int) -> list[dict[str, Any]]:
    return rows("dump", folder / f"{topic}-{partition}")


@pytest.mark.slow
def test_an_offset_after_the_end_of_a_log_is_told(source: str) -> None:
    run("topics", "create", source, "events", "--partitions", "2")
    run("produce", source, "events", "--partition", "0", given=b"a\n")
    positions = {TopicPartition("events", 0): odradek.Position(100), TopicPartition("events", 1): odradek.Position(0)}
    with closing(odradek.open_store(store_of(source, "words"))) as store:
        store.commit(positions, expected=store.load())
    (row,) = rows("groups", "describe", source, "words")
    assert (row["lag"], [one["lag"] for one in row["offsets"]]) == (-99, [-99, 0])
    assert [row["lag"] for row in rows("groups", "list", source)] == [-99]
    hint = "events-0: offset 100 is after the end of the log, 1: the topic was made again, or the log was cut"
    assert hint in run("groups", "describe", source, "words").splitlines()
    # What is left elsewhere is left all the same.
    run("produce", source, "events", "--partition", "1", given=b"a\nb\n")
    (row,) = rows("groups", "describe", source, "words")
    assert (row["lag"], [one["lag"] for one in row["offsets"]]) == (2, [-99, 2])
