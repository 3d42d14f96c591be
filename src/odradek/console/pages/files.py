"""The files of a log directory, and their verification, whose findings are shown as they are made."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.console.console import Console, console_of, text_of
from odradek.console.drawing import DRAWN_PARTITIONS, segments_timeline
from odradek.console.parameters import Parameters
from odradek.console.source import Source
from odradek.console.streaming import Streamed
from odradek.errors import OdradekError
from odradek.inspection.finding import Finding
from odradek.inspection.log_files import LogFile, classify, locate, partition_folder
from odradek.inspection.verification.run import Verification
from odradek.plots import largest_bars
from odradek.printable import size_text
from odradek.storage.names import TopicPartition

_MARK = "<!-- what is found -->"
_STEP_S = 0.2
_PROGRESS_S = 0.5
_MOST_FINDINGS = 1000
_MOST_FILES = 2000


async def _files(request: Request) -> Response:
    console, asked = console_of(request), Parameters(request.query_params)
    return await console.page("files.html", lambda: _listed(_folder(console.source), console.source, asked))


def _folder(source: Source) -> Path:
    if source.folder is None:
        raise HTTPException(404, "A broker does not show its files: open its log directory.")
    return source.folder


def _listed(folder: Path, source: Source, asked: Parameters) -> dict[str, Any]:
    topics = source.topics()
    names = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    words = asked.text("q")
    names = [name for name in names if words.lower() in str(name).lower()]
    listed, page, pages = asked.paged(names)
    shown, left, sizes = [], _MOST_FILES, dict[str, int]()
    for name in listed:
        held = partition_folder(folder / str(name))
        rows = [_row(file) for file in held.files[:left]]
        shown.append((str(name), rows, len(held.files), held.problem))
        left -= len(rows)
        for _, kind, size in rows:
            sizes[kind] = sizes.get(kind, 0) + (size or 0)
    root = [file for file in map(classify, sorted(folder.iterdir())) if file is not None]
    return {
        "root": [_row(file) for file in root],
        "shown": shown,
        "found": len(names),
        "asked": asked,
        "words": words,
        "page": page,
        "pages": pages,
        "verified": source.verified,
        "timeline": segments_timeline(folder, listed),
        "drawn": min(len(listed), DRAWN_PARTITIONS),
        "sizes": largest_bars("Sizes of the files on this page, by kind", sizes, size_text),
    }


def _row(file: LogFile) -> tuple[str, str, int | None]:
    try:
        size = file.path.stat().st_size
    except OSError:
        # It was deleted since the folder was listed.
        size = None
    return file.path.name, str(file.kind), size


# -- verify


class _StoppedError(Exception):
    """The reader has gone."""


class _Run:
    """One verification, in a thread of its own; `events` has its findings, and None at the end."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.is_stopped = False
        self.is_whole = False
        self.error: str | None = None
        self.findings: list[Finding] = []
        self.count = 0
        self.events: queue.SimpleQueue[Finding | None] = queue.SimpleQueue()
        self.verification = Verification(each=self._check)
        self._source = source
        self._folder = folder
        self._thread = threading.Thread(target=self._run, name="odradek-verify", daemon=True)
        self._thread.start()

    def _check(self) -> None:
        if self.is_stopped:
            raise _StoppedError

    def _run(self) -> None:
        try:
            for finding in self.verification.findings(locate(self._folder)):
                self._check()
                self.count += 1
                if self.count <= _MOST_FINDINGS:
                    self.findings.append(finding)
                    self.events.put(finding)
            self.is_whole = True
        except _StoppedError:
            pass
        except (OdradekError, OSError) as error:
            self.error = text_of(error)
        finally:
            self._source.verified = time.time(), self.findings, self.is_whole
            self.events.put(None)

    def stop(self) -> None:
        """End it, at the next batch."""
        self.is_stopped = True
        self._thread.join()

    def found(self) -> Iterator[list[Finding] | None]:
        """Yield what was found since the last step, and None at the end."""
        while True:
            new: list[Finding] = []
            try:
                one = self.events.get(timeout=_STEP_S)
                while one is not None:
                    new.append(one)
                    one = self.events.get_nowait()
                yield new
                yield None
                return
            except queue.Empty:
                yield new


async def _verify(request: Request) -> Response:
    console = console_of(request)
    folder = _folder(console.source)
    page = await console.work.run(lambda: console.render("verify.html", {"mark": _MARK}))
    return Streamed(console.work, _verified(console, folder, page), "text/html")


def _verified(console: Console, folder: Path, page: str) -> Generator[str]:
    head, _, foot = page.partition(_MARK)
    yield head
    run, told_s = _Run(console.source, folder), time.monotonic()
    try:
        for new in run.found():
            parts = [console.render("found.html", {"findings": new})] if new else []
            if time.monotonic() - told_s > _PROGRESS_S:
                told_s = time.monotonic()
                state = {"files": run.verification.files, "read_bytes": run.verification.read_bytes}
                parts.append(console.render("verify_progress.html", state | {"found": run.count}))
            yield "".join(parts)
    finally:
        run.stop()
    yield console.render("verify_end.html", {"run": run, "shown": len(run.findings)}) + foot


ROUTES = [Route("/files", _files), Route("/files/verify", _verify)]
