"""What is fuzzed: a target has seeds, a way to break them, and a check that raises where a promise is broken."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation import Mutator


@dataclass(frozen=True)
class Target:
    """One thing that is fuzzed.

    Attributes:
        name: Its name on the command line.
        seeds: Makes the inputs to start from.
        mutate: Makes an input from another.
        check: Raises where an invariant is broken. What it returns says how the input fared: one that fares as none
            did before is kept, to be broken further.
        begin: Called once, before the first input.
        end: Called once, behind the last one.
        words: What a vector's README has to say of the input: the error and its place, or that there is none.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutator
    check: Callable[[bytes], Hashable]
    begin: Callable[[], None] = lambda: None
    end: Callable[[], None] = lambda: None
    words: Callable[[bytes], str] = lambda data: ""


def dice(data: bytes) -> random.Random:
    """Return randomness that only the input decides, so that a find can be repeated."""
    return random.Random(data)


def scratch_folder() -> Path:
    """Return a new folder, in memory where the machine offers that."""
    shared = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="odradek-fuzz-", dir=shared if os.access(shared, os.W_OK) else None))


def all_targets() -> dict[str, Target]:
    """Return every target by its name."""
    from targets import batches, cleaning, codecs, files, folders, inspection, metadata, requests, round_trips

    found = [*batches.TARGETS, *codecs.TARGETS, *files.TARGETS, *metadata.TARGETS, *folders.TARGETS]
    found += [*inspection.TARGETS, *round_trips.TARGETS, *cleaning.TARGETS, *requests.TARGETS]
    return {target.name: target for target in found}
