"""The fuzzers of `fuzz/` for a short while, and what they are known to have found: `tests/vectors/corrupt`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz" / "run.py"


def _run(*options: str, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FUZZ), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.slow
def test_each_corruption_is_named() -> None:
    """Every folder of vectors gives the error that its README expects, by every decoder."""
    result = _run("--vectors")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 differ" in result.stdout


@pytest.mark.laboratory
@pytest.mark.parametrize("seconds", [20, 120])
def test_nothing_is_found(seconds: int, tmp_path: Path) -> None:
    result = _run("--seconds", str(seconds), "--seed", "7", "--finds", str(tmp_path / "finds"))
    errors = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("finds/*.txt"))]
    assert result.returncode == 0, "\n".join([result.stdout, result.stderr, *errors])
    assert result.stdout.count(" executions in ") == 13


@pytest.mark.slow
def test_a_broken_promise_is_found(tmp_path: Path) -> None:
    """The fuzzer itself: a decoder that believes a length is caught by the guard page, and its input is kept."""
    program = f"""
import sys
sys.path.insert(0, {str(FUZZ.parent)!r})
import ctypes
from pathlib import Path
import run, targets
from guard import GuardedMemory
memory = GuardedMemory(100)
def check(data):
    block = memory.place(data)
    ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(block.obj)), data[0])
target = targets.Target("greedy", lambda: [b"\\x03ab"], lambda rng, data, others: bytes([200]) + data[1:], check)
targets.all_targets = lambda: {{"greedy": target}}
sys.exit(0 if run._fuzz("greedy", 2, 1, Path({str(tmp_path)!r})) else 1)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    (path,) = tmp_path.glob("greedy-crash-*")
    assert path.read_bytes() == b"\xc8ab"
