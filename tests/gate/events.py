"""Writes the outcome of each test as it comes, one line of JSON each, and keeps the files of those that failed.

    FOLDER/events.jsonl    {"collected": 2101}
                           {"id": "tests/...", "started": true}
                           {"id": "tests/...", "when": "call", "outcome": "failed", "message": "...", ...}
                           {"id": "tests/...", "finished": true, "seconds": 1.25}
                           {"exit": 1}
    FOLDER/files/ID/       the temporary folder of a failed test
    FOLDER/files/servers/  what the servers of its process had printed by the last failure

A run that is killed leaves no summary, but these lines. pytest removes the folders of failed tests three runs later,
and the tests start some themselves: so they are copied at once, by the process that ran the test.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from gate.outcomes import CRASHED
from peers.ledger import RecordsError
from peers.process import ServerEndedError

MOST_BYTES = 64 << 20
"""How much is kept of all failed tests together."""
NOT_KEPT = {".index", ".timeindex"}
"""Preallocated: mostly zeros, of 10 MB each."""
MESSAGE_CHARACTERS = 300
OUTSIDE = re.compile(r"tests/(interop|spark)/")
DOCS = "tests/unit/test_docs.py::"
FINAL = (RecordsError, ServerEndedError)
"""Errors that no second run excuses."""
# What the process that ran a test tells of it.
IS_FINAL = ("is_final", True)
OUTSIDE_DOCS = ("is_outside", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    # As `--told=FOLDER`: the folder alone would be taken for that of the tests, before this option is known.
    parser.addoption("--told", default="", metavar="FOLDER", help="write each outcome there as it comes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.told:
        folder = config.rootpath / config.option.told
        if hasattr(config, "workerinput"):
            config.pluginmanager.register(Files(folder))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            config.pluginmanager.register(Events(folder))
            if not config.option.numprocesses:
                config.pluginmanager.register(Files(folder))


class Events:
    """Writes the lines, in the process that hears of all tests."""

    def __init__(self, folder: Path) -> None:
        self._file: TextIO = (folder / "events.jsonl").open("w", encoding="utf-8")
        self._collected = -1
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def _write(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def _is_collected(self, count: int) -> None:
        # Each worker collects the same tests.
        if count != self._collected:
            self._collected = count
            self._write(collected=count)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._is_collected(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._is_collected(len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(id=nodeid, started=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._write(
                id=report.nodeid,
                when=report.when,
                outcome="failed",
                message=message_of(report),
                is_final=is_final(report),
                is_outside=OUTSIDE.match(report.nodeid) is not None or OUTSIDE_DOCS in report.user_properties,
            )
        elif report.when == "call" or report.skipped:
            self._write(id=report.nodeid, when=report.when, outcome=report.outcome)
        if report.when == "teardown":
            self._write(id=report.nodeid, finished=True, seconds=round(self._seconds.pop(report.nodeid), 2))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module that skips itself is one that nobody misses.
        if report.failed or (report.skipped and "ODRADEK_GATE" in os.environ):
            self._write(id=report.nodeid, when="collect", outcome="failed", message=message_of(report))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._write(id=f"worker {node.gateway.id}", when=CRASHED, outcome="failed", message=printable(str(error)))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(exit=int(exitstatus))
        self._file.close()


class Files:
    """Looks at failed tests in the process that ran them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            if any(isinstance(error, FINAL) for error in errors_of(call.excinfo.value)):
                report.user_properties.append(IS_FINAL)
            if item.nodeid.startswith(DOCS) and any(map(item.get_closest_marker, ("interop", "spark"))):
                report.user_properties.append(OUTSIDE_DOCS)
            with contextlib.suppress(OSError, ValueError):
                self._keep(item)
        return report

    def _keep(self, item: pytest.Item) -> None:
        target = self._folder / re.sub(r"[^\w.\[\]-]+", "_", item.nodeid, flags=re.ASCII)[-120:]
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        of_test = files_below(folder) if isinstance(folder, Path) else iter(())
        base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        printed = (path for path in files_below(base) if path.suffix == ".out")
        left = MOST_BYTES - size_of(self._folder)
        # What servers have printed goes first, and is there once, with its newest lines.
        copies = itertools.chain(
            ((path, self._folder / "servers" / path.relative_to(base)) for path in printed),
            ((path, target / path.relative_to(base)) for path in of_test if path.suffix not in NOT_KEPT),
        )
        for path, copy in copies:
            try:
                size = path.stat().st_size
                if size > left:
                    continue
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
                left -= size
            except OSError:
                # Its server goes on meanwhile.
                continue


def files_below(folder: Path) -> Iterator[Path]:
    """Return the regular files of a folder, no links, sockets or pipes."""
    for root, _, names in os.walk(folder, onerror=lambda _: None):
        for name in names:
            path = Path(root) / name
            if path.is_file() and not path.is_symlink():
                yield path


def size_of(folder: Path) -> int:
    """Return how many bytes the files of a folder have."""
    return sum(path.stat().st_size for path in files_below(folder))


def errors_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, those that it is made of, and those that led to it."""
    left, seen = [error], set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


def message_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return in one line what a test failed of."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return printable(text)


def printable(text: str) -> str:
    """Return a text in one line, cut short, without what would move a terminal's cursor."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())[:MESSAGE_CHARACTERS]


def is_final(report: pytest.TestReport) -> bool:
    """Say whether no second run excuses a failure: by its error, or by that of a process that it started."""
    return IS_FINAL in report.user_properties or RecordsError.__name__ in f"{report.longreprtext}{report.capstderr}"
