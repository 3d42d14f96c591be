"""`scan` by several threads: the rows and errors of one thread, and threads that end."""

from __future__ import annotations

import gc
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import odradek
from odradek.columnar import read_ahead, scan
from odradek.errors import LogError, OdradekError, OptionError
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import LOG_SUFFIX, segment_file_name
from peers.descriptors import descriptors, stay_open
from peers.kafka_fixture import KafkaFixture

THREADS = 3


def write_log(path: Path, batches: Sequence[bytes], *, batches_per_segment: int) -> Path:
    """Write the log of the partition `t-0`, without indexes; the v2 batches follow each other's offsets."""
    (path / "t-0").mkdir(parents=True)
    offset = 0
    for start in range(0, len(batches), batches_per_segment):
        with (path / "t-0" / segment_file_name(offset, LOG_SUFFIX)).open("wb") as file:
            for batch in batches[start : start + batches_per_segment]:
                # The base offset is not part of what the checksum covers.
                file.write(offset.to_bytes(8, "big") + batch[8:])
                offset += next(iter(scan_batches(batch))).last_offset_delta + 1
    return path


class Outcome(NamedTuple):
    """The rows that came, and the error after them: its type, text, path and position."""

    rows: list[dict[str, Any]]
    error: str


def outcome(path: Path, *arguments: Any, **options: Any) -> Outcome:
    """Read a log directory and tell what came."""
    rows: list[dict[str, Any]] = []
    error = ""
    try:
        for batch in odradek.scan(path, *arguments, **options):
            batch.validate(full=True)
            assert 0 < batch.num_rows <= options.get("rows", 65_536)
            rows += batch.to_pylist()
    except OdradekError as caught:
        error = f"{type(caught).__name__}: {caught} {vars(caught)}"
    return Outcome(rows, error)


def scan_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("odradek-scan")]


def wait_for_no_threads() -> None:
    deadline = time.monotonic() + 30
    while scan_threads():
        assert time.monotonic() < deadline, "a thread of a scan is still there"
        time.sleep(0.01)


