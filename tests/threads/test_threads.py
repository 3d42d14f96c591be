"""Eight threads do everything at once, for some seconds: see `threads`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_TO_END = 100
LINES = 120


def run(seconds: float, seed: int) -> None:
    """Let the threads work for some time, in a process of its own.

    Raises:
        AssertionError: Something went wrong, or a thread got on no more.
    """
    command = [sys.executable, "-m", "threads", "--seconds", str(seconds), "--seed", str(seed)]
    environment = {"PYTHONPATH": ":".join(str(Path(path).absolute()) for path in sys.path if path)}
    result = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + SECONDS_TO_END,
    )
    said = "\n".join(result.stderr.splitlines()[-LINES:])
    assert result.returncode == 0, f"ended with {result.returncode}\n{said}"
    told = json.loads(result.stdout)
    print(f"{told['rounds']} rounds: {told['counts']}")
    assert not told["failures"], "\n".join(told["failures"])
    assert sum(told["counts"].values()) > 20 * seconds


@pytest.mark.laboratory
def test_ten_seconds() -> None:
    run(10, 1_000)


@pytest.mark.laboratory
@pytest.mark.timeout(24 * 3600)
def test_ten_minutes(pytestconfig: pytest.Config) -> None:
    run(pytestconfig.getoption("--seconds"), pytestconfig.getoption("--seed"))
