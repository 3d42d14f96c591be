"""`odradek import`."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek.places.opening import open_place
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.command import run
from peers.files import create_log


@pytest.mark.slow
def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    source = tmp_path / "\udcff"
    create_log(source, "events", [b"a"])
    exported, copy = tmp_path / "\udcfe", tmp_path / "\udcfd"
    commands: list[list[str | Path]] = [
        ["export", source, "--to", exported, "--format", "jsonl"],
        ["import", exported, "--to", tmp_path / "imported"],
        ["replay", source, "--to", copy],
        ["backup", source, tmp_path / "\udcfc"],
        ["restore", tmp_path / "\udcfc", tmp_path / "\udcfb"],
    ]
    for words in commands:
        run(*words, code=0)
    for path in (copy, tmp_path / "imported", tmp_path / "\udcfb"):
        with odradek.open(path, mode="r") as logs:
            assert [record.value for record in logs["events", 0].read()] == [b"a"]


@pytest.mark.slow
@pytest.mark.parametrize("last", [b'{"topic":"events","val', b'{"topic":"events","value":"\xff"}\n'])
@pytest.mark.parametrize("kind", ["folder", "broker"])
def test_what_comes_before_a_damaged_line_is_imported_and_counted(
    kind: str, last: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.transfer.record_files._READ_BYTES", 100)
    given = b"".join(b'{"topic":"events","value":"%d"}\n' % number for number in range(100)) + last
    with Broker() as broker:
        target = f"kafka://{broker.bootstrap_servers}" if kind == "broker" else str(tmp_path / "data")
        result = run("import", "-", "--to", target, given=given, code=1)
        assert result.stderr.count("\n") == 2
        imported = int(result.stderr.split()[1])
        assert imported > 50
        with open_place(target) as source:
            rows = [
                row["value"]
                for batch in record_batches(source, TopicPartition("events", 0), isolation="read_committed")
                for row in batch.to_pylist()
            ]
    assert rows == [b"%d" % number for number in range(imported)]
    assert "record 101: " in result.stderr
