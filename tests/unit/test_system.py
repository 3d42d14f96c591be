"""What the systems do differently, in both forms."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import runpy
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from functools import partial
from pathlib import Path

import pytest

from odradek import system
from peers.elsewhere import take_away

TESTS = Path(__file__).parents[1]
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
input()
"""


@pytest.fixture(params=["here", "elsewhere"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "elsewhere":
        take_away(monkeypatch.delattr, partial(monkeypatch.setattr, raising=False))
    return str(request.param)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    return calls


def test_there_is_a_processor(form: str) -> None:
    assert 1 <= system.processors() <= (os.cpu_count() or 1)


def test_a_file_and_a_folder_are_synced(form: str, tmp_path: Path, synced: list[int]) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        descriptor = os.open(path, os.O_RDONLY)
        system.sync(descriptor)
        os.close(descriptor)
        assert synced.pop() == descriptor


def test_where_the_drive_can_be_synced_it_is(monkeypatch: pytest.MonkeyPatch, synced: list[int]) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append((descriptor, command)))
    system.sync(9)
    assert (asked, synced) == ([(9, 51)], [])


def test_a_drive_that_cannot_be_synced_is_an_error(monkeypatch: pytest.MonkeyPatch, synced: list[int]) -> None:
    def fail(_descriptor: int, _command: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fail)
    with pytest.raises(OSError, match="Input/output"):
        system.sync(9)
    assert synced == []


def test_pages_are_asked_for_and_dropped(form: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    with path.open("rb") as file:
        system.drop_from_page_cache(file.fileno())
        assert system.is_in_page_cache(file.fileno(), 0) in (True, False)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            system.bring_in(data, 0, mmap.PAGESIZE)
        assert system.is_in_page_cache(file.fileno(), 0)
    with mmap.mmap(-1, 4 << 20) as memory:
        system.use_huge_pages(memory)
        memory[:4] = b"free"


def test_a_secret_is_gone_after_its_use_and_never_anybody_elses(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with system.secret_file(b"key\n" * 100_000) as path:
        for _ in range(2):
            assert Path(path).read_bytes() == b"key\n" * 100_000
        [*folders] = tmp_path.iterdir()
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * (form == "elsewhere")
        assert form == "here" or stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert not any(tmp_path.iterdir())


def test_a_peer_that_has_closed_is_seen(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        with connection:
            assert not system.is_closed_by_peer(connection)
            client.sendall(b"x")
            assert not system.is_closed_by_peer(connection)
            assert connection.recv(1) == b"x"
            client.close()
            # The kernel may not have delivered the end yet: this waits for it.
            assert connection.recv(1, socket.MSG_PEEK) == b""
            assert system.is_closed_by_peer(connection)


def test_the_holder_of_a_lock_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder, path.open("rb") as file:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert system.lock_holder(file.fileno()) == holder.pid
        assert system.describe_process(holder.pid).startswith(f"process {holder.pid} (python")
        holder.communicate(b"\n")
        assert system.lock_holder(file.fileno()) is None
    assert system.describe_process(1 << 30) == f"process {1 << 30}"


@pytest.mark.parametrize(
    ("kind", "pid", "expected"), [(fcntl.F_WRLCK, 4711, 4711), (fcntl.F_UNLCK, 4711, None), (fcntl.F_WRLCK, -1, None)]
)
def test_the_structure_of_a_lock_elsewhere(
    monkeypatch: pytest.MonkeyPatch, kind: int, pid: int, expected: int | None
) -> None:
    def answer(_descriptor: int, command: int, asked: bytes) -> bytes:
        # As macOS has it: start, length and process before the type and what the start counts from.
        assert command == fcntl.F_GETLK
        assert asked == bytes(20) + fcntl.F_WRLCK.to_bytes(2, sys.byteorder) + bytes(2)
        return bytes(16) + pid.to_bytes(4, sys.byteorder, signed=True) + kind.to_bytes(2, sys.byteorder) + bytes(2)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "fcntl", answer)
    assert system.lock_holder(9) == expected


def test_as_many_files_may_be_open_as_the_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, resource.RLIM_INFINITY)]

    def set_limit(_kind: int, new: tuple[int, int]) -> None:
        if new[0] == resource.RLIM_INFINITY:
            raise ValueError("Invalid argument")
        limits.append(new)

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    system.raise_descriptor_limit()
    assert limits[-1] == (10_240, resource.RLIM_INFINITY)


def run(*command: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.mark.laboratory
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ["records", "storage", "broker", "transfer"])
def test_all_of_a_part_works_elsewhere(part: str) -> None:
    # There the bytes that a client sent before it went hide that it went, until the broker looks again.
    seen_at_once = "tests/unit/broker/test_quotas.py::test_what_a_muted_client_sent_before_it_went_is_not_lost"
    options = ["-p", "peers.elsewhere", "-p", "no:cacheprovider", "--deselect", seen_at_once]
    run("pytest", *options, TESTS / "unit" / part)


@pytest.mark.laboratory
@pytest.mark.timeout(1800)
def test_no_name_is_used_that_macos_does_not_have(tmp_path: Path) -> None:
    run("mypy", "--platform", "darwin", "--cache-dir", tmp_path, "src/odradek")


@pytest.mark.laboratory
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "target", ["aarch64-macos", "x86_64-macos", "aarch64-linux-gnu", "aarch64-linux-musl", "x86_64-linux-musl"]
)
def test_the_kernels_are_compiled_and_linked_for_other_systems(target: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="zig compiles for other systems: pip install ziglang")
    build = runpy.run_path(str(TESTS.parent / "setup.py"))
    options = [*build["OPTIONS"], "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
    # Python's own functions are found when a kernel is loaded.
    options += ["-undefined", "dynamic_lookup", "-Wl,-x"] if "macos" in target else ["-Wl,-s"]
    kernels = sorted((TESTS.parent / build["KERNELS"]).glob("*.c"))
    assert {path.stem for path in kernels} >= {"checksums", "rows"}
    for kernel in kernels:
        library = tmp_path / f"{kernel.stem}.so"
        run("ziglang", "cc", "-target", target, *options, "-o", library, kernel)
        assert library.stat().st_size
