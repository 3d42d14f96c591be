"""The same for many logs, in several threads."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from odradek.storage.directory.many_logs import do_for_each


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_results_come_in_order_from_several_threads() -> None:
    both, names = threading.Barrier(2), set()

    def double(item: int) -> int:
        names.add(threading.current_thread().name)
        both.wait(30)
        return 2 * item

    found = list(do_for_each(double, range(100), threads=2, name="doubling"))
    assert (found, names) == ([2 * item for item in range(100)], {"doubling-0", "doubling-1"})
    assert not threads_of("doubling")


def test_few_items_are_left_to_the_caller() -> None:
    found = list(do_for_each(lambda _: threading.current_thread(), range(15), threads=2, name="few"))
    assert found == [threading.current_thread()] * 15


def test_an_error_is_raised_in_its_place() -> None:
    def fail_at_5(item: int) -> int:
        if item == 5:
            raise OSError("it fails")
        return item

    results = do_for_each(fail_at_5, range(100), threads=2, name="failing")
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(OSError, match="it fails"):
        next(results)
    assert not threads_of("failing")


def test_a_caller_that_stops_leaves_no_thread_behind() -> None:
    with closing(do_for_each(lambda item: item, range(1_000), threads=2, name="stopping")) as found:
        assert next(found) == 0
    assert not threads_of("stopping")


@pytest.mark.parametrize("startable", [0, 1])
def test_the_work_is_done_by_as_many_threads_as_can_be_started(monkeypatch: pytest.MonkeyPatch, startable: int) -> None:
    starts = threading.Thread.start
    started: list[threading.Thread] = []

    def start(self: threading.Thread) -> None:
        if len(started) == startable:
            raise RuntimeError("can't start new thread")
        started.append(self)
        starts(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    names = list(do_for_each(lambda _: threading.current_thread().name, range(100), threads=3, name="scarce"))
    assert set(names) == ({"scarce-0"} if startable else {threading.current_thread().name})
    assert len(names) == 100
