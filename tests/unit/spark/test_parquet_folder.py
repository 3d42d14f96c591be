"""A folder of Parquet files, whose commits are interrupted at each operation on files in turn."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.folder_driver import rows
from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.pipeline.folder_files import STAGED
from odradek.spark.pipeline.parquet_folder import RANGES_KEY, ParquetFolder, format_ranges
from odradek.spark.ranges import OffsetRange
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.names import TopicPartition

NAME = TopicPartition("t", 0)
OPERATIONS: list[tuple[type, str]] = [
    *((Path, name) for name in ("replace", "unlink", "mkdir")),
    *((FileSystem, name) for name in ("open", "rename", "unlink", "make_directory", "sync_directory")),
    *((WritableFile, name) for name in ("write", "sync")),
]


def staged(folder: ParquetFolder, staging: str, start: int, end: int) -> str:
    name = f"{staging}/{start}.staged"
    path = folder.path
    assert isinstance(path, Path)
    rows = pa.table({"offset": pa.array(range(start, end), pa.int64())})
    pq.write_table(
        rows.replace_schema_metadata({RANGES_KEY: format_ranges([OffsetRange(NAME, start, end)])}), path / name
    )
    return name


def append(folder: ParquetFolder, start: int, end: int) -> None:
    staging = folder.files.stage()
    folder.commit(
        staging, [(staged(folder, staging, start, end), f"date=x/t-0-{start}.parquet")], {NAME: Position(end)}
    )


def replace(folder: ParquetFolder, end: int) -> None:
    """Commit what a merge does: other files instead of all that there are."""
    staging = folder.files.stage()
    moves = [(staged(folder, staging, 0, 5), "a.parquet"), (staged(folder, staging, 5, end), "date=y/b.parquet")]
    folder.commit(staging, moves, {NAME: Position(end)}, folder.files.names())


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("commit", [lambda folder: append(folder, 10, 20), lambda folder: replace(folder, 20)])
def test_a_commit_that_is_interrupted_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit: Callable[[ParquetFolder], None],
    error: BaseException,
    is_done: bool,
) -> None:
    step = 0
    while True:
        path = tmp_path / str(step)
        folder = ParquetFolder(path)
        append(folder, 0, 10)
        left = step

        def failing(kind: type, name: str) -> Callable[..., Any]:
            before = getattr(kind, name)

            def called(*given: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1 and not is_done:
                    raise error
                result = before(*given, **named)
                if left == -1:
                    raise error
                return result

            return called

        with monkeypatch.context() as patched:
            for kind, name in OPERATIONS:
                patched.setattr(kind, name, failing(kind, name))
            with suppress(type(error)):
                commit(folder)
        known = folder.positions[NAME].offset
        folder.close()
        folder = ParquetFolder(path)
        held = folder.positions[NAME].offset
        assert held in (10, 20)
        # It must not believe that more is there than a restart finds.
        assert known <= held
        assert rows(folder) == list(range(held))
        assert not list((path / "_odradek").glob("staged/*"))
        if held == 10:
            commit(folder)
            assert rows(folder) == list(range(20))
        folder.close()
        if left >= 0:
            break
        step += 1
    assert step > 10


@pytest.mark.parametrize(("first", "second"), [("nest", "nest/deep/inner"), ("nest/deep/inner", "nest")])
def test_a_folder_around_or_within_that_of_another_job_is_refused(tmp_path: Path, first: str, second: str) -> None:
    opened = ParquetFolder(tmp_path / first)
    for _ in range(2):
        with pytest.raises(SinkError, match=f"{second}: a pipeline writes to .*/{first} too, and who reads the outer"):
            ParquetFolder(tmp_path / second)
        # Also when that job does not run.
        opened.close()
    ParquetFolder(tmp_path / "nest-beside").close()
    ParquetFolder(tmp_path / first).close()


def test_a_job_commits_while_a_backfill_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ParquetFolder(tmp_path)
    append(job, 0, 10)
    job.files.stage()
    real = os.scandir

    def scandir(path: Any) -> Any:
        # The job is done with what it has staged, between the moments when it is seen and when it is looked into.
        if not isinstance(path, int) and Path(path).name == "staged":
            job.files.clear()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    backfill = ParquetFolder(tmp_path, for_backfill=True)
    assert not (tmp_path / STAGED).exists()
    job.files.stage()
    assert backfill.ranges() == [OffsetRange(NAME, 0, 10)]
    backfill.close()
    job.close()


def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ParquetFolder(tmp_path)
    append(folder, 0, 10)
    real = os.scandir

    def scandir(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == "date=x":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="date=x"):
        folder.files.names()
    folder.close()


def test_files_that_a_backfill_writes_again_outlive_a_merge_that_replaced_theirs(tmp_path: Path) -> None:
    """The user removes a merged file; a backfill writes its ranges under the names that files had before the merge."""
    folder = ParquetFolder(tmp_path)
    for start in (0, 10):
        append(folder, start, start + 10)
    staging = folder.files.stage()
    folder.commit(staging, [(staged(folder, staging, 0, 20), "date=x/t-0-0-merged.parquet")], {}, folder.files.names())
    folder.close()
    (tmp_path / "date=x/t-0-0-merged.parquet").unlink()
    backfill = ParquetFolder(tmp_path, for_backfill=True)
    for start in (0, 10):
        append(backfill, start, start + 10)
    backfill.close()
    again = ParquetFolder(tmp_path)
    assert rows(again) == list(range(20))
    again.close()


def test_marks_of_what_was_set_back(tmp_path: Path) -> None:
    """They are all that says so once `_odradek` is removed; what a stranger has called like them is passed over."""
    name = TopicPartition("t", 0)
    with closing(ParquetFolder(tmp_path)) as folder:
        folder.commit(folder.files.stage(), [], {name: Position(10, topic_id="one")})
        for place in (Position(6, topic_id="one"), Position(3, topic_id="two")):
            folder.set_back({name: place})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_1.set-back", "_2.set-back", "_odradek"]
    for other in ("_x.set-back", ".set-back", "_01.set-back"):
        (tmp_path / other).write_text("?")
    shutil.rmtree(tmp_path / "_odradek")
    with closing(ParquetFolder(tmp_path)) as folder:
        assert (folder.positions, folder.lives) == ({name: Position(3)}, 2)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"t": {"x": 1}}', '{"t": {"0": 1e999}}', '{"t": 5}', '{"t": {"0": null}}']
)
def test_a_mark_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "_1.set-back").write_text(content)
    with pytest.raises(SinkError, match=r"_1\.set-back: this file was not written by a pipeline: put it elsewhere"):
        ParquetFolder(tmp_path)
