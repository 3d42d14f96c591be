"""Work that grows with its request leaves off, and others have their turn."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.groups.turnstiles import Turnstiles
from odradek.broker.running import BrokerThread
from odradek.broker.turns import Turns, Work, each
from odradek.testing.wire import WireClient
from peers.broker_thread import connect

DESCRIBE_GROUPS, API_VERSIONS = 15, 18


def test_quick_work_is_done_at_once() -> None:
    assert Turns().take(each([1, 2, 3], str)) == ["1", "2", "3"]


def slow(count: int) -> Work[int]:
    for _ in range(count):
        time.sleep(0.002)
        yield
    return count


@pytest.mark.slow
def test_slow_works_have_their_turns_one_after_the_other() -> None:
    async def run() -> tuple[list[int], int]:
        turns, ticks, is_over = Turns(), 0, False

        async def tick() -> None:
            nonlocal ticks
            while not is_over:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        found = await asyncio.gather(*(turns.finish(slow(count)) for count in (20, 30)))
        is_over = True
        await ticking
        return found, ticks

    found, ticks = asyncio.run(run())
    assert found == [20, 30]
    # A turn is over after three steps at most: 5 ms.
    assert ticks >= 15


def test_an_error_of_work_comes_with_its_result() -> None:
    def failing() -> Work[None]:
        yield from slow(3)
        raise ValueError("it fails")

    async def run() -> None:
        found = Turns().take(failing())
        assert isinstance(found, Awaitable)
        with pytest.raises(ValueError, match="it fails"):
            await found

    asyncio.run(run())


def test_what_work_waits_for_ends_it_with_its_error_and_with_its_client() -> None:
    async def run() -> list[str]:
        turns, told = Turns(), []

        def waiting(awaited: asyncio.Future[None]) -> Work[None]:
            try:
                yield lambda: awaited
                told.append("done")
            finally:
                told.append("over")

        for outcome in ("result", "error", "cancelled", "client"):
            awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            found = asyncio.ensure_future(turns.finish(waiting(awaited)))
            await asyncio.sleep(0)
            if outcome == "result":
                awaited.set_result(None)
            elif outcome == "error":
                awaited.set_exception(OSError("it fails"))
            else:
                (awaited if outcome == "cancelled" else found).cancel()
            told.append(type((await asyncio.gather(found, return_exceptions=True))[0]).__name__)
            await asyncio.sleep(0)
            assert awaited.done()
        # Others are not kept waiting by what has ended.
        assert await turns.finish(slow(5)) == 5
        return told

    told = asyncio.run(run())
    ended = [one for one in told if one != "over"]
    assert ended == ["done", "NoneType", "OSError", "CancelledError", "CancelledError"]
    assert told.count("over") == 4


def refuse(error: BaseException) -> Work[int]:
    yield from slow(3)
    raise error


def refuse_to_wait(error: BaseException) -> Work[int]:
    def wait() -> Awaitable[None]:
        raise error

    yield from slow(3)
    yield wait
    return 3


@pytest.mark.parametrize("failing", [refuse, refuse_to_wait])
@pytest.mark.parametrize("error", [OSError(), asyncio.CancelledError(), GeneratorExit()])
def test_work_that_fails_in_any_way_keeps_no_other_work_waiting(
    failing: Callable[[BaseException], Work[int]], error: BaseException
) -> None:
    async def run() -> list[object]:
        turns = Turns()
        both = asyncio.gather(turns.finish(failing(error)), turns.finish(slow(5)), return_exceptions=True)
        return list(await asyncio.wait_for(both, 30))

    found = asyncio.run(run())
    assert (type(found[0]), found[1]) == (type(error), 5)


def test_work_that_waits_many_times_leaves_nothing_behind_each_time() -> None:
    def waiting() -> Work[None]:
        for _ in range(100):
            yield lambda: asyncio.sleep(0)

    async def run() -> None:
        found = Turns().take(waiting())
        assert isinstance(found, asyncio.Future)
        while not found.done():
            assert len(found._callbacks or ()) <= 1
            await asyncio.sleep(0)

    asyncio.run(run())


def test_work_that_ends_when_its_turn_has_just_come_passes_it_on() -> None:
    async def run() -> list[str]:
        turns, turnstiles, passed = Turns(), Turnstiles(), []

        def passing(name: str) -> Work[None]:
            yield from turnstiles.enter("group")
            passed.append(name)
            yield lambda: asyncio.sleep(0)
            turnstiles.leave("group")
            if name == "first":
                clients[1].cancel()

        clients = [asyncio.ensure_future(turns.finish(passing(name))) for name in ("first", "second", "third")]
        await asyncio.wait_for(asyncio.gather(*clients, return_exceptions=True), 30)
        return passed

    assert asyncio.run(run()) == ["first", "third"]


@pytest.mark.slow
def test_another_client_is_answered_before_a_large_request(running: BrokerThread, client: WireClient) -> None:
    def is_answered_before() -> bool:
        message = {"groups": [str(number) for number in range(99_000)], "include_authorized_operations": False}
        large = client.send(DESCRIBE_GROUPS, 6, message)
        other.call(API_VERSIONS, 0, {})
        readable, _, _ = select.select([client.socket], [], [], 0)
        assert len(client.receive(DESCRIBE_GROUPS, 6, large).groups) == 99_000
        return not readable

    with connect(running) as other:
        # The test itself may be kept waiting.
        assert any(is_answered_before() for _ in range(3))
