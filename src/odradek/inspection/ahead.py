"""Lets a generator run ahead of its caller, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from odradek.buffers import Buffer

T = TypeVar("T")

_BLOCK_BYTES = 1 << 16


def gathered(items: Iterable[Buffer]) -> Generator[Buffer]:
    """Yield the same bytes in fewer pieces: small ones are joined."""
    small: list[Buffer] = []
    size = 0
    for item in items:
        item_size = memoryview(item).nbytes
        small.append(item)
        size += item_size
        if size >= _BLOCK_BYTES:
            # A large one is not copied.
            if item_size >= _BLOCK_BYTES:
                small.pop()
            if small:
                yield b"".join(small)
            if item_size >= _BLOCK_BYTES:
                yield item
            small, size = [], 0
    if small:
        yield b"".join(small)


def ahead(items: Generator[T], most: int = 4) -> Iterator[T]:
    """Yield what a generator gives, in its order; it runs in another thread, up to `most` items ahead.

    This pays if both sides release the GIL: one formats while the other writes. What the generator raises is raised
    here, after the items before it. If the caller stops early, the generator is closed, in its thread.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(most)
    stopped = threading.Event()

    def run() -> None:
        failure: BaseException | None = None
        try:
            for item in items:
                ready.put((item, None, False))
                if stopped.is_set():
                    break
        except BaseException as error:
            failure = error
        finally:
            items.close()
        ready.put((None, failure, True))

    worker = threading.Thread(target=run, name="odradek-ahead", daemon=True)
    worker.start()
    try:
        while True:
            item, failure, is_last = ready.get()
            if failure is not None:
                raise failure
            if is_last:
                return
            yield item  # type: ignore[misc]
            item = None
    finally:
        stopped.set()
        # The worker may wait for room in the queue: make some, so that it sees `stopped` and ends.
        while worker.is_alive():
            try:
                ready.get_nowait()
            except queue.Empty:
                worker.join(0.01)
