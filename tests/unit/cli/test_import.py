"""`odradek import`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from odradek.cli.import_ import command
from odradek.sources.arrow import record_batches
from odradek.sources.source import open_source
from odradek.storage.names import TopicPartition
from odradek.testing import Broker


def test_a_closed_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.UsageError, match="stdin is closed"):
        command.main(["-", "--to", str(tmp_path / "data")], standalone_mode=False)
    assert not (tmp_path / "data").exists()


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    source = tmp_path / "\udcff"
    with odradek.open(source) as logs:
        logs.create_topic("events")
        logs["events", 0].append([odradek.Record(value=b"a")])
    exported, copy = tmp_path / "\udcfe", tmp_path / "\udcfd"
    for words in (
        ["export", source, "--to", exported, "--format", "jsonl"],
        ["import", exported, "--to", tmp_path / "imported"],
        ["replay", source, "--to", copy],
        ["backup", source, tmp_path / "\udcfc"],
        ["restore", tmp_path / "\udcfc", tmp_path / "\udcfb"],
    ):
        result = CliRunner().invoke(main, [str(word) for word in words])
        assert result.exit_code == 0, result.output
    for path in (copy, tmp_path / "imported", tmp_path / "\udcfb"):
        with odradek.open(path, mode="r") as logs:
            assert [record.value for record in logs["events", 0].read()] == [b"a"]


@pytest.mark.parametrize("last", [b'{"topic":"events","val', b'{"topic":"events","value":"\xff"}\n'])
@pytest.mark.parametrize("kind", ["folder", "broker"])
def test_what_comes_before_a_damaged_line_is_imported_and_counted(
    kind: str, last: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.transfer.record_files._READ_BYTES", 100)
    given = b"".join(b'{"topic":"events","value":"%d"}\n' % number for number in range(100)) + last
    with Broker() as broker:
        target = f"kafka://{broker.bootstrap_servers}" if kind == "broker" else str(tmp_path / "data")
        result = CliRunner().invoke(main, ["import", "-", "--to", target], input=given)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 2), result.stderr
        imported = int(result.stderr.split()[1])
        assert imported > 50
        with open_source(target) as source:
            rows = [
                row["value"]
                for batch in record_batches(source, TopicPartition("events", 0), isolation="read_committed")
                for row in batch.to_pylist()
            ]
    assert rows == [b"%d" % number for number in range(imported)]
    assert "record 101: " in result.stderr
