"""The walks of ARCHITECTURE.md: which files a call goes through, as the page says, and as it really goes."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import odradek

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = Path(odradek.__file__).parent
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}

Trace = set[tuple[str, ...]]
"""The files of the stack at each call, the outermost first."""

CALLED_BACK = {
    # An answer goes back to the channel that received the request.
    ("broker/connection.py", "broker/channels.py"),
    # A partition runs what it was given when its log is open.
    ("broker/partitions.py", "broker/api/k01_fetch.py"),
    ("broker/partitions.py", "broker/server.py"),
    # A shard runs the timers of its members.
    ("broker/groups/shard.py", "broker/groups/membership.py"),
}
"""The calls back up that the page names."""


class Step(NamedTuple):
    """A file of a walk, and those that it calls on the way."""

    file: str
    asked: list[str]


def walks() -> dict[str, list[Step]]:
    """Return the walks by their headings."""
    section = re.search(r"^## Walks$(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    found = {}
    for part in section[1].split("\n### ")[1:]:
        lines = re.findall(r"^\d+\. (.*)$", part, re.MULTILINE)
        files = [re.findall(r"`([a-z0-9_/]+\.py)`", line) for line in lines]
        found[part.partition("\n")[0]] = [Step(first, rest) for first, *rest in files]
    return found


def layer(file: str) -> tuple[int, int]:
    """Return how far down a file is: in the layers of the package, and in those of the storage."""

    def place(contract: str, name: str) -> int:
        layers = CONTRACTS[contract]["layers"]
        return next(number for number, line in enumerate(layers) if name.removesuffix(".py") in line.split(" | "))

    outer, *inner = file.split("/")
    inside = place("arrows point down within storage", inner[0]) if outer == "storage" else 0
    return place("arrows point down", outer), inside


@contextmanager
def traced(trace: Trace) -> Iterator[None]:
    """Note the files of the package that call one another in this thread."""

    def note(frame: FrameType | None, event: str, _: object) -> None:
        files: list[str] = []
        while event == "call" and frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(prefix) and (not files or files[-1] != path[len(prefix) :]):
                files.append(path[len(prefix) :])
            frame = frame.f_back
        trace.add(tuple(reversed(files)))

    prefix = f"{PACKAGE}/"
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def trace_of(action: Callable[[], object]) -> Trace:
    """Return the calls of an action in this thread."""
    trace: Trace = set()
    with traced(trace):
        action()
    return trace


def _calls(trace: Trace, files: set[str]) -> set[tuple[str, str]]:
    """Return which of some files calls which, whatever is between them."""
    stacks = ([file for file in stack if file in files] for stack in trace)
    return {(caller, called) for stack in stacks for caller, called in pairwise(stack) if caller != called}


def check_walk(name: str, trace: Trace) -> None:
    """Check that calls went through the files of a walk, in its order, and that none went up but as the page says."""
    # Compiled code is not traced.
    walk = [step for step in walks()[name] if not step.file.startswith("records/kernels")]
    order = [step.file for step in walk]
    calls = _calls(trace, set(order))
    up = {(caller, called) for caller, called in calls if order.index(caller) > order.index(called)}
    asked = {(step.file, file) for step in walk for file in step.asked if not file.startswith("records/kernels")}
    missing = {pair for pair in pairwise(order) if pair not in calls}
    missing |= {pair for pair in asked if pair not in _calls(trace, {*order, pair[1]})}
    assert not missing, f"{name}: these do not call each other: {missing}"
    assert up <= CALLED_BACK, f"{name}: these call a file above them: {up}"
