"""Rows between a task and the driver: none are left where a task failed, and a file that is not there is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from odradek.errors import SinkError
from odradek.spark.staged_file import StagedFile, staged_rows

ROWS = pa.record_batch({"offset": [1, 2]})


def stage_and_stop(file: StagedFile) -> None:
    file.write(ROWS)
    raise KeyboardInterrupt


def test_the_driver_reads_what_a_task_staged_batch_by_batch(tmp_path: Path) -> None:
    with StagedFile(tmp_path / "staging" / "0.arrow") as file:
        assert not file.holds_rows
        file.write(ROWS)
        file.write(ROWS.slice(1))
    assert file.holds_rows
    assert list(staged_rows(file.path, "")) == [ROWS, ROWS.slice(1)]


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), StagedFile(tmp_path / "0.arrow") as file:
        stage_and_stop(file)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "0.arrow").symlink_to("/dev/full")
    large = pa.record_batch({"value": [b"a" * (1 << 20)]})
    staging = StagedFile(tmp_path / "0.arrow")
    with pytest.raises(SinkError, match=r"0.arrow: rows cannot be staged: .*No space left"), staging as file:
        file.write(large)
    assert not list(tmp_path.iterdir())


def test_a_file_that_the_driver_does_not_see_is_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"0.arrow: the driver does not see what a task staged here: share it"):
        list(staged_rows(tmp_path / "0.arrow", "share it"))


def test_an_error_of_the_source_is_not_one_of_staging(tmp_path: Path) -> None:
    def broken(file: StagedFile) -> None:
        file.write(ROWS)
        raise ConnectionResetError("the source")

    with pytest.raises(ConnectionResetError, match="the source"), StagedFile(tmp_path / "0.arrow") as file:
        broken(file)
    assert not list(tmp_path.iterdir())


def test_the_first_of_two_errors_is_told(tmp_path: Path) -> None:
    def broken(file: StagedFile) -> None:
        file.write(ROWS)
        writer: Any = SimpleNamespace(close=lambda: Path("/dev/full").write_bytes(b"a"))
        file._writer = writer
        raise ConnectionResetError("the source")

    with pytest.raises(ConnectionResetError, match="the source"), StagedFile(tmp_path / "0.arrow") as file:
        broken(file)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_a_file_that_is_not_what_the_task_wrote_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0.arrow").write_bytes(content)
    with pytest.raises(SinkError, match=r"0.arrow: what a task staged here cannot be read"):
        list(staged_rows(tmp_path / "0.arrow", ""))
