"""One action for each of many logs, in several threads: most of the time is spent waiting for the disk.

    caller     starts the threads, and takes the results in the order of the items
    threads    take the next item, until none is left

If no thread can be started, because the program is ending or has too many threads, the caller does all the work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

_FEW = 16
"""For fewer items than this no threads are started."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def do_for_each(
    action: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int, name: str
) -> Generator[_Result, None, None]:
    """Yield the action's result for each item, or raise its error, in order.

    When the generator has ended or was closed, no action runs, and no other starts.

    Args:
        action: Called once for each item, in any thread.
        items: The items.
        threads: The number of threads at most.
        name: The prefix of the threads' names.
    """
    if len(items) < _FEW:
        yield from map(action, items)
        return
    # Imported here: most directories have few logs to open or to close.
    from concurrent.futures import Future

    results: list[Future[_Result]] = [Future() for _ in items]
    waiting = deque(zip(results, items, strict=True))

    def work() -> None:
        while True:
            try:
                result, item = waiting.popleft()
            except IndexError:
                return
            try:
                result.set_result(action(item))
            except BaseException as error:
                result.set_exception(error)

    started: list[threading.Thread] = []
    try:
        for number in range(min(threads, len(items))):
            started.append(threading.Thread(target=work, name=f"{name}-{number}"))
            try:
                started[-1].start()
            except RuntimeError:
                started.pop()
                break
        if started:
            for result in results:
                yield result.result()
        else:
            yield from map(action, items)
    finally:
        waiting.clear()
        for thread in started:
            if thread.is_alive():
                thread.join()
