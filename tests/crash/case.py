"""One crash: a disk is made from a workload's history, opened again, and compared with the model."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crash.checks import (
    Wrong,
    check_among_ghosts,
    check_log,
    check_producers,
    first_difference,
    require,
    row_of,
    rows_of,
)
from crash.model import PartitionModel, Producer, Row
from crash.store import Store, files_of, unrecorded
from crash.workload import Workload
from odradek.errors import OdradekError
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from odradek.testing.faults import Disk, FaultyFileSystem, flip_bits

Crash = Literal["kill", "power"]


@dataclass(frozen=True, slots=True)
class Case:
    """A crash, which its numbers tell whole.

    Attributes:
        workload: The seed of the work.
        steps: How many things it did.
        operations: How many operations of the file system were done when the crash came.
        crash: Whether the program was killed or the power cut.
        seed: What decides all that is left to chance from then on.
    """

    workload: int
    steps: int
    operations: int
    crash: Crash
    seed: int


def producers_of(log: WritableLog) -> dict[int, Producer]:
    return {
        state.producer_id: Producer(
            state.producer_epoch,
            state.last_sequence if state.batches else -1,
            state.last_data_offset if state.batches else -1,
            state.current_transaction_first_offset,
        )
        for state in log.producers.producers.values()
    }


class Judge:
    """Opens what crashes leave, in folders of its own.

    Args:
        work: What was done.
        folder: Where disks are made; emptied after each.
    """

    def __init__(self, work: Workload, folder: Path) -> None:
        self.work = work
        self.folder = folder
        self._numbers = 0

    def judge(self, case: Case, disk: Disk) -> None:
        """Hold one crash against the model.

        Raises:
            Wrong: With the case and the history.
        """
        with self._judging(case):
            self._judge(case, disk)

    def judge_flips(self, case: Case, disk: Disk) -> None:
        """Kill the program and flip bits on the disk: all that is read then was appended, or reading is refused.

        Raises:
            Wrong: With the case and the history.
        """
        with self._judging(case):
            root = self._new_folder()
            disk.kill(root)
            rng = random.Random(case.seed)
            paths = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
            for path in rng.sample(paths, min(len(paths), rng.randint(1, 3))):
                flip_bits(path, case.seed, count=rng.randint(1, 4))
            with contextlib.suppress(OdradekError):
                self._read_damaged(root)

    @contextlib.contextmanager
    def _judging(self, case: Case) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise Wrong(f"{case}: {type(error).__name__}: {error}\n{self.work.files}") from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read_damaged(self, root: Path) -> None:
        store = Store(root, FaultyFileSystem(root), self.work.clock)
        try:
            store.open()
            for partition in store.logs.topic_partitions():
                model = self.work.models.get(partition)
                # Base offset and leader epoch of a batch are not under its checksum: of the offset nothing is asked.
                sent = {row[1:] for row in model.rows(0, model.end_offset)} if model is not None else set()
                with contextlib.suppress(OdradekError):
                    for record in store.logs[partition].read():
                        require(row_of(record)[1:] in sent, partition, "invented", record)
        finally:
            store.abandon()

    def _new_folder(self) -> Path:
        self._numbers += 1
        path = self.folder / str(self._numbers)
        path.mkdir(parents=True)
        return path

    def _judge(self, case: Case, disk: Disk) -> None:
        root = self._new_folder()
        history = self.work.files.history
        if case.crash == "kill":
            torn = history[case.operations] if case.operations < len(history) else None
            disk.kill(root, torn, case.seed)
        else:
            disk.cut_power(root, case.seed)
        rng = random.Random(case.seed)
        files = FaultyFileSystem(root, case.seed)
        first = self._recover(case, root, files)
        # A crash while it recovers: what is found then is recovered as well.
        if rng.random() < 0.3 and files.history:
            cut = rng.randrange(len(files.history))
            again = self._new_folder()
            interrupted = files.replay(cut)
            if rng.random() < 0.5:
                interrupted.kill(again, files.history[cut], case.seed)
            else:
                interrupted.cut_power(again, case.seed)
            self._recover(case, again, FaultyFileSystem(again, case.seed)).abandon()
        first.abandon()
        if first.was_clean:
            # Nothing was recovered so far: after a stop in order there is nothing to recover.
            self._recover(case, root, FaultyFileSystem(root, case.seed)).abandon()
        before = files_of(root)
        second = self._recover(case, root, FaultyFileSystem(root, case.seed))
        after = files_of(root)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path, 0) != after.get(path, 0))
        require(not changed, "a second recovery changed", changed)
        self._go_on(second, rng)

    def _alive(self, operations: int) -> dict[TopicPartition, PartitionModel]:
        return {
            partition: model
            for partition, model in self.work.models.items()
            if model.created <= operations and model.deleted > operations
        }

    def _recover(self, case: Case, root: Path, files: FaultyFileSystem) -> Store:
        store = Store(root, files, self.work.clock)
        store.open()
        for partition, model in self._alive(case.operations).items():
            try:
                self._check(store.logs[partition], model, case)
            except Exception as error:
                raise Wrong(f"{partition}: {type(error).__name__}: {error}") from error
        for partition, model in self.work.models.items():
            if model.gone <= case.operations:
                require(partition not in store.logs.topic_partitions(), partition, "was deleted and is there again")
        require(not unrecorded(files), "written past the file system:", unrecorded(files))
        return store

    def _check(self, log: WritableLog, model: PartitionModel, case: Case) -> None:
        power_cut = case.crash == "power"

        def check(model: PartitionModel) -> None:
            is_whole = check_log(
                log,
                model,
                case.operations,
                power_cut=power_cut,
                seed=case.seed,
                may_have_holes=power_cut and self.work.store.flushes_late,
            )
            if is_whole:
                check_producers(log, producers_of(log), model)

        try:
            check(model)
        except Wrong:
            for other in model.with_ghosts(case.operations, power_cut=power_cut):
                with contextlib.suppress(Wrong):
                    check(other)
                    return
            if not (power_cut and check_among_ghosts(log, model, case.operations)):
                raise

    def _go_on(self, store: Store, rng: random.Random) -> None:
        """Append to what was recovered, close it in order, and open it again."""
        expected: dict[TopicPartition, list[Row]] = {}
        known: dict[TopicPartition, dict[int, Producer]] = {}
        for partition in store.logs.topic_partitions():
            log = store.logs[partition]
            rows = rows_of(log, may_have_holes=self.work.store.flushes_late)
            rows.append(Row(log.log_end_offset, self.work.now, b"key-0", b"after"))
            log.append([Record(rows[-1].key, rows[-1].value, timestamp=self.work.now)], durable=rng.random() < 0.5)
            for producer_id, producer in producers_of(log).items():
                if producer.last_sequence >= 0:
                    rows.append(self._append_next(log, producer_id, producer))
            expected[partition], known[partition] = rows, producers_of(log)
        store.close()
        store.open()
        for partition, wanted in expected.items():
            log = store.logs[partition]
            found = rows_of(log, may_have_holes=self.work.store.flushes_late)
            require(found == wanted, partition, "after a clean stop:", first_difference(found, wanted))
            require(producers_of(log) == known[partition], partition, "has other producers after a clean stop")
        require(not store.logs.report, "was not closed in order:", *store.logs.report.actions)
        store.abandon()

    def _append_next(self, log: WritableLog, producer_id: int, producer: Producer) -> Row:
        row = Row(log.log_end_offset, self.work.now, b"key-1", b"next")
        batch = build_batch(
            [Record(row.key, row.value, timestamp=row.timestamp)],
            producer_id=producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.last_sequence + 1,
            is_transactional=producer.transaction_first_offset is not None,
        )
        require(log.append_batches(batch).first_offset == row.offset, "the next batch of", producer_id, "is no new one")
        again = log.append_batches(batch)
        require(again.is_duplicate and again.first_offset == row.offset, "a batch sent twice is not recognised")
        return row
