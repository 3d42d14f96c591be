"""What once was a dead end: a command that succeeded with harm, or failed and did not say how to go on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.broker.server import Server
from odradek.cli.app import main
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from odradek.spark.pipeline.state_folder import StateFolder
from odradek.testing import Broker
from peers import command
from peers.files import create_log


def run(line: str, given: bytes = b"", code: int | None = None) -> Result:
    return command.run(*line.split(), given=given, code=code)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    create_log("data", "events", [odradek.Record(b"a", b"1"), odradek.Record(b"b", b"2")], partitions=2)
    return tmp_path / "data"


# -- nothing is written into a log directory but partitions


@pytest.mark.sampled(4)
@pytest.mark.parametrize("to", ["data/sub", "data/deep/sub", "data/events-0/sub", "data/../data/sub", "link/sub"])
@pytest.mark.parametrize(
    "line",
    [
        "export data --to {}",
        "replay data --to {}",
        "import exported --to {}",
        "backup data {}",
        "restore backed-up {}",
        "salvage data {}",
        "topics create {} events",
        "serve {}",
    ],
)
def test_nothing_is_written_within_a_log_directory(line: str, to: str, data: Path) -> None:
    Path("link").symlink_to("data")
    if line.startswith("import"):
        run("export data --to exported")
    if line.startswith("restore"):
        run("backup data backed-up")
    if line.startswith("topics"):
        Path(to).mkdir(parents=True)
    before = sorted(data.rglob("*"))
    result = run(line.format(to), code=3)
    assert "within" in result.stderr
    assert "data" in result.stderr
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize("opened", [StateFolder, ParquetFolder, odradek.open])
def test_no_sink_or_state_is_made_within_a_log_directory(opened: Callable[[Path], object], data: Path) -> None:
    with pytest.raises(odradek.LogError, match="is within the log directory"):
        opened(data / "sub")
    assert not (data / "sub").exists()


def test_nothing_is_exported_into_a_source_without_metadata(data: Path) -> None:
    (data / "meta.properties").unlink()
    for line in ("export data --to data/sub", "replay data --to data/sub"):
        assert "is within the log directory" in run(line).stderr
    assert not (data / "sub").exists()


def test_verify_names_folders_that_are_no_partitions(data: Path) -> None:
    assert run("verify data").exit_code == 0
    for name in ("exported", "remote-log-index-cache", "lost+found"):
        (data / name).mkdir()
    result = run("verify data", code=1)
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["data/exported", "data/lost+found"]
    assert "Kafka does not start" in result.stdout


# -- a folder without metadata


def test_what_was_salvaged_from_one_partition_can_be_used(data: Path) -> None:
    salvaged = run("salvage data/events-0 rescued")
    assert (salvaged.exit_code, salvaged.stderr.splitlines()) == (
        0,
        [
            "odradek: rescued has no meta.properties: to go on with it, run odradek serve --adopt rescued",
            "1 partition, 1 batch written to rescued",
        ],
    )
    refused = run("topics create rescued other", code=3)
    assert "(--adopt)" in refused.stderr
    assert run("topics create rescued other --adopt").exit_code == 0
    with odradek.open("rescued", "r") as logs:
        assert logs.topics() == ["events", "other"]


@pytest.mark.sampled
@pytest.mark.parametrize("line", ["alter {} events --partitions 2", "delete {} events", "create {} other"])
def test_each_change_of_topics_may_adopt(line: str, data: Path) -> None:
    run("salvage data/events-0 rescued")
    assert run(f"topics {line.format('rescued')}").exit_code == 3
    assert run(f"topics {line.format('rescued')} --adopt").exit_code == 0


def test_a_broker_adopts_a_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("salvage data/events-0 rescued")
    adopted = []

    def start(server: Server) -> None:
        adopted.append(server.broker.logs.topics())
        raise odradek.LogError("that is all")

    monkeypatch.setattr("odradek.cli.serve._companion", lambda control, server: start(server))
    line = "serve rescued --listeners PLAINTEXT://127.0.0.1:0"
    assert "(--adopt)" in run(line).stderr
    assert run(f"{line} --adopt").stderr.endswith("odradek: that is all\n")
    assert adopted == [["events"]]


@pytest.mark.parametrize("name", ["#131074", "notes.txt", "segment"])
def test_the_content_decides_what_a_file_without_a_name_is(name: str, data: Path) -> None:
    found = Path("lost+found") / name
    found.parent.mkdir()
    (data / "events-0/00000000000000000000.log").rename(found)
    assert run(f"dump {found}").stdout.count("value=") == 2
    assert run(f"grep 2 {found}").stdout.count("value=") == 1
    assert run(f"verify {found}").exit_code == 0
    exported = run(f"export {found} --to -", code=3)
    assert f"{found} is not a segment by its name: call it 00000000000000000000.log" in exported.stderr


def test_a_folder_in_lost_and_found_is_told_how_to_be_salvaged(data: Path) -> None:
    (data / "events-0").rename("131074")
    result = run("salvage 131074 rescued")
    assert result.stderr == (
        "odradek: 131074 is not named after a topic and a partition: rename it, such as 131074-0\n"
    )
    assert not Path("rescued.incomplete").exists()


# -- the library


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_topic_is_in_the_directory_by_its_name(mode: Literal["r"], data: Path) -> None:
    with odradek.open("data", mode) as logs:
        assert "events" in logs
        assert ("events", 1) in logs
        assert "event" not in logs
        assert "../data" not in logs
        assert None not in logs


@pytest.mark.slow
def test_a_group_that_is_named_is_of_the_folder_itself(data: Path) -> None:
    for expected in ([b"1", b"2"], []):
        with odradek.consume("data", "events", group="billing", auto_offset_reset="earliest", follow=False) as consumer:
            assert [record.value for _, _, record in consumer] == expected
    assert run("groups data").stdout.splitlines()[1].split()[0] == "billing"
    assert run("offsets set folder:data?group=billing events-0=1").stdout.splitlines()[1].split()[:3] == [
        "events",
        "0",
        "1",
    ]


@pytest.mark.parametrize(("group", "told"), [("", "group is empty"), ("flie:///x", "flie")])
def test_a_misspelt_store_is_no_group(group: str, told: str, data: Path) -> None:
    with pytest.raises(odradek.OdradekError, match=told):
        odradek.consume("data", "events", group=group)


# -- damage that a broker sends


@pytest.fixture
def damaged(data: Path) -> Iterator[str]:
    """Start a broker that has a batch whose checksum is wrong, as it notices no more than Kafka does."""
    with odradek.open("data", sync="off") as logs:
        for number in range(3, 6):
            logs["events", 0].append([odradek.Record(b"k", b"%d" % number)])
        logs["events", 1].append([odradek.Record(b"k", b"6")])
    with Broker(data) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        assert run(f"dump {address}").exit_code == 0
        path = data / "events-0/00000000000000000000.log"
        content = bytearray(path.read_bytes())
        content[content.index(b"k\x024") + 2] ^= 1
        path.write_bytes(bytes(content))
        yield address


@pytest.mark.slow
def test_damage_from_a_broker_is_named_and_stepped_over(damaged: str) -> None:
    shown = {}
    for line in ("dump {}", "grep . {}", "tail {}"):
        result = run(line.format(damaged), code=1)
        (told,) = result.stderr.splitlines()
        assert re.fullmatch(
            r"odradek: events-0 of 127\.0\.0\.1:\d+, fetched from offset \d: position \d+: \d+ bytes not read: check.*",
            told,
        )
        shown[line] = sorted(result.stdout.splitlines())
    assert [text.rpartition("value=")[2] for text in shown["dump {}"]] == ['"1"', '"2"', '"3"', '"5"', '"6"']
    assert shown["dump {}"] == shown["grep . {}"] == shown["tail {}"]
    for line in ("stat {}", "stat --records {}"):
        result = run(line.format(damaged), code=1)
        assert "events: 2 partitions, 5 records, " in result.stdout
        assert "odradek: events-0 of 127.0.0.1:" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", ["export {} --to moved", "replay {} --to moved"])
def test_what_is_moved_ends_before_damage_and_the_other_partitions_do_not(line: str, damaged: str) -> None:
    for records in (4, 0):
        result = run(line.format(damaged), code=1)
        told, count = result.stderr.splitlines()
        assert "odradek: events-0 of 127.0.0.1:" in told
        assert told.endswith("ed up to there")
        assert count.startswith(f"odradek: {records} records, ")


# -- what is misspelt is an error, not an empty answer


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dump data --topic nope", "nope is not in data"),
        ("dump data --topic events --topic nope", "nope is not in data"),
        ("dump data --partition 7", "data: no topic that is wanted has a partition 7"),
        ("dump data/events-0 --topic nope", "nope is not in data/events-0"),
        ("dump data --topic nope --batches", "nope is not in data"),
        ("dump data --topic nope --kafka-compat", "nope is not in data"),
        ("grep x data --topic nope", "nope is not in data"),
        ("grep x data --partition 7", "data: no topic that is wanted has a partition 7"),
        ("grep x data --topic events --partition 7", "data: no topic that is wanted has a partition 7"),
        ("tail data --topic nope", "nope is not in data"),
        ("tail data --partition 7", "events-7 is not in data"),
        ("stat data --topic nope", "nope is not in data"),
        ("stat data --partition 7", "events-7 is not in data"),
        ("export data --to moved --partition 7", "events-7 is not in data"),
        ("groups describe data nope", "nope"),
        ("topics describe data nope", "nope"),
        ("offsets show file:typo.json", "has no positions: nothing is stored there"),
        ("offsets show folder:data?group=typo", "has no positions: nothing is stored there"),
        ("offsets copy file:typo.json file:other.json", "has no positions: nothing is stored there"),
        ("offsets to-starting-offsets file:typo.json", "has no positions: nothing is stored there"),
    ],
)
def test_a_name_that_is_not_there_is_an_error(line: str, told: str, data: Path) -> None:
    result = run(line, code=3)
    assert told in result.stderr.splitlines()[-1]
    assert not Path("moved").exists()


@pytest.mark.parametrize("line", ["dump {} --topic nope", "dump {} --partition 7", "grep x {} --partition 7"])
def test_a_name_that_a_broker_does_not_have_is_an_error(line: str, data: Path) -> None:
    with Broker(data) as broker:
        result = run(line.format(f"kafka://{broker.bootstrap_servers}"))
    assert result.exit_code == 3
    assert result.stderr.startswith("odradek: ")


def test_what_dump_prints_of_json_is_produced_again(data: Path) -> None:
    values = [b'{"a":[1,true,"\xc3\xa4"]}', b"[]", b"7", b"true"]
    with odradek.open("data", sync="off") as logs:
        logs["events", 1].append([odradek.Record(b"k", value) for value in values])
    lines = run("dump data/events-1 --values json --format jsonl").stdout_bytes
    assert run("topics create data again").exit_code == 0
    assert run("produce data again --format jsonl --partition 0", lines).exit_code == 0
    with odradek.open("data", "r") as logs:
        assert [record.value for record in logs["again", 0]] == values


@pytest.mark.slow
def test_an_internal_topic_is_one_line_of_the_table(data: Path) -> None:
    run("offsets set folder:data?group=g events-0=1")
    lines = run("topics data").stdout.splitlines()
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["__consumer_offsets", "0-49", "-", "-"],
        ["events", "0", "0", "2"],
        ["events", "1", "0", "0"],
    ]
    assert lines[-1].startswith("2 topics, 52 partitions, ")
    assert len(run("topics list data --internal").stdout.splitlines()) == 55
    assert len(run("topics list data --format jsonl").stdout.splitlines()) == 52


# -- messages that help


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("topics craete data more", "No such command or folder 'craete'. Did you mean 'create'?"),
        ("groups descibe data", "No such command or folder 'descibe'. Did you mean 'describe'?"),
        ("offsets shwo file:x", "No such command 'shwo'. Did you mean 'show'?"),
        ("dump kafk://localhost:9092", "kafk:// is no address here: give a path, or kafka://HOST:PORT for a broker."),
        ("topics kafk://user:secret@localhost", "kafk:// is no address here: "),
        ("stat http://localhost", "http:// is no address here: "),
        ("replay data --to kafk://localhost", "kafk:// is no address here: "),
        ("export kafak://localhost --to x", "kafak:// is no address here: "),
        ("sql SELECT(1) kafka://localhost:1", "a folder is wanted here, not a broker"),
        ("backup kafka://localhost:1 copy", "a folder is wanted here, not a broker"),
        ("pipeline check kafka://localhost:1", "a file is wanted here, not a broker"),
        ("serve kafka://localhost:1", "DIR is a folder, which a broker is to serve"),
    ],
)
def test_a_typo_is_a_usage_error_that_helps(line: str, told: str, data: Path) -> None:
    result = run(line, code=2)
    (error,) = result.stderr.splitlines()
    assert told in error
    assert "secret" not in error


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("query", "advised"),
    [
        ("select offset from events", True),
        ("SELECT max(OFFSET) FROM events", True),
        ('select "offset" frm events x y', False),
        ("selct 1", False),
    ],
)
def test_a_word_of_sql_is_explained(query: str, advised: bool, data: Path) -> None:
    result = CliRunner().invoke(main, ["sql", query, "data"])
    assert result.exit_code == 3
    assert result.stderr.endswith(': offset is a word of SQL; the column is "offset"\n') == advised


def test_one_is_not_several(data: Path) -> None:
    told = run("export data --to one.jsonl --offsets 0:1").stderr
    assert told == "odradek: 1 record, 1 file written to one.jsonl\n"
    assert run("import one.jsonl --to new").stderr == "odradek: 1 record imported\n"
    assert run("topics new").stdout.splitlines()[-1].startswith("1 topic, 1 partition, 1 segment, ")


# -- packages that are missing


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("odradek sql SELECT(1) data", "sql"),
        ("odradek grep --sql 1=1 data", "sql"),
        ("odradek export data --to x", "arrow"),
        ("odradek serve new", "broker"),
        ("odradek pipeline check job.toml", "spark"),
        ("odradek pipeline status job.toml", "spark"),
        ("odradek pipeline compact job.toml", "spark"),
        ("from odradek.testing import Broker", "broker"),
        ("import odradek.spark; odradek.spark.session()", "spark"),
    ],
)
@pytest.mark.slow
def test_a_package_that_is_missing_is_named_with_its_extra(program: str, extra: str, data: Path) -> None:
    Path("job.toml").write_text("")
    missing = ("duckdb", "kio", "pandas", "py4j", "pyarrow", "pyspark", "sqlglot")
    if program.startswith("odradek "):
        program = f"sys.argv = {program.split()!r}\nfrom odradek.cli.__main__ import run\nrun()"
    script = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n{program}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert f'which is not installed: pip install "odradek[{extra}]"' in ended.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:1", "no-port"])
def test_a_real_broker_that_does_not_answer_is_named(address: str, tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(kafka_topic):\n    pass\n")
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    ended = subprocess.run([*line, "--kafka-real", address], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert f"--kafka-real {address}: no broker answers: " in ended.stdout
    assert "Traceback" not in ended.stdout
    assert "real_kafka.py" not in ended.stdout


def test_an_offset_beyond_the_end_is_no_clean_answer(data: Path) -> None:
    for form in ("text", "jsonl"):
        result = run(f"explain data/events-0 99 --format {form}")
        assert (result.exit_code, "beyond the end" in result.stdout) == (3, True)
        assert result.stderr == "odradek: data/events-0: offset 99 is beyond the end of the log, which holds [0, 2)\n"
    assert run("explain data/events-0 1").exit_code == 0


# -- what users mistype, and what they lose


def test_a_link_to_its_own_folder_is_told_and_the_rest_salvaged(data: Path) -> None:
    (data / "self-0").symlink_to(".")
    result = run("salvage data out", code=3)
    assert "self-0" in result.stderr
    assert run("verify out").exit_code == 0
    assert len(run("dump out --topic events").stdout.splitlines()) == 2


@pytest.mark.parametrize("line", [b"{}", b'{"valu":"typo"}', b'{"topic":"events","partition":0,"base_offset":0}'])
def test_an_object_that_is_no_record_is_not_appended(line: bytes, data: Path) -> None:
    result = run("produce data events --format jsonl", given=line + b"\n")
    assert result.exit_code != 0
    assert "it has no key, no value and no headers" in result.stderr
    assert run("produce data events --format jsonl", given=b'{"value":null}\n{"headers":[["a","b"]]}\n').exit_code == 0


@pytest.mark.parametrize("address", ["kafka://localhost:9092", "kafka:localhost:9092"])
def test_a_broker_is_not_opened_as_a_folder(address: str, data: Path) -> None:
    before = sorted(data.parent.rglob("*"))
    with pytest.raises(odradek.LogError, match="a broker is no folder"):
        odradek.open(address)
    assert sorted(data.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "line",
    [
        "conformance kafka://bob:SECRET@127.0.0.1:1",
        "conformance bob:SECRET@127.0.0.1:1",
        "tail kafka:/bob:SECRET@127.0.0.1:1",
        "tail kafka:bob:SECRET@127.0.0.1:1",
    ],
)
def test_a_password_in_the_wrong_place_is_not_shown(line: str) -> None:
    result = run(line)
    assert result.exit_code != 0
    assert "SECRET" not in result.stderr + result.stdout
    assert "127.0.0.1:1" in result.stderr


def test_a_pattern_that_matches_no_topic_is_told(data: Path) -> None:
    for line in (
        *("dump data --topic nope*", "dump data/events-0 --topic nope*", "grep x data --topic nope*"),
        *("stat data --topic nope*", "tail data --topic nope*", "export data --to out --topic nope*"),
    ):
        result = run(line)
        assert result.exit_code != 0
        assert "no topic matches 'nope*'" in result.stderr
    assert run("dump data --topic eve*").exit_code == 0


@pytest.mark.parametrize(
    "lost", [["meta.properties"], ["bootstrap.checkpoint"], ["meta.properties", "bootstrap.checkpoint"]]
)
def test_what_is_salvaged_without_its_metadata_is_served_as_it_is_told(lost: list[str], data: Path) -> None:
    with odradek.open(data) as logs:
        logs.create_topic("kept", config={"cleanup.policy": "compact"})
        # A broker makes it, most partitions of which stay empty.
        logs.create_topic("__consumer_offsets", 3, {"cleanup.policy": "compact"})
        topic_id = logs.topic_id("events")
    for name in lost:
        (data / name).unlink()
    result = run("salvage data out")
    has_metadata = "bootstrap.checkpoint" not in lost
    assert ("has a new meta.properties" in result.stderr) == has_metadata
    assert ("run odradek serve --adopt out" in result.stderr) == (not has_metadata)
    with odradek.open("out", adopt=not has_metadata) as logs:
        assert [record.value for record in logs["events", 0].read()] == [b"1", b"2"]
        assert logs.topic_id("events") == topic_id
        assert ("compact" in logs.topic_config("kept").cleanup_policy) == has_metadata
        assert not list(Path("out").glob("*-stray"))
    # The folder itself, where both are lost.
    if len(lost) == 2:
        with odradek.open(data, adopt=True) as logs:
            assert logs["events", 0].log_end_offset == 2


def test_a_folder_of_another_topic_is_no_clean_salvage(data: Path) -> None:
    (data / "events-0" / "partition.metadata").write_text("version: 0\ntopic_id: x1aKva0FS9aP4CPblmQDiw\n")
    result = run("salvage data out", code=1)
    assert (
        "events-0: the metadata do not have its topic, or with another id: brokers set the folder aside"
        in result.stderr
    )
    # As it is told to go on.
    assert run("salvage data/events-0 alone").exit_code == 0
    with odradek.open("alone", adopt=True) as logs:
        assert [record.value for record in logs["events", 0].read()] == [b"1", b"2"]
        assert not list(Path("alone").glob("*-stray"))
