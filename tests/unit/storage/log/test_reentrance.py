"""What a signal's handler asks for in the middle of a change of the same thread is refused: its locks let it in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogError
from odradek.records import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import Buffer, FileSystem, WritableFile
from odradek.storage.log.local_log import LocalLog
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER

RECORD = Record(b"key", b"value")


class Calling(FileSystem):
    """A disk beside which a signal comes, once, as a `.log` is written to: its handler calls something."""

    def __init__(self) -> None:
        self.handler: Callable[[], object] | None = None

    def open(self, path: Path) -> WritableFile:
        return _CallingFile(self, path)


class _CallingFile(WritableFile):
    def __init__(self, files: Calling, path: Path) -> None:
        super().__init__(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._files = files

    def write_at(self, position: int, data: Buffer) -> None:
        if self._files.handler is not None and self.path.suffix == ".log":
            handler, self._files.handler = self._files.handler, None
            handler()
        super().write_at(position, data)


@pytest.fixture
def files() -> Calling:
    return Calling()


@pytest.fixture
def logs(tmp_path: Path, files: Calling) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path / "data", files=files) as logs:
        logs.create_topic("t", partitions=2)
        logs["t", 0].append([RECORD])
        logs["t", 1].append([RECORD])
        yield logs


CHANGES: list[Callable[[WritableLogDirectory], object]] = [
    lambda logs: logs["t", 0].append([RECORD]),
    lambda logs: logs["t", 0].roll(),
    lambda logs: logs["t", 0].flush(),
    lambda logs: logs["t", 0].flushing.make_durable(),
    lambda logs: logs["t", 0].delete_records(),
    lambda logs: logs["t", 0].upkeep.delete_old_segments(),
    lambda logs: logs["t", 0].close(),
    lambda logs: logs["t", 0].discard(),
    lambda logs: logs.create_topic("other"),
    lambda logs: logs.alter_topic_config("t", {"retention.ms": "1"}),
    lambda logs: logs.delete_topic("t"),
    lambda logs: logs.maintain(),
    lambda logs: logs.close(),
    lambda logs: logs.abandon(),
]


@pytest.mark.sampled
@pytest.mark.usefixtures("real_locks")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_of_an_append_is_refused_and_the_append_goes_on(
    tmp_path: Path, logs: WritableLogDirectory, files: Calling, change: Callable[[WritableLogDirectory], object]
) -> None:
    refused: list[LogError] = []

    def handler() -> None:
        with pytest.raises(LogError, match="in the middle of") as caught:
            change(logs)
        refused.append(caught.value)

    files.handler = handler
    assert logs["t", 0].append([RECORD]) == 1
    assert len(refused) == 1
    assert logs["t", 0].append([RECORD]) == 2
    assert [record.offset for record in logs["t", 0].read()] == [0, 1, 2]
    logs.close()
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("real_locks")
def test_reading_and_another_log_are_open_to_a_handler(logs: WritableLogDirectory, files: Calling) -> None:
    seen: list[object] = []
    files.handler = lambda: seen.extend(
        [
            [record.offset for record in logs["t", 0].read()],
            logs["t", 0].log_end_offset,
            logs["t", 1].append([RECORD]),
        ]
    )
    assert logs["t", 0].append([RECORD]) == 1
    assert seen == [[0], 1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("real_locks")
def test_a_log_in_the_middle_of_an_append_is_not_parked_by_another(
    tmp_path: Path, files: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    with odradek.open(tmp_path / "data", files=files, max_open_logs=1) as logs:
        logs.create_topic("t", partitions=2)
        parked: list[Path] = []
        park = LocalLog.park

        def note_and_park(log: LocalLog) -> None:
            parked.append(log.path)
            park(log)

        monkeypatch.setattr(LocalLog, "park", note_and_park)
        files.handler = lambda: logs["t", 1].append([RECORD])
        logs["t", 0].append([RECORD])
        assert logs["t", 0].path not in parked
        assert [log.log_end_offset for log in logs] == [1, 1]
