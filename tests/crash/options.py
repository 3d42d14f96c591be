"""What the laboratories are told on the command line: how much they do by hand, or which case alone; and where."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.store import new_folder


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("laboratories", "what the laboratories do, run by hand with -m laboratory")
    group.addoption("--interrupts", type=int, default=10_000, help="how many interrupts there are")
    group.addoption("--interrupt", default="", help="one alone: WORKLOAD,STEPS,ACTION,BYTECODE,SEED")
    group.addoption("--damage", default="", help="one alone: FOLDER,STATE,PATH,WHAT,NUMBER")
    group.addoption("--seconds", type=float, default=600, help="how long the threads work")
    group.addoption("--seed", type=int, default=2_000, help="the seed of their first round")
    group.addoption("--restarts", type=int, default=200, help="how often the writer is killed under its readers")


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where there is one: a laboratory makes hundreds of thousands of files."""
    path = new_folder()
    yield path
    shutil.rmtree(path, ignore_errors=True)
