"""A pipeline as a process of its own, with all that runs below it: killed, stopped and continued."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_JVM = "SparkSubmit"
_WORKER = "daemon pyspark."
_TESTS = Path(__file__).parents[1]
_DONE = r"^(?:{name}: )?batch [\d,]+: [\d,]+ offsets of .+ in ([\d.]+) s, "
_BEGUN = r"^(?:{name}: )?batch [\d,]+: "
_FAILED = re.compile(r"^odradek: (?!.*; it starts again in )(.*)", re.MULTILINE)
_RESTARTED = re.compile(r"^odradek: (.*); it starts again in ", re.MULTILINE)


def children(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    below, found = {pid}, {}
    while True:
        new = {child for child, parent in parents.items() if parent in below} - below
        if not new:
            break
        below |= new
        for child in new:
            if command := _command(child):
                found[child] = command
    return found


def _command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process was started, in ticks of the kernel; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def wait_until(reached: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if reached():
            return True
        time.sleep(0.1)
    return False


class Job:
    """The jobs of a file as a process of its own, started again whenever it has ended.

    Args:
        file: The jobs' file.
        output: What they print is appended here.
    """

    def __init__(self, file: Path, output: Path) -> None:
        self.file = file
        self.output = output
        self.starts = 0
        self._printed_before = 0
        self._process: subprocess.Popen[bytes] | None = None
        # With the start of each: soon another program has the number, be it another driver's Spark.
        self._seen: dict[int, str] = {}

    def start(self) -> None:
        self.starts += 1
        self._printed_before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek.cli", "pipeline", "run", str(self.file)],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def printed(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def printed_since_start(self) -> str:
        """Return what it has printed since it was started the last time."""
        if not self.output.exists():
            return ""
        with self.output.open("rb") as output:
            output.seek(self._printed_before)
            return output.read().decode(errors="replace")

    def batches(self, name: str) -> int:
        """Return how many batches one of the jobs has done since the start."""
        return len(re.findall(_DONE.format(name=name), self.printed_since_start(), re.MULTILINE))

    def batch_seconds(self, name: str) -> float:
        """Return how long the last batch of one of the jobs took."""
        seconds: list[str] = re.findall(_DONE.format(name=name), self.printed_since_start(), re.MULTILINE)
        return float(seconds[-1]) if seconds else 0.0

    def is_at_work(self, name: str) -> bool:
        """Return whether one of the jobs has begun a batch since the start, and nothing has failed."""
        printed = self.printed_since_start()
        return self.running and re.search(_BEGUN.format(name=name), printed, re.MULTILINE) is not None

    def failures(self) -> list[str]:
        """Return why jobs have ended since the start, while others may still run."""
        return _FAILED.findall(self.printed_since_start())

    def restarts(self) -> int:
        """Return how many times jobs have started again by themselves since the start."""
        return len(_RESTARTED.findall(self.printed_since_start()))

    def wait_for_batches(self, before: Mapping[str, int], timeout_s: float) -> bool:
        """Wait until each of these jobs has done more batches than before, or one has failed, or all have ended."""

        def reached() -> bool:
            return all(self.batches(name) > count for name, count in before.items())

        return wait_until(lambda: reached() or not self.running or bool(self.failures()), timeout_s)

    def wait_for_text(self, pattern: str, timeout_s: float) -> bool:
        """Wait until it has printed this since the start, or one of the jobs has failed, or all have ended."""
        wanted = re.compile(pattern, re.MULTILINE)

        def reached() -> bool:
            return wanted.search(self.printed_since_start()) is not None

        return wait_until(lambda: reached() or not self.running or bool(self.failures()), timeout_s)

    def kill(self, victim: str, chance: random.Random) -> bool:
        """Kill the driver, the JVM with its executor, a Python worker, or all of them: whether there was one."""
        assert self._process is not None
        below = self._below()
        if victim in ("driver", "group"):
            # Also what runs below it, each in a process group of its own.
            _signal([self._process.pid, *(below if victim == "group" else ())], signal.SIGKILL)
            self._process.wait()
            return True
        word = _JVM if victim == "executor" else _WORKER
        victims = [pid for pid, command in below.items() if word in command]
        return bool(victims) and _signal([chance.choice(victims)], signal.SIGKILL)

    def pause(self, what: str) -> list[int]:
        """Stop the driver, what runs below it, or both, until `resume`: return their process ids."""
        assert self._process is not None
        below = list(self._below())
        pids = {"driver": [self._process.pid], "below": below, "group": [self._process.pid, *below]}[what]
        _signal(pids, signal.SIGSTOP)
        return pids

    @staticmethod
    def resume(pids: Iterable[int]) -> None:
        _signal(pids, signal.SIGCONT)

    def finish(self, timeout_s: float) -> int:
        """Wait until it has ended by itself: return its exit code."""
        assert self._process is not None
        self._below()
        return self._process.wait(timeout_s)

    def terminate(self, timeout_s: float) -> int:
        assert self._process is not None
        self._below()
        self._process.terminate()
        return self._process.wait(timeout_s)

    def clean(self) -> None:
        if self.running:
            assert self._process is not None
            self._below()
            self._process.kill()
            self._process.wait()
        for pid, command in self._left().items():
            if _WORKER in command or _JVM in command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _left(self) -> dict[int, str]:
        """Return those of all processes that were ever below the driver that still run, with their command lines."""
        return {pid: _command(pid) for pid, start in self._seen.items() if _start_of(pid) == start}

    def _below(self) -> dict[int, str]:
        assert self._process is not None
        found = children(self._process.pid)
        for pid in found:
            if start := _start_of(pid):
                self._seen[pid] = start
        return found


def _signal(pids: Iterable[int], number: signal.Signals) -> bool:
    """Send a signal to processes; return whether all of them were there."""
    there = True
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            there = False
    return there
