"""The seed of all that the laboratory does at random: one for a run, printed before its first test starts.

    make laboratory SEED=4711                           a run again
    ODRADEK_SEED=4711 pytest -m laboratory tests/restarts

Each test makes numbers of its own of it. In any other run the seed is always the same.
"""

from __future__ import annotations

import os
import random
import zlib

import pytest

VARIABLE = "ODRADEK_SEED"
FIXED = "1"


def is_laboratory(config: pytest.Config) -> bool:
    """Say whether a run has the tests of the laboratory."""
    expression: str = config.option.markexpr
    return "laboratory" in expression and "not laboratory" not in expression


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the laboratory begin with other files each time: a run may be ended before it has come to the last one."""
    if is_laboratory(config):
        items.sort(key=lambda item: _number(item.nodeid.partition("::")[0]))


def _number(name: str) -> int:
    """Return a number that the seed and a name give together."""
    return zlib.crc32(f"{os.environ[VARIABLE]} {name}".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, unless it is given; the workers, and what tests start, inherit it."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(random.randrange(1 << 32)) if is_laboratory(config) else FIXED


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if is_laboratory(session.config) and reporter is not None:
        reporter.write_line(f"{VARIABLE}={os.environ[VARIABLE]}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of one test, that of the run and its name together."""
    found = _number(request.node.nodeid)
    print(f"{VARIABLE}={os.environ[VARIABLE]}: {found}")
    return found
