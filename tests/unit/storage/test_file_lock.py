"""A file has one holder at a time; `directory/test_lock.py` asks other programs."""

from __future__ import annotations

import fcntl
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from odradek.storage.file_lock import FileLock


def test_it_has_one_holder_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(path), FileLock(path)
    assert (first.acquire(), second.acquire()) == (True, False)
    assert (first.is_held, second.is_held, second.is_taken_here) == (True, False, True)
    second.release()
    assert not second.acquire()
    first.release()
    assert not second.is_taken_here
    assert (second.acquire(), first.acquire()) == (True, False)
    second.release(removes=True)
    assert not path.exists()


def test_a_lock_goes_with_its_file_and_not_with_a_name(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = FileLock(tmp_path / "old" / "lock")
    assert old.acquire()
    (tmp_path / "old").rename(tmp_path / "moved")
    (tmp_path / "old").mkdir()
    new = FileLock(old.path)
    assert new.acquire()
    again = FileLock(tmp_path / "moved" / "lock")
    assert not again.acquire()
    # The file of that name is the other one's.
    old.release(removes=True)
    assert new.path.exists()
    assert new.is_taken_here
    assert again.acquire()
    new.release()
    again.release()


def test_a_child_process_has_no_lock_of_its_parent(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    child = os.fork()
    if not child:
        code = 3
        try:
            code = int(lock.is_taken_here or FileLock(lock.path).acquire())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.is_taken_here
    lock.release()


@pytest.mark.slow
def test_an_interrupt_leaves_no_lock_and_no_file_that_would_take_one_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    taken = fcntl.lockf

    def interrupted(*arguments: Any) -> None:
        taken(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "lockf", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        FileLock(path).acquire()
    monkeypatch.undo()
    lock = FileLock(path)
    assert lock.acquire()
    # What the exception holds on to goes: the lock stays.
    del kept
    gc.collect()
    child = os.fork()
    if not child:
        code = 3
        try:
            code = int(FileLock(path).acquire())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.release()


@pytest.mark.slow
def test_a_lock_that_nobody_refers_to_gives_itself_back(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    del lock
    gc.collect()
    again = FileLock(tmp_path / "lock")
    assert again.acquire()
    again.release()
