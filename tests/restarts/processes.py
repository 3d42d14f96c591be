"""Starts the readers and the writers, kills the writers, and counts the readers that died."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.records import Record
from odradek.records.builder import build_batch
from peers.process import wait_for
from restarts import reader, writer

LONGEST_WAIT_S = 60
ENVIRONMENT = {"PYTHONPATH": ":".join(str(Path(path).absolute()) for path in sys.path if path)}


def tear(folder: Path, topics: Mapping[str, int], rng: random.Random) -> None:
    """Leave a torn batch of several pages at the end of a log, as a crash does: recovery makes the file shorter."""
    topic, partitions = rng.choice(list(topics.items()))
    path = max((folder / f"{topic}-{rng.randrange(partitions)}").glob("*.log"))
    batch = build_batch([Record(None, rng.randbytes(rng.randrange(20_000)))], base_offset=1 << 40)
    with path.open("ab") as file:
        file.write(batch[:-4] + bytes(4) if rng.random() < 0.5 else batch[: rng.randrange(1, len(batch))])


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], LONGEST_WAIT_S)
    assert readable, f"{process.args!r} says nothing"
    return process.stdout.readline()


def _start(arguments: list[str], errors: Path) -> subprocess.Popen[str]:
    with errors.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env=ENVIRONMENT,
            text=True,
            bufsize=1,
        )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


class Writers:
    """Starts and kills writers; a context manager.

    Args:
        path: Where they note what goes wrong.
    """

    def __init__(self, path: Path) -> None:
        self._errors = path / "writers.err"
        self._host = _start([writer.__file__], self._errors)

    def run(self, folder: Path, told: Path, seed: int, is_time_up: Callable[[], bool]) -> None:
        """Let one write until its time is up, and kill it."""
        assert self._host.stdin is not None
        self._host.stdin.write(f"{folder} {told} {seed}\n")
        pid = int(_line(self._host))
        wait_for(lambda: is_time_up() or not _lives(pid), LONGEST_WAIT_S, "the writer", interval_s=0.0005)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = int(_line(self._host))
        assert status == -signal.SIGKILL, f"the writer ended by itself ({status}):\n{self._errors.read_text()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._host)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Readers:
    """Keeps some readers at work, and notes how those ended that did not live; a context manager.

    Args:
        count: How many there are at a time.
        path: Where they note what goes wrong.
        folder: What they read.
        told: The file that says what was acknowledged.
        seed: What decides what they do.
        partitions: How many partitions each topic has.

    Attributes:
        deaths: How they ended.
        counts: How often those that lived did what.
    """

    def __init__(
        self, count: int, path: Path, folder: Path, told: Path, seed: int, partitions: Mapping[str, int]
    ) -> None:
        self.deaths: list[str] = []
        self.counts: Counter[str] = Counter()
        self._path = path
        self._arguments = [str(folder), str(told)]
        self._topics = [f"{topic}:{number}" for topic, number in partitions.items()]
        self._seeds = random.Random(seed)
        self._started = 0
        self._readers = [self._start() for _ in range(count)]

    def _start(self) -> tuple[subprocess.Popen[str], Path]:
        self._started += 1
        errors = self._path / f"reader-{self._started}.err"
        seed = str(self._seeds.getrandbits(32))
        return _start([reader.__file__, *self._arguments, seed, *self._topics], errors), errors

    def wait(self) -> None:
        """Return when all of them read."""
        for process, _ in self._readers:
            _line(process)

    def look(self, when: str) -> None:
        """Note which have died, and start others in their place."""
        for number, (process, errors) in enumerate(self._readers):
            if process.poll() is not None:
                self._note(process, errors, when)
                self._readers[number] = self._start()
                _line(self._readers[number][0])

    def _note(self, process: subprocess.Popen[str], errors: Path, when: str) -> None:
        code = process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self.deaths.append(f"{when}: {how}\n{errors.read_text()[-3000:]}")
        _end(process)

    def stop(self) -> None:
        """Let them end, and take note of what they did.

        Raises:
            AssertionError: One has died by itself.
        """
        for process, errors in self._readers:
            assert process.stdin is not None
            assert process.stdout is not None
            # Whether it is alive or not, it is to end.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            said = process.stdout.read()
            if process.wait(LONGEST_WAIT_S):
                self._note(process, errors, "in the end")
            else:
                self.counts.update(json.loads(said.splitlines()[-1]))
                process.stdout.close()
        self._readers = []
        kinds = Counter(death.split(": ", 1)[1].splitlines()[0] for death in self.deaths)
        last = Counter(death.splitlines()[-1][:200] for death in self.deaths if "exit code" in death.splitlines()[0])
        told = f"{len(self.deaths)} readers died: {dict(kinds)} {dict(last)}"
        print(f"The readers did {dict(self.counts)}; {told}")
        assert not self.deaths, "\n".join([told, *self.deaths[:3]])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self._readers:
            _end(process)
