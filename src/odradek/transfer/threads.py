"""Work on partitions by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

from odradek.kafka.stopping import stopped_by

T = TypeVar("T")


def in_threads(
    action: Callable[[T], None],
    work: Iterable[T],
    threads: int,
    *,
    name: str,
    stop: threading.Event,
    halt: Callable[[], None] = lambda: None,
) -> None:
    """Call an action for each piece of work, and wait for all of them.

    Args:
        action: What is done; called by the threads.
        work: What it is done for.
        threads: How many threads there are.
        name: What their names begin with.
        stop: Set after the first error, and after a Ctrl-C: ends what the actions wait for from brokers, and they look
            at it themselves, too. Those that have not started are skipped.
        halt: Called when it is set here, for what else they wait for.

    Raises:
        Exception: The first error of an action.
    """

    def act(one: T) -> None:
        with stopped_by(stop):
            action(one)

    with ThreadPoolExecutor(threads, name) as executor:
        running = {executor.submit(act, one) for one in work}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            stop.set()
            halt()
            executor.shutdown(cancel_futures=True)
            raise
