"""What is asked of a folder, what it has to answer, and who tells of what is wrong with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

from click.testing import CliRunner

import odradek
from flips.damage import METADATA, Damage
from flips.folders import START_MS, Folder, Row, Truth, row_of, tree_of
from odradek.cli.app import main
from odradek.errors import OdradekError
from odradek.records.isolation import Isolation
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition

Mode = Literal["r", "a"]
MODES: tuple[Mode, ...] = ("r", "a")


class Verdict(NamedTuple):
    """How a folder dealt with damage.

    Attributes:
        name: One of `VERDICTS`.
        reason: Which answer is not right, and who told.
    """

    name: str
    reason: str = ""

    @property
    def is_bad(self) -> bool:
        return self.name in {"wrong", "raw"}


VERDICTS = {
    "right": "every answer is right",
    "raised": "an error of ours in the place of some, the others are right",
    "told": "some are wrong, and the folder says that something is",
    "verified": "some are wrong, and `odradek verify` says that something is",
    "believed": "a log start offset is another one that it might well be, and all answers go by it, as Kafka's would",
    "wrong": "some are wrong, and nobody says so",
    "raw": "an error that is none of ours",
}

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
TIMES = (START_MS, START_MS + 4200, START_MS + 9999, START_MS + 50_000)

Answers = dict[tuple[object, ...], object]


class Raised(str):
    """An error of ours in the place of an answer."""


class Raw(str):
    """An error that is none of ours in the place of an answer."""


def _ask(question: Callable[[], object]) -> object:
    try:
        return question()
    except OdradekError as error:
        return Raised(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Raw(f"{type(error).__name__}: {error}")


def _rows(log: Any, isolation: Isolation) -> list[Row]:
    return [row_of(record) for record in log.read(isolation=isolation)]


def _first(log: Any, offset: int) -> Row | None:
    record = next(log.read(offset), None)
    return None if record is None else row_of(record)


def _scanned(path: Path, topics: list[str], isolation: Isolation) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for batch in odradek.scan(path, topics, isolation=isolation):
        for row in batch.to_pylist():
            headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
            timestamp = -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
            found.setdefault(row["topic"], []).append((row["offset"], timestamp, row["key"], row["value"], headers))
    return found


def _offsets(truth: Truth) -> Iterable[int]:
    step = max(1, (truth.end - truth.start) // 7)
    return {*range(truth.start, truth.end, step), max(truth.start, truth.end - 1), truth.end}


def expected(truths: dict[TopicPartition, Truth], names: list[str], asked: dict[TopicPartition, Truth]) -> Answers:
    """Return what a folder has to answer.

    Args:
        truths: What is in it.
        names: Its topics.
        asked: By what the questions were chosen.
    """
    answers: Answers = {("topics",): names}
    committed: dict[str, dict[str, list[Row]]] = {isolation: {} for isolation in ISOLATIONS}
    for (topic, partition), truth in truths.items():
        stable = max(truth.start, truth.stable)
        rows = [row for row in truth.rows if row[0] >= truth.start]
        kept = [row for row in rows if row[0] < stable and row[0] not in truth.hidden]
        answers[topic, partition, "offsets"] = truth.start, truth.end, stable
        for isolation, given in zip(ISOLATIONS, (rows, kept), strict=True):
            answers[topic, partition, isolation] = given
            if given:
                committed[isolation][topic] = given
        for offset in _offsets(asked[TopicPartition(topic, partition)]):
            answers[topic, partition, "from", offset] = next((row for row in rows if row[0] >= offset), None)
        for time in TIMES:
            found = next((offset for offset, at in truth.times if offset >= truth.start and at >= time), None)
            answers[topic, partition, "time", time] = found
            answers[topic, partition, "time, committed", time] = None if found is None or found >= stable else found
    return answers | {("scan", isolation): found for isolation, found in committed.items()}


def asked(logs: Any, path: Path, truths: dict[TopicPartition, Truth]) -> Answers:
    """Ask a folder."""
    answers: Answers = {("topics",): _ask(lambda: _names(logs))}
    for name, truth in truths.items():
        log = _ask(partial(logs.__getitem__, name))
        if isinstance(log, Raised | Raw):
            answers[*name, "offsets"] = log
        else:
            answers |= {(*name, *key): _ask(question) for key, question in _questions(log, truth)}
    topics = sorted({name.topic for name in truths})
    return answers | {("scan", isolation): _ask(partial(_scanned, path, topics, isolation)) for isolation in ISOLATIONS}


def _names(logs: Any) -> list[str]:
    return sorted(str(name) for name in logs.topic_partitions() if name.topic != CLUSTER_METADATA_TOPIC)


def _questions(log: Any, truth: Truth) -> Iterator[tuple[tuple[object, ...], Callable[[], object]]]:
    yield ("offsets",), lambda: (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    for isolation in ISOLATIONS:
        yield (isolation,), partial(_rows, log, isolation)
    for offset in _offsets(truth):
        yield ("from", offset), partial(_first, log, offset)
    for time in TIMES:
        for kind, isolation in zip(("time", "time, committed"), ISOLATIONS, strict=True):
            yield (kind, time), partial(log.offset_for_time, time, isolation=isolation)


def tellings(logs: Any, truths: dict[TopicPartition, Truth], path: Path) -> set[str]:
    """Return everything that a folder says of what is wrong with it."""
    if isinstance(logs, Raised | Raw):
        return set()
    told = [*map(str, getattr(logs, "problems", ())), *(f"stray: {path}" for path in getattr(logs, "strays", ()))]
    report = getattr(logs, "report", None)
    if report is not None:
        told += map(str, report.actions)
        told += map(str, getattr(report, "problems", ()))
    for name in truths:
        damage = _ask(partial(_damage, logs, name))
        told += damage if isinstance(damage, list) else []
    return {text.replace(str(path), "") for text in told}


def _damage(logs: Any, name: TopicPartition) -> list[str]:
    return [str(damage) for damage in logs[name].damage]


def verified(path: Path) -> set[str]:
    """Return what `odradek verify` finds."""
    result = CliRunner().invoke(main, ["verify", str(path)])
    return {line.replace(str(path), "") for line in result.stdout.splitlines()}


class Examination:
    """Asks one folder after each damage; a context manager.

    Args:
        folder: The folder.
        path: Where copies of it are made.

    Raises:
        AssertionError: It does not answer as it should when nothing is wrong with it; or opening it to read has
            changed it.
    """

    def __init__(self, folder: Folder, path: Path) -> None:
        self.folder = folder
        self._path = path
        # Nothing is written there by who reads, so one copy serves all.
        self._read = path / "read"
        folder.write(self._read)
        self._number = 0
        self._names = sorted(map(str, folder.truths))
        self._told: dict[str, set[str]] = {}
        for mode in MODES:
            with self._opened(mode, {}) as (logs, root):
                told, answers = tellings(logs, folder.truths, root), self._asked(logs, root, folder.truths)
                wanted = expected(folder.truths, self._names, folder.truths)
                wrong = {key: (answers.get(key), value) for key, value in wanted.items() if answers.get(key) != value}
                assert not wrong, f"{folder.name}, {folder.state}, mode {mode}: {wrong}"
                self._told[mode] = told
        self._verified = verified(self._read)

    def __enter__(self) -> Examination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = tree_of(self._read)
        shutil.rmtree(self._path)
        assert left == self.folder.tree or error is not None, "who only reads has changed the folder"

    def judge(self, damage: Damage) -> dict[str, Verdict]:
        """Damage the folder, and ask it; return for each mode how it dealt with it."""
        data = self.folder.tree[damage.path]
        assert data is not None
        changed = {damage.path: damage.applied(data)}
        return {mode: self._judge(damage, changed, mode) for mode in MODES}

    def _judge(self, damage: Damage, changed: dict[str, bytes | None], mode: Mode) -> Verdict:
        truths = self.folder.truths
        if damage.partition in truths:
            truths = {damage.partition: truths[damage.partition]}
        wanted = expected(truths, self._names, truths)
        # The next change would go where the good part ends: who appends has to say so, and not of what follows from it.
        is_metadata = mode == "a" and damage.path.startswith(METADATA)
        with self._opened(mode, changed) as (logs, root):
            answers = self._asked(logs, root, truths)
            verdict = _compare(answers, wanted)
            if verdict.name != "wrong":
                return verdict
            new = tellings(logs, truths, root) - self._told[mode]
            if is_metadata:
                new = {text for text in new if not text.startswith("stray: ")}
            if new:
                return Verdict("told", f"{verdict.reason}; told: {min(new)}")
            believed = _believed(damage, root, truths)
            if believed is not None:
                wanted = expected(believed, self._names, truths)
                # What was asked for below the log start is an error then.
                if _compare(answers, wanted).name in {"right", "raised"}:
                    verdict = verdict._replace(name="believed")
        if is_metadata:
            return verdict
        with self._damaged(changed):
            found = verified(self._read) - self._verified
        return Verdict("verified", f"{verdict.reason}; verify: {min(found)}") if found else verdict

    def _asked(self, logs: Any, root: Path, truths: dict[TopicPartition, Truth]) -> Answers:
        if isinstance(logs, Raised | Raw):
            return {("topics",): logs}
        return asked(logs, root, truths)

    @contextmanager
    def _opened(self, mode: Mode, changed: dict[str, bytes | None]) -> Iterator[tuple[Any, Path]]:
        with self._damaged(changed) if mode == "r" else self._copied(changed) as root:
            logs: Any = _ask(lambda: odradek.open(root, mode=mode))
            try:
                yield logs, root
            finally:
                if not isinstance(logs, Raised | Raw):
                    # What a damaged folder makes of it is not asked here.
                    _ask(logs.close)

    @contextmanager
    def _damaged(self, changed: dict[str, bytes | None]) -> Iterator[Path]:
        """Damage the copy that is read."""
        for name, data in changed.items():
            if data is None:
                (self._read / name).unlink()
            else:
                (self._read / name).write_bytes(data)
        try:
            yield self._read
        finally:
            for name in changed:
                (self._read / name).write_bytes(self.folder.tree[name] or b"")

    @contextmanager
    def _copied(self, changed: dict[str, bytes | None]) -> Iterator[Path]:
        self._number += 1
        root = self._path / f"copy-{self._number}"
        self.folder.write(root, changed)
        try:
            yield root
        finally:
            shutil.rmtree(root)


def _believed(damage: Damage, root: Path, truths: dict[TopicPartition, Truth]) -> dict[TopicPartition, Truth] | None:
    """Return what is in the folder if a log start offset that is another one now is believed, as Kafka does."""
    if damage.path != LOG_START_OFFSET_CHECKPOINT:
        return None
    try:
        starts = read_offset_checkpoint(root / LOG_START_OFFSET_CHECKPOINT)
    except OdradekError:
        return None
    if not starts.keys() <= truths.keys():
        return None
    believed = {}
    for name, truth in truths.items():
        start = max(truth.first, starts.get(name, 0))
        if start > truth.end:
            return None
        believed[name] = replace(truth, start=start)
    return believed


def _compare(answers: Answers, wanted: Answers) -> Verdict:
    wrong = []
    raised = ""
    for key, answer in answers.items():
        if isinstance(answer, Raw):
            return Verdict("raw", f"{key}: {answer}")
        if isinstance(answer, Raised):
            raised = raised or f"{key}: {answer}"
        elif answer != wanted.get(key):
            wrong.append(f"{key}: {_short(answer)} instead of {_short(wanted.get(key))}")
    if wrong:
        return Verdict("wrong", f"{len(wrong)} answers, as {wrong[0]}")
    return Verdict("raised", raised) if raised else Verdict("right")


def _short(answer: object) -> str:
    if isinstance(answer, list) and len(answer) > 3:
        return f"{len(answer)} from {answer[0]!r:.40} on"
    return f"{answer!r:.120}"
