"""Names of headers are bytes: one that is not UTF-8 comes back as it was, by every way out and in."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.admin.record_input import RecordInputError, json_reader
from odradek.cli.app import main
from odradek.errors import FormatError
from odradek.inspection.record_json import LineWriter
from odradek.mcp.untrusted import untrusted_part
from odradek.sources.condition import Row
from odradek.storage.names import TopicPartition
from odradek.transfer.record_text import TextReader

NAMES = [b"\xc3(", b"plain", "é".encode(), b"", b"base64:wyg=", b"base64:?", b'{"', b"\xff\xfe", b"\xed\xa0\x80"]
HEADERS = [(name.decode("utf-8", "surrogateescape"), b"1") for name in NAMES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "data"
    with odradek.open(path) as logs:
        logs.create_topic("h", partitions=1)
        logs["h", 0].append([odradek.Record(b"k", b"v", HEADERS, 1_700_000_000_000), odradek.Record(b"k", None)])
    return path


def run(*arguments: object, given: bytes | None = None) -> Result:
    done = CliRunner().invoke(main, list(map(str, arguments)), input=given)
    assert done.exit_code == 0, done.stderr
    return done


def headers(path: Path) -> list[tuple[str, bytes | None]]:
    with odradek.open(path, "r") as logs:
        first, second = logs["h", 0].read()
        assert not second.headers
        return list(first.headers)


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_records_are_written_one_by_one_as_by_the_kernel(folder: Path, form: str) -> None:
    with odradek.open(folder, "r") as logs:
        first = next(iter(logs["h", 0].read()))
    write = LineWriter(form, TopicPartition("h", 0))
    assert write(first).decode() in run("dump", "--format", form, folder / "h-0").stdout_bytes.decode()


def test_dump_writes_text(folder: Path) -> None:
    line = run("dump", "--format", "text", folder / "h-0").stdout.splitlines()[0]
    assert line.endswith(
        ' headers={base64:wyg=: "1", "plain": "1", "é": "1", "": "1", "base64:wyg=": "1", "base64:?": "1", '
        '"{\\"": "1", base64://4=: "1", base64:7aCA: "1"}'
    )
    line = run("dump", "--format", "jsonl", folder / "h-0").stdout.splitlines()[0]
    names = [name for name, _ in json.loads(line)["headers"]]
    assert names[0] == {"base64": "wyg="}
    assert names[1:7] == [name.decode() for name in NAMES[1:7]]
    assert names[7:] == [{"base64": "//4="}, {"base64": "7aCA"}]
    row = next(csv.DictReader(io.StringIO(run("dump", "--format", "csv", folder / "h-0").stdout)))
    assert [name for name, _ in json.loads(row["headers"])] == names


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_import_takes_what_dump_writes(folder: Path, tmp_path: Path, form: str) -> None:
    lines = run("dump", "--format", form, folder / "h-0").stdout_bytes
    run("import", "-", "--format", form, "--to", tmp_path / "data", given=lines)
    assert headers(tmp_path / "data") == HEADERS


def test_produce_takes_what_dump_writes(folder: Path, tmp_path: Path) -> None:
    lines = run("dump", "--format", "jsonl", folder / "h-0").stdout_bytes
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("h", partitions=1)
    run("produce", tmp_path / "data", "h", "--format", "jsonl", given=lines)
    assert headers(tmp_path / "data") == HEADERS


def test_replay(folder: Path, tmp_path: Path) -> None:
    run("replay", folder, "--to", tmp_path / "data")
    assert headers(tmp_path / "data") == HEADERS


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_export_and_import(folder: Path, tmp_path: Path, form: str) -> None:
    run("export", folder, "--to", tmp_path / "files", "--format", form)
    run("import", tmp_path / "files", "--to", tmp_path / "data")
    assert headers(tmp_path / "data") == HEADERS
    # Once more: the last record is compared with that of the target.
    run("import", tmp_path / "files", "--to", tmp_path / "data")
    assert headers(tmp_path / "data") == HEADERS


def written(path: Path, form: str, rows: pa.Table) -> None:
    """Write a file as another program may."""
    if form == "parquet":
        pq.write_table(rows, path)
    else:
        with pa.ipc.new_file(path, rows.schema) as writer:
            writer.write_table(rows)


@pytest.mark.parametrize("name", [pa.large_binary(), pa.dictionary(pa.int8(), pa.binary())])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_names_of_bytes_in_files_of_other_programs_are_these_bytes(
    tmp_path: Path, form: str, name: pa.DataType
) -> None:
    kind = pa.list_(pa.struct([pa.field("value", pa.binary()), pa.field("key", name)]))
    pairs = [{"key": name, "value": b"1"} for name in NAMES]
    rows = pa.table({"value": [b"v", b"w"], "headers": pa.array([pairs, []], kind)})
    written(tmp_path / f"h-0.{form}", form, rows)
    run("import", tmp_path / f"h-0.{form}", "--topic", "h", "--to", tmp_path / "data")
    assert headers(tmp_path / "data") == HEADERS


def test_names_that_look_like_ours_and_are_not_stay(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    pairs = [{"key": name, "value": b"1"} for name in ("base64:é", "base64:?")]
    written(tmp_path / "h-0.arrow", "arrow", pa.table({"value": [b"v", b"w"], "headers": pa.array([pairs, []], kind)}))
    run("import", tmp_path / "h-0.arrow", "--topic", "h", "--to", tmp_path / "data")
    assert headers(tmp_path / "data") == [("base64:é", b"1"), ("base64:?", b"1")]


@pytest.mark.parametrize("listed", [pa.list_view, pa.large_list_view])
def test_lists_that_arrow_reads_wrong_are_refused(tmp_path: Path, listed: Any) -> None:
    kind = listed(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    rows = pa.table({"value": [b"v"], "headers": pa.array([[{"key": "a", "value": b"1"}]], kind)})
    written(tmp_path / "h-0.arrow", "arrow", rows)
    done = CliRunner().invoke(main, ["import", f"{tmp_path}/h-0.arrow", "--topic", "h", "--to", f"{tmp_path}/data"])
    assert done.exit_code != 0
    assert "list_view: write it as a list" in done.stderr


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_name_is_refused(tmp_path: Path, form: str, pair: object) -> None:
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    written(tmp_path / f"h-0.{form}", form, pa.table({"value": [b"v"], "headers": pa.array([[pair]], kind)}))
    done = CliRunner().invoke(main, ["import", f"{tmp_path}/h-0.{form}", "--topic", "h", "--to", f"{tmp_path}/data"])
    assert done.exit_code != 0
    assert "a header has no name" in done.stderr


def test_agents_are_shown_the_bytes(folder: Path) -> None:
    with odradek.open(folder, "r") as logs:
        record = next(iter(logs["h", 0].read()))
    row = Row(TopicPartition("h", 0), record, record.key, record.value, record.headers, 1, {})
    assert untrusted_part(row, 100)["headers"][0] == [{"base64": "wyg=", "bytes": 2}, "1"]


@pytest.mark.parametrize("name", ['{"base64": 5}', '{"base64": "?"}', '{"x": "y"}', "7", "null", '"\\ud800"', "[]"])
def test_what_is_no_name_is_refused(name: str) -> None:
    line = f'{{"key": "k", "headers": [[{name}, "v"]]}}'.encode()
    with pytest.raises(FormatError):
        TextReader("file").json_rows([line])
    with pytest.raises(RecordInputError):
        json_reader([])(line)
