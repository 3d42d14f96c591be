"""Runs one target: seeds first, then what they are broken into. The state that outlives a crash is in shared memory.

| executions int64 | started float64: 0 between inputs | kept int64 | size int64 | the input |
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import struct
import sys
import time
import traceback
from collections.abc import Hashable
from pathlib import Path

from mutation import MAX_INPUT
from sanitized import edge_counter, is_active
from seeds import corrupt_vectors
from targets import Target

SLOW_SECONDS = 1.0
MEMORY_BYTES = 256 << 20
"""How much more memory than after its seeds a worker may ever have had."""

_STATE = struct.Struct("=qdqq")
_MAX_CORPUS = 5000
_REPEATS = 3


class State:
    """What the worker says to its parent, whatever becomes of it."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _STATE.size + 4 * MAX_INPUT)
        self.executions = 0
        self.kept = 0

    def begin(self, data: bytes) -> None:
        """Note the input that is about to be tried."""
        self.executions += 1
        self._map[_STATE.size : _STATE.size + len(data)] = data
        _STATE.pack_into(self._map, 0, self.executions, time.monotonic(), self.kept, len(data))

    def end(self) -> None:
        """Note that it was survived."""
        _STATE.pack_into(self._map, 0, self.executions, 0.0, self.kept, 0)

    def read(self) -> tuple[int, float, int, bytes]:
        """Return executions, when the current input began (0 if none), kept inputs and the current input."""
        executions, started, kept, size = _STATE.unpack_from(self._map)
        return executions, started, kept, self._map[_STATE.size : _STATE.size + size]


def find_path(folder: Path, target: str, kind: str, data: bytes) -> Path:
    """Write a find and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{kind}-{random.Random(data).getrandbits(32):08x}"
    path.write_bytes(data)
    return path


def _place(error: BaseException) -> str:
    """Return what tells one failure from another."""
    frames = traceback.extract_tb(error.__traceback__)
    text = str(error).split(":")[0] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} {text}"


class Worker:
    """The loop of one process."""

    def __init__(self, target: Target, seed: int, state: State, finds: Path) -> None:
        self._target = target
        self._seed = seed
        self._state = state
        self._finds = finds
        self._known: dict[str, int] = {}
        self._outcomes: set[Hashable] = set()
        self._new_edges = edge_counter()
        self.corpus: list[bytes] = []

    def report(self, kind: str, data: bytes, text: str, place: str) -> None:
        """Write a find down, unless there are enough of its kind."""
        self._known[place] = self._known.get(place, 0) + 1
        if self._known[place] <= _REPEATS:
            path = find_path(self._finds, self._target.name, kind, data)
            path.with_suffix(".txt").write_text(text, encoding="utf-8")
            print(f"{self._target.name}: {kind}: {place}: {text.strip().splitlines()[-1][:300]} -> {path}", flush=True)

    def attempt(self, data: bytes) -> None:
        """Try one input."""
        state = self._state
        state.begin(data)
        started = time.process_time()
        outcome: Hashable = None
        try:
            outcome = self._target.check(data)
        except Exception as error:
            place = _place(error)
            self.report("error", data, traceback.format_exc(), place)
            outcome = place
        taken = time.process_time() - started
        if taken > SLOW_SECONDS * (5 if is_active() else 1):
            self.report("slow", data, f"{taken:.2f} s of processor time", "slow")
        state.end()
        fresh = self._new_edges is not None and self._new_edges() > 0
        if fresh or outcome not in self._outcomes:
            self._outcomes.add(outcome)
            if len(self.corpus) < _MAX_CORPUS:
                self.corpus.append(data)
                state.kept = len(self.corpus)

    def run(self, seconds: float) -> int:
        """Try inputs until the time is over; return how many finds there were."""
        deadline = time.monotonic() + seconds
        rng = random.Random(self._seed)
        seeds = [*self._target.seeds(), *corrupt_vectors(self._target.name)]
        for data in seeds:
            self.attempt(data)
        self.corpus += [data for data in seeds if data not in self.corpus]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        most = peak + MEMORY_BYTES * (4 if is_active() else 1)
        while time.monotonic() < deadline:
            # Half of the time something that was kept lately.
            newest = rng.random() < 0.5
            parent = rng.choice(self.corpus[-50:] if newest else self.corpus)
            data = self._target.mutate(rng, parent, self.corpus)[: 2 * MAX_INPUT]
            self.attempt(data)
            now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            if now > most:
                self.report("memory", data, f"{(now - peak) >> 20} MiB more than after the seeds", "memory")
                most = now + (64 << 20)
        return sum(self._known.values())


def start(target: Target, seed: int, seconds: float, state: State, finds: Path) -> int:
    """Run a worker in a child process; return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        target.begin()
        try:
            code = 1 if Worker(target, seed, state, finds).run(seconds) else 0
        finally:
            target.end()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
