import subprocess
import sys
from pathlib import Path

import pytest

from odradek.errors import LogDirectoryLockedError
from odradek.storage.directory.lock import LogDirectoryLock

TRY = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(7)
"""

HOLD = """
import sys
from pathlib import Path
from odradek.storage.directory.lock import LogDirectoryLock
with LogDirectoryLock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def another_program_gets_it(path: Path) -> bool:
    return subprocess.run([sys.executable, "-c", TRY, path], timeout=60).returncode == 0


def test_it_excludes_another_program(tmp_path: Path) -> None:
    with LogDirectoryLock(tmp_path) as lock:
        assert not another_program_gets_it(lock.path)
    assert not lock.path.exists()


@pytest.mark.slow
def test_it_excludes_the_same_program_without_giving_the_lock_away(tmp_path: Path) -> None:
    with LogDirectoryLock(tmp_path) as lock:
        with pytest.raises(LogDirectoryLockedError):
            LogDirectoryLock(tmp_path)
        assert not another_program_gets_it(lock.path)
    lock.release()
    with LogDirectoryLock(tmp_path):
        pass


def test_it_is_excluded_and_takes_over_from_the_dead(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirectoryLockedError):
            LogDirectoryLock(tmp_path)
        process.kill()
    assert (tmp_path / ".lock").exists()
    LogDirectoryLock(tmp_path).release()
