"""One interrupt: an exception out of a signal handler ends an operation early, and the log goes on, crashes, recovers.

work of a seed | operation |  as before, or as after?  | more work, in another thread | crash | recovered
                    ^ Ctrl-C, a time limit                                               ^ kill or power cut
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import re
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crash.case import Case, Crash, Judge, producers_of
from crash.checks import Wrong, check_live, require
from crash.interrupter import EXCEPTIONS, InterruptibleFileSystem, Outcome, count, interrupted
from crash.model import FOREVER, Event, PartitionModel, Producer, Sent
from crash.store import new_folder
from crash.workload import ProducerSide, Workload
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from peers.process import PATIENCE

T = TypeVar("T")

LONGEST_BATCH_BYTES = 450
"""`max.message.bytes`: below the smallest segment, so that many records become several batches."""
LONGEST_WAIT_S = 20.0 * PATIENCE
KILLED = "killed"
ATTEMPTS = 4
"""How often an operation is done until it is long enough to be interrupted."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """An interrupt, which its numbers tell whole.

    Attributes:
        workload: The seed of the work before it.
        steps: How many things that did.
        action: What was interrupted, out of `ACTIONS`.
        bytecode: At which of its bytecodes the signal came.
        seed: What decides all else: what was raised, whether a second one came, what followed, and the crash.
    """

    workload: int
    steps: int
    action: str
    bytecode: int
    seed: int

    def __str__(self) -> str:
        return ",".join(map(str, (self.workload, self.steps, self.action, self.bytecode, self.seed)))

    @classmethod
    def parse(cls, text: str) -> Interrupt:
        """Read what `str` gives."""
        workload, steps, action, bytecode, seed = text.split(",")
        return cls(int(workload), int(steps), action, int(bytecode), int(seed))


@dataclass(slots=True)
class Found:
    """How a case ended.

    Attributes:
        case: The case.
        outcome: How the operation ended.
        state: `before`, `after`, or `done` where it ended by itself or was done again; `killed`.
    """

    case: Interrupt
    outcome: Outcome
    state: str


@dataclass(slots=True)
class _Known:
    """One partition as it was before the operation."""

    sent: int
    start_offset: int
    end_offset: int
    producers: dict[int, Producer]


class InterruptedWorkload(Workload):
    """Random work that is interrupted, and goes on."""

    file_system = InterruptibleFileSystem
    files: InterruptibleFileSystem

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed)
        self._known: dict[TopicPartition, _Known] = {}
        self._asked_start: tuple[TopicPartition, int] | None = None

    def _config(self, *, compacted: bool) -> dict[str, str]:
        return super()._config(compacted=compacted) | {"max.message.bytes": str(LONGEST_BATCH_BYTES)}

    # -- what is interrupted

    def append(self) -> None:
        self._append_rows(self.rng.randint(1, 4), durable=self.rng.random() < 0.3)

    def append_durable(self) -> None:
        self._append_rows(self.rng.randint(1, 3), durable=True)

    def append_several_batches(self) -> None:
        self._append_rows(self.rng.randint(8, 14), durable=self.rng.random() < 0.3)

    def append_several_segments(self) -> None:
        self._append_rows(self.rng.randint(30, 60), durable=self.rng.random() < 0.3)

    def _append_rows(self, count: int, *, durable: bool) -> None:
        _, model, log = self._choose()
        self._append_to(model, log, count, durable=durable)

    def _append_to(self, model: PartitionModel, log: WritableLog, count: int, *, durable: bool) -> None:
        rows = self._rows(model, count)
        # Which of them make a batch is the log's to choose, so a crash may end it after each.
        model.sent += [Sent(self.moment, (row,)) for row in rows]
        first = log.append([row.record() for row in rows], durable=durable)
        assert first == rows[0].offset, "an offset was given twice"
        self._acknowledge(model, log, durable=durable)

    def append_as_replica(self) -> None:
        _, model, log = self._choose()
        durable, data = self.rng.random() < 0.3, b""
        for _ in range(self.rng.randint(1, 3)):
            (row,) = self._rows(model, 1)
            model.sent.append(Sent(self.moment, (row,)))
            data += build_batch([row.record()], base_offset=row.offset, partition_leader_epoch=log.leader_epoch)
        log.append_batches(data, origin=AppendOrigin.REPLICATION, durable=durable)
        self._acknowledge(model, log, durable=durable)

    def grow_topic(self) -> None:
        alive = list(self.alive)
        name = self.rng.choice(alive).topic
        total = max(partition.partition for partition in alive if partition.topic == name) + 1
        compacted = self.models[TopicPartition(name, 0)].is_compacted
        self.expect_partitions(name, range(total, total + 1), compacted=compacted)
        self.store.logs.create_partitions(name, total + 1)
        self.models[TopicPartition(name, total)].created = self.moment

    def close(self) -> None:
        self.store.logs.close()

    def open(self) -> None:
        self.store.open()

    def read(self) -> None:
        """Look up and read: none of it changes anything, and whoever is interrupted in it can do it again."""
        log = self._choose()[2]
        list(log.read(isolation="read_committed"))
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        list(log.slices(offset))
        log.offset_for_time(self.now - self.rng.choice((0, 1000, 100_000)))

    def end_transaction(self) -> None:
        found = self._in_transaction()
        if found:
            partition, producer = self.rng.choice(found)
            model, log = self.models[partition], self.store.logs[partition]
            self.end_transaction_of(producer, model, log, durable=self.rng.random() < 0.3)

    def delete_records(self) -> None:
        alive = [name for name, model in self.alive.items() if not model.is_compacted]
        if alive:
            partition = self.rng.choice(alive)
            model, log = self.models[partition], self.store.logs[partition]
            offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
            self._asked_start = partition, offset
            model.starts_asked.append(Event(self.moment, offset))
            log.delete_records(offset)
            assert log.log_start_offset == offset
            model.starts_kept.append(Event(self.moment, offset))

    def prepare(self, action: str) -> None:
        """See to it that there is something to do."""
        rng = self.rng
        if action == "delete_topic":
            self.create_topic()
        elif action == "delete_records" and all(model.is_compacted for model in self.models.values()):
            while all(model.is_compacted for model in self.models.values()):
                self.create_topic()
        elif action == "end_transaction":
            for _ in range(100):
                if self._in_transaction():
                    break
                self.append_as_producer()
        elif action == "maintain":
            for _ in range(rng.randint(3, 8)):
                rng.choice((self.append, self.append, self.append_as_producer, self.roll))()
                self.now += 60_000
        elif action == "open":
            if rng.random() < 0.5:
                self.close()
                self._note_closed()
            self.store.abandon()
        elif action in {"flush", "roll", "close"}:
            self.append_to_all(durable=False)

    # -- what becomes of it

    def take_stock(self) -> None:
        """Note how everything is before the operation."""
        self._asked_start = None
        if not self.store.is_open:
            self._known = {}
            return
        self._known = {
            partition: _Known(
                len(model.sent),
                self.store.logs[partition].log_start_offset,
                self.store.logs[partition].log_end_offset,
                producers_of(self.store.logs[partition]),
            )
            for partition, model in self.alive.items()
        }

    def reconcile(self, action: str) -> str:
        """Find out whether the operation has happened, as a whole or not at all; return `before` or `after`.

        Raises:
            Wrong: It has happened in part.
        """
        present = set(self.store.logs.topic_partitions())
        self._reconcile_topics(present)
        states = set()
        for partition, model in self.alive.items():
            if partition in present:
                states.add(self._reconcile_log(partition, model, action))
        require(len(states - {""}) <= 1, "the logs are", states)
        return "".join(states) or "before"

    def _reconcile_topics(self, present: set[TopicPartition]) -> None:
        begun: dict[str, set[bool]] = {}
        for partition, model in list(self.models.items()):
            if model.gone <= self.moment:
                require(partition not in present, partition, "was deleted and is there again")
            elif partition not in self._known and self._known:
                # Its creation was interrupted. Whether it is on the disk is known when something in it is.
                begun.setdefault(f"the creation of {partition.topic}", set()).add(partition in present)
                if partition not in present:
                    del self.models[partition], self.producers[partition]
            elif model.deleted <= self.moment:
                begun.setdefault(f"the deletion of {partition.topic}", set()).add(partition not in present)
                if partition in present:
                    model.deleted = FOREVER
            else:
                require(partition in present, partition, "is gone")
        for what, happened in begun.items():
            require(len(happened) == 1, what, "has happened to some of its partitions")
        require(not present - self.models.keys(), present - self.models.keys(), "were made by nobody")

    def _reconcile_log(self, partition: TopicPartition, model: PartitionModel, action: str) -> str:
        log, known = self.store.logs[partition], self._known.get(partition)
        start, end, state = log.log_start_offset, log.log_end_offset, ""
        if known is None:
            known = _Known(0, 0, 0, {})
        if start != known.start_offset:
            is_asked = action == "maintain" or self._asked_start == (partition, start)
            require(is_asked and known.start_offset <= start <= end, partition, "starts at", start)
        new = model.sent[known.sent :]
        ends = {known.end_offset, new[-1].next_offset} if new else {known.end_offset}
        require(end in ends, partition, "ends at", end, "neither as before nor as after:", sorted(ends))
        if new and end == new[-1].next_offset:
            state = "after"
            model.acknowledged.append(Event(self.moment, end))
        elif new:
            state = "before"
            model.ghosts.append(new)
            del model.sent[known.sent :]
            producers = producers_of(log)
            require(producers == known.producers, partition, "knows", producers, "not", known.producers, "as before")
        self.tell_producers(partition, model.producers(end))
        return state

    def _in_transaction(self) -> list[tuple[TopicPartition, ProducerSide]]:
        return [
            (partition, producer)
            for partition in self.alive
            for producer in self.producers[partition]
            if producer.in_transaction
        ]

    def check(self, seed: int) -> None:
        """Compare everything that can be read with the model."""
        for partition, model in self.alive.items():
            log = self.store.logs[partition]
            try:
                require(log.log_start_offset >= model.least_start(self.moment), "starts at", log.log_start_offset)
                check_live(log, model, producers_of(log), seed)
                require(not log.is_offline, "the log is offline")
            except Exception as error:
                raise Wrong(f"{partition}: {type(error).__name__}: {error}") from error

    def finish(self, action: str) -> None:
        """Do again what an interrupt left half done, as its caller would."""
        if action == "close":
            self.close()
            self._note_closed()
        self.store.abandon()
        if action == "open":
            # It may be open already, and nobody know of it: who was interrupted right after it has no name for it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        self.store.open()

    def _note_closed(self) -> None:
        for model in self.alive.values():
            model.durable.append(Event(self.moment, model.end_offset))
            model.created = min(model.created, self.moment)

    def _acknowledge(self, model: PartitionModel, log: WritableLog, *, durable: bool) -> None:
        super()._acknowledge(model, log, durable=durable)
        if durable:
            # What is in it is durable, and so it is itself.
            model.created = min(model.created, self.moment)

    def go_on_after(self, steps: int) -> None:
        """Append to every log, then do this and that."""
        self.append_to_all(durable=self.rng.random() < 0.5)
        for _ in range(steps):
            self.step()

    def append_to_all(self, *, durable: bool) -> None:
        for partition, model in self.alive.items():
            self._append_to(model, self.store.logs[partition], 1, durable=durable)


ACTIONS: dict[str, int] = {
    "append": 20,
    "append_durable": 10,
    "append_several_batches": 10,
    "append_several_segments": 8,
    "append_as_producer": 14,
    "append_as_replica": 8,
    "end_transaction": 10,
    "flush": 6,
    "roll": 6,
    "delete_records": 6,
    "maintain": 16,
    "create_topic": 5,
    "grow_topic": 4,
    "delete_topic": 6,
    "close": 8,
    "open": 4,
    "read": 3,
}
"""What is interrupted, and how often out of a hundred and more."""


@functools.cache
def usual_bytecodes() -> dict[str, list[int]]:
    """Return how many bytecodes each operation has had in some work that nobody interrupted; the same in every run."""
    found: dict[str, list[int]] = {action: [] for action in ACTIONS}
    for seed in range(4):
        folder = new_folder()
        work = InterruptedWorkload(folder, 9_000_000 + seed)
        try:
            work.run(10)
            for action in ACTIONS:
                work.prepare(action)
                found[action].append(count(getattr(work, action)))
                if action == "close":
                    work.store.abandon()
                    work.store.open()
            work.store.abandon()
        finally:
            work.files.close()
            shutil.rmtree(folder, ignore_errors=True)
    return found


def kind_of(error: Wrong) -> str:
    """Return what kind of thing went wrong: the same for many cases."""
    lines = str(error).splitlines()
    action = lines[0].split(",")[2]
    text = re.sub(r"Case\([^)]*?crash='(\w+)'[^)]*\)", r"after a \1", lines[2])
    text = re.sub(r"/[^ ]*/|Wrong: |topic\d+(-\d)?:? ?", "", text)
    text = re.sub(r"\[.*\]|\{.*\}|Row\(.*\)", "...", text)
    return f"{action}: {re.sub(r'[0-9]+', 'N', text)[:90]}"


def case_of(seed: int) -> Interrupt:
    """Return the case of a seed: which operation, and where in it."""
    rng = random.Random(seed)
    action = rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
    # A little more than usual: then it ends by itself at times.
    bytecode = rng.randint(1, rng.choice(usual_bytecodes()[action]) * 11 // 10)
    return Interrupt(rng.randrange(1 << 20), rng.randint(2, 16), action, bytecode, rng.getrandbits(32))


def run_case(case: Interrupt, folder: Path) -> Found:
    """Do the work, interrupt it, go on, crash, recover.

    Raises:
        Wrong: Something does not hold; with the case, what interrupted it where, and the history of the disk.
    """
    rng = random.Random(case.seed)
    work, outcome = InterruptedWorkload(folder / "live", case.workload), Outcome()
    try:
        work.run(case.steps)
        require(not work.offline, "the work before went wrong")
        bytecode = case.bytecode
        for _ in range(ATTEMPTS):
            work.prepare(case.action)
            work.take_stock()
            outcome = _interrupt(work, case.action, bytecode, rng)
            if outcome.raised or outcome.error:
                break
            # It ended before; the next one is about as long.
            bytecode = rng.randint(1, max(1, outcome.bytecodes))
            if case.action in {"close", "open"}:
                work.finish(case.action)
        require(outcome.arrived or not outcome.error, outcome.kind and outcome.kind.__name__, "came instead")
        # What was raised within the standard library may have been caught there.
        is_caught = outcome.is_ignored or any(place.library for place in outcome.where)
        require(outcome.arrived or not outcome.raised or is_caught, "the exception did not arrive")
        state = _elsewhere(lambda: _look_at(work, case.action, outcome, rng))
        moment = work.moment
        if state != KILLED:
            _elsewhere(lambda: _go_on(work, rng))
        _elsewhere(work.store.abandon)
        operations = moment if rng.random() < 0.3 else rng.randint(moment, work.moment)
        crash: Crash = "kill" if rng.random() < 0.4 else "power"
        crashed = Case(case.workload, case.steps, operations, crash, rng.getrandbits(32))
        _elsewhere(lambda: Judge(work, folder / "after").judge(crashed, work.files.replay(operations)))
        return Found(case, outcome, state)
    except Exception as error:
        if not isinstance(error, Stuck):
            with contextlib.suppress(Exception):
                _elsewhere(work.store.abandon)
        told = (
            f"--interrupt {case}\n{outcome.raised} raised, in {', then in '.join(map(str, outcome.where)) or 'nothing'}"
        )
        raise Wrong(f"{told}\n{type(error).__name__}: {error}\nthe caller got: {outcome.error or 'nothing'}") from error
    finally:
        work.files.close()
        shutil.rmtree(folder / "live", ignore_errors=True)


def _interrupt(work: InterruptedWorkload, action: str, bytecode: int, rng: random.Random) -> Outcome:
    again = rng.choice((0, 0, 0, rng.randint(1, 12), rng.randint(1, 400)))
    exceptions = [rng.choice(EXCEPTIONS) for _ in range(2)]
    with warnings.catch_warnings():
        # Who is interrupted in `open` has nothing to close: that it is let go of then is said by a warning.
        warnings.simplefilter("ignore", ResourceWarning)
        return interrupted(getattr(work, action), bytecode, exceptions, again=again, in_library=rng.random() < 0.25)


def _look_at(work: InterruptedWorkload, action: str, outcome: Outcome, rng: random.Random) -> str:
    state = "done"
    if action == "close" and rng.random() < 0.3:
        # Killed before it could be closed again.
        return KILLED
    if action in {"open", "close"}:
        work.finish(action)
    elif outcome.arrived:
        state = work.reconcile(action)
    work.check(rng.getrandbits(32))
    return state


def _go_on(work: InterruptedWorkload, rng: random.Random) -> None:
    work.go_on_after(rng.randint(0, 8))
    work.check(rng.getrandbits(32))


class Stuck(Wrong):
    """What never ends, since it waits for a lock that an interrupted thread has left behind."""


def _elsewhere(action: Callable[[], T]) -> T:
    """Do something in another thread: a lock that was left behind keeps nobody out who has it already.

    Raises:
        Stuck: It takes too long.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONGEST_WAIT_S)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        raise Stuck("waits for ever:\n" + "".join(traceback.format_stack(frame)))
    if errors:
        raise errors[0]
    return results[0]