def divide(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        _ = batch.num_rows / 0


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "PIECE_BYTES", 1000)
    monkeypatch.setattr(read_ahead, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(read_ahead, "_PART_BYTES", 3000)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Some 250 KB in five segments."""
    source = random.Random(11)
    batches = [[Record(b"k%d" % source.randrange(9), source.randbytes(90)) for _ in range(50)] for _ in range(50)]
    return write_log(tmp_path / "data", [build_batch(records) for records in batches], batches_per_segment=10)


@pytest.mark.costly
@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_threads_give_what_one_gives(kafka_fixture: KafkaFixture, isolation: str, views: bool) -> None:
    for folder in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        for start_offset, end_offset in ((None, None), (None, 150), (3, None)):
            arguments = {"isolation": isolation, "views": views, "end_offset": end_offset, "start_offset": start_offset}
            expected = outcome(folder, threads=1, **arguments)
            assert outcome(folder, threads=THREADS, **arguments) == expected
            # An empty partition has no offset 3.
            assert expected.rows or start_offset is not None


@pytest.mark.usefixtures("small_parts")
def test_parts_are_decoded_by_threads(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by: dict[str, int] = {}
    decode = read_ahead._Partition.decode

    def counted(partition: Any, slices: Any) -> Any:
        decoded = decode(partition, slices)
        name = "none" if decoded is None else threading.current_thread().name
        by[name] = by.get(name, 0) + 1
        return decoded

    monkeypatch.setattr(read_ahead._Partition, "decode", counted)
    assert outcome(log_dir, threads=THREADS) == outcome(log_dir, threads=1)
    assert "none" not in by
    assert sum(by.values()) > 40
    assert all(name.startswith("odradek-scan") for name in by)
    wait_for_no_threads()


def test_what_is_small_starts_no_thread(log_dir: Path) -> None:
    reader = odradek.scan(log_dir, threads=4)
    next(reader)
    assert scan_threads() == []
    assert reader.read_all().num_rows < 2500


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("way", ["let go of", "closed", "an exception", "a cycle"])
def test_a_reader_that_is_left_in_the_middle_leaves_no_thread(log_dir: Path, way: str) -> None:
    before = descriptors()
    for _ in range(5):
        reader = odradek.scan(log_dir, threads=THREADS)
        for _ in range(3):
            next(reader)
        assert scan_threads()
        if way == "closed":
            reader.close()
        elif way == "an exception":
            with pytest.raises(ZeroDivisionError):
                divide(reader)
        elif way == "a cycle":
            cycle: list[Any] = [reader]
            cycle.append(cycle)
            del cycle
        del reader
        gc.collect()
    wait_for_no_threads()
    assert stay_open(before) == set()


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_memory_of_readers_that_were_left_is_given_back(log_dir: Path) -> None:
    def read_a_little() -> None:
        for _ in range(40):
            reader = odradek.scan(log_dir, threads=THREADS)
            next(reader)
            next(reader)
        del reader
        gc.collect()
        wait_for_no_threads()

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    read_a_little()
    before = resident_bytes()
    for _ in range(5):
        read_a_little()
    assert resident_bytes() - before < 32 << 20


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_readers_at_once_and_a_reader_in_another_thread(log_dir: Path) -> None:
    expected = odradek.scan(log_dir, threads=1).read_all()
    handed_over = odradek.scan(log_dir, threads=2)
    first = next(handed_over)
    found: list[pa.Table] = []

    def read(reader: pa.RecordBatchReader) -> None:
        found.append(reader.read_all())

    threads = [threading.Thread(target=read, args=(odradek.scan(log_dir, threads=2),)) for _ in range(4)]
    threads.append(threading.Thread(target=read, args=(handed_over,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rest = expected.slice(first.num_rows)
    assert sorted(table.num_rows for table in found) == sorted([expected.num_rows] * 4 + [rest.num_rows])
    assert all(table.equals(rest if table.num_rows == rest.num_rows else expected) for table in found)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("threads", [1, THREADS])
def test_rows_come_before_the_error_of_a_log_that_cannot_go_on(
    log_dir: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = ReadOnlyLog.slices

    def some(log: ReadOnlyLog, *arguments: Any, **options: Any) -> Iterator[Any]:
        for part in slices(log, *arguments, **options):
            if part.base_offset > 1000:
                raise LogError("it was closed")
            yield part

    monkeypatch.setattr(ReadOnlyLog, "slices", some)
    rows = 0
    with pytest.raises(LogError, match="it was closed"):  # noqa: PT012 - what came before the error counts
        for batch in odradek.scan(log_dir, threads=threads):
            assert batch["offset"][0].as_py() == rows
            rows += batch.num_rows
    assert rows > 900


@pytest.mark.usefixtures("small_parts")
def test_a_compacted_log_and_one_with_a_hole(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = sorted((log_dir / "t-0").glob("*.log"))[1]
    data = segment.read_bytes()
    batches = list(scan_batches(data))
    kept = b"".join(data[h.position : h.end_position] for number, h in enumerate(batches) if number % 3 != 2)
    segment.write_bytes(kept)
    with_hole = outcome(log_dir, threads=1)
    assert "MissingRecordsError" in with_hole.error
    assert outcome(log_dir, threads=THREADS) == with_hole
    monkeypatch.setattr(ReadOnlyLog, "may_have_gaps", lambda log: True)
    compacted = outcome(log_dir, threads=1)
    assert compacted.error == ""
    assert len(compacted.rows) > len(with_hole.rows)
    assert outcome(log_dir, threads=THREADS) == compacted


@pytest.mark.usefixtures("small_parts")
def test_files_that_are_deleted_and_replaced_meanwhile(log_dir: Path, tmp_path: Path) -> None:
    expected = odradek.scan(log_dir, threads=1).read_all()
    reader = odradek.scan(log_dir, threads=THREADS)
    batches = [next(reader), next(reader)]
    # Its writer replaces a segment by one with the same records, as compaction does.
    segment = sorted((log_dir / "t-0").glob("*.log"))[2]
    shutil.copy(segment, tmp_path / "new")
    (tmp_path / "new").replace(segment)
    batches += list(reader)
    assert pa.Table.from_batches(batches).equals(expected)


def test_threads_are_at_least_one(log_dir: Path) -> None:
    with pytest.raises(OptionError, match="threads"):
        odradek.scan(log_dir, threads=0)


@pytest.mark.slow
def test_a_part_that_grows_is_decoded_a_little_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each batch of some 100 bytes grows to 1 MB.
    batch = build_batch([Record(value=bytes(1 << 20))], codec=Codec.ZSTD)
    log_dir = write_log(tmp_path, [batch] * 300, batches_per_segment=300)
    monkeypatch.setattr(scan, "PIECE_BYTES", 4000)
    monkeypatch.setattr(read_ahead, "_FIRST_BYTES", 4000)
    largest: list[int] = []
    decode = read_ahead._Partition.decode

    def watched(partition: Any, slices: Any) -> Any:
        decoded = decode(partition, slices)
        largest.append(0 if decoded is None else decoded.size_bytes)
        return decoded

    monkeypatch.setattr(read_ahead._Partition, "decode", watched)
    before = pa.total_allocated_bytes()
    rows = sum(batch.num_rows for batch in odradek.scan(log_dir, threads=2))
    assert rows == 300
    assert largest
    assert max(largest) <= 64 << 20
    assert pa.total_allocated_bytes() == before


PROGRAM = """
import os, signal, sys, time
import odradek
from odradek.columnar import read_ahead, scan
scan.PIECE_BYTES, read_ahead._FIRST_BYTES, read_ahead._PART_BYTES = 1000, 1000, 3000
reader = odradek.scan(sys.argv[1], threads=3)
rows = next(reader).num_rows + next(reader).num_rows
"""


def run(program: str, log_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-W",
        "error::ResourceWarning",
        "-c",
        PROGRAM + program,
        str(log_dir),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_an_interpreter_that_ends_waits_for_nobody(log_dir: Path) -> None:
    done = run("print(rows > 0)", log_dir)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.slow
def test_an_interrupt_ends_a_scan(log_dir: Path) -> None:
    done = run("for batch in reader:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(10)", log_dir)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode != 0


@pytest.mark.slow
def test_a_child_process_reads_on_and_so_does_its_parent(log_dir: Path) -> None:
    program = """
child = os.fork()
rows += reader.read_all().num_rows
if child:
    _, status = os.waitpid(child, 0)
    print(rows, status)
else:
    del reader
    sys.exit(0 if rows == 2500 else 1)
"""
    for _ in range(5):
        done = run(program, log_dir)
        assert (done.returncode, done.stdout) == (0, "2500 0\n"), done.stderr
