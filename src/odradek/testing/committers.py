"""Those who commit to an offset store at the same time, in threads and in processes of their own."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from odradek.errors import CommitConflictError
from odradek.offsets.store import OffsetStore, Position
from odradek.storage.names import TopicPartition

EVENTS_0 = TopicPartition("events", 0)
EVENTS_1 = TopicPartition("events", 1)
PATIENCE_S = 60.0

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[SpawnProcess, Connection]]:
    """Run a function in another process, which is killed at the end; the function's last argument sends to us."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=target, args=(*arguments, sender), daemon=True)
    process.start()
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        receiver.close()
        sender.close()


def in_threads(*actions: Callable[[], None]) -> None:
    """Run functions at the same time, each in a thread, and return when all are done."""
    threads = [threading.Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)


def race(opener: Callable[[str], OffsetStore], address: str, barrier: Any, rounds: int) -> list[str]:
    """Commit once a round, at the same time as others; return how each round ended: `won`, `lost` or an error."""
    outcomes = []
    with opener(address) as store:
        for offset in range(1, rounds + 1):
            try:
                seen = store.load()
                barrier.wait(PATIENCE_S)
                store.commit({EVENTS_0: Position(offset)}, expected=seen)
                outcomes.append("won")
            except CommitConflictError:
                outcomes.append("lost")
            except Exception as error:
                outcomes.append(repr(error))
            barrier.wait(PATIENCE_S)
    return outcomes


def race_in_process(
    opener: Callable[[str], OffsetStore], address: str, barrier: Any, rounds: int, sender: Connection
) -> None:
    """Send what `race` returns."""
    sender.send(race(opener, address, barrier, rounds))


def check_race(outcomes: list[list[str]], rounds: int) -> None:
    """Check that one committer won each round, and all others lost it."""
    expected = ["lost"] * (len(outcomes) - 1) + ["won"]
    assert [len(own) for own in outcomes] == [rounds] * len(outcomes)
    assert [sorted(outcome) for outcome in zip(*outcomes, strict=True)] == [expected] * rounds


def add_one(store: OffsetStore) -> None:
    """Commit the next offset; after a conflict, again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = store.load()
        try:
            store.commit({EVENTS_0: Position((seen.offset(EVENTS_0) or 0) + 1)}, expected=seen)
        except CommitConflictError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def commit_until_killed(opener: Callable[[str], OffsetStore], address: str, sender: Connection) -> None:
    """Commit one offset after another to two partitions, and send each that was committed."""
    with opener(address) as store:
        positions = store.load()
        offset = positions.offset(EVENTS_0) or 0
        while True:
            offset += 1
            both = {EVENTS_0: Position(offset), EVENTS_1: Position(offset)}
            positions = store.commit(both, expected=positions)
            sender.send(offset)
