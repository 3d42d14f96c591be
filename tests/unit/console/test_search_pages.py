"""The search: all that matches is found or told of, quickly, whatever the pattern, and it ends with its reader."""

from __future__ import annotations

import asyncio
import base64
import html
import re
import threading
import time
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

import odradek
from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.console.searching import Query, Search
from odradek.console.streaming import Streamed
from odradek.console.work import Work
from odradek.inspection.selection import DumpSelection
from odradek.places.opening import open_place
from odradek.records import Record
from peers.cpu import in_standards
from peers.kafka_fixture import KafkaFixture


def offsets(page: str) -> list[tuple[int, int]]:
    found = re.findall(r'<h3><a href="/topics/[^"]*/(\d+)/(\d+)"', page)
    return [(int(partition), int(offset)) for partition, offset in found]


@pytest.fixture(scope="module")
def client(fixture_4_3_1: KafkaFixture) -> Iterator[TestClient]:
    with TestClient(create_app(ConsoleOptions(str(fixture_4_3_1.log_dir))), base_url="http://localhost") as client:
        yield client


def expected(fixture: KafkaFixture, pattern: str) -> list[tuple[int, int]]:
    found = []
    for partition in range(3):
        for record in fixture.consumed[f"keyed-{partition}"]["records"]:
            value = record["value"]
            if value is not None and re.search(pattern, base64.b64decode(value).decode(errors="surrogateescape")):
                found.append((partition, record["offset"]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["segment", "seg.*epoch", "消息", "naïve|crc", "^tech", "batch$", r"\bvarint\b"])
def test_a_pattern_finds_what_consumers_saw(client: TestClient, fixture_4_3_1: KafkaFixture, pattern: str) -> None:
    page = client.get("/search", params={"topic": "keyed", "pattern": pattern, "in": "value", "hits": 1000}).text
    assert offsets(page) == expected(fixture_4_3_1, pattern)
    assert "found in all 1,200 offsets" in page


@pytest.mark.slow
def test_hits_that_are_left_out_are_a_link_away(client: TestClient, fixture_4_3_1: KafkaFixture) -> None:
    found: list[tuple[int, int]] = []
    link = "/search?topic=keyed&pattern=segment&in=value&hits=50"
    while link:
        page = client.get(link).text
        assert len(offsets(page)) <= 50
        found += offsets(page)
        following = re.search(r'<a rel="next" href="([^"]*)">Search on', page)
        link = f"/search{html.unescape(following[1])}" if following else ""
    assert found == expected(fixture_4_3_1, "segment")


@pytest.mark.slow
def test_keys_texts_conditions_and_ranges(client: TestClient) -> None:
    def found(**query: Any) -> list[tuple[int, int]]:
        return offsets(client.get("/search", params={"topic": "keyed", "hits": 1000, **query}).text)

    keyed = found(mode="key", pattern="k1")
    assert keyed
    assert keyed == found(condition="key = 'k1'")
    assert set(keyed) < set(found(mode="text", pattern="k1", **{"in": "key"}))
    assert found(mode="text", pattern="SEGMENT") == []
    assert found(mode="text", pattern="SEGMENT", ignore_case=1) == found(pattern="segment")
    assert found(condition="offset = 5 and partition <> 1") == [(0, 5), (2, 5)]
    assert found(condition="offset < 3", partition=2) == [(2, 0), (2, 1), (2, 2)]
    assert found(condition="offset >= 0", start=10, end=12, partition=0) == [(0, 10), (0, 11)]
    assert found(pattern="segment", condition="offset < 10") == [one for one in found(pattern="segment") if one[1] < 10]
    assert found(condition="true", since="2038-01-01") == []


@pytest.mark.parametrize(
    "query",
    [
        {"pattern": "("},
        {"pattern": "(?=a)"},
        {"pattern": "x" * 1001},
        {"condition": "select 1"},
        {"condition": "key ="},
        {"pattern": "a", "mode": "sql"},
        {"pattern": "a", "in": "offset"},
        {"pattern": "a", "since": "soon"},
    ],
)
def test_a_wrong_search_is_refused_before_it_begins(client: TestClient, query: dict[str, str]) -> None:
    assert client.get("/search", params={"topic": "keyed", **query}).status_code == 400


def test_a_search_of_nothing_is_the_form(client: TestClient) -> None:
    for path in ("/search", "/search?topic=keyed", "/search?pattern=a", "/search?topic=keyed&pattern=a&edit=1"):
        page = client.get(path)
        assert (page.status_code, "Stop</a>" in page.text) == (200, False)
    assert client.get("/search?topic=nothing&pattern=a").status_code == 404


@pytest.mark.slow
def test_no_pattern_takes_long(tmp_path: Any) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"a" * 3000 + b"!")] * 100)
    with open_place(tmp_path / "data") as place:

        def look(pattern: str) -> None:
            search = Search(place, Query("t", (0,), pattern=pattern), ConsoleOptions("x"), print)
            assert [one for one in search.steps() if one] == []

        for pattern in ("(a+)+$", "(a|a)*b", "(.*a){20}x"):
            assert in_standards(partial(look, pattern), time.process_time) < 150


def test_a_search_is_made_of_small_steps(tmp_path: Any) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        for _ in range(20):
            logs["t", 0].append([Record(None, bytes(1000)) for _ in range(500)])
    with open_place(tmp_path / "data") as place:
        for query in (Query("t", (0,), pattern="none"), Query("t", (0,), condition="key = 'none'")):
            search = Search(place, query, ConsoleOptions("x"), print)
            positions = [search.searched for _ in search.steps()]
            assert len(positions) > 3
            assert positions == sorted(positions)
            assert (positions[-1], search.total) == (10_000, 10_000)
        narrowed = Query("t", (0,), condition="true", selection=DumpSelection(5, 9), start=(0, 7))
        assert [one[1].offset for one in Search(place, narrowed, ConsoleOptions("x"), print).steps() if one] == [7, 8]


def test_a_search_ends_when_its_reader_goes() -> None:
    work, steps, closed = Work(long_answers=1), 0, list[str]()

    def endless() -> Iterator[str]:
        nonlocal steps
        try:
            while True:
                steps += 1
                yield "x" if steps == 1 else ""
        finally:
            closed.append("search")

    async def run() -> None:
        begun = anyio.Event()

        async def send(message: Any) -> None:
            if message.get("body"):
                begun.set()

        async def receive() -> Any:
            await begun.wait()
            return {"type": "http.disconnect"}

        answer = Streamed(work, endless(), "text/html")  # type: ignore[arg-type]
        # There is a place for one only.
        with pytest.raises(HTTPException):
            Streamed(work, endless(), "text/html")  # type: ignore[arg-type]
        with anyio.fail_after(10):
            await answer({}, receive, send)

    anyio.run(run)
    assert closed == ["search"]
    assert work._free["long"] == 1


def test_a_reader_who_takes_nothing_keeps_no_thread() -> None:
    work, closed = Work(steps=1), list[str]()

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.append("search")

    async def stuck(_: Any) -> None:
        await anyio.sleep_forever()

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def run() -> None:
        with anyio.move_on_after(0.05):
            await Streamed(work, endless(), "text/html")({}, receive, stuck)  # type: ignore[arg-type]
        # The one thread for steps is free.
        assert [part async for part in work.steps(iter_of("a", "b"))] == ["a", "b"]

    def iter_of(*parts: str) -> Any:
        yield from parts

    anyio.run(run)
    assert work._free["long"] == 8


def test_a_step_that_is_cancelled_by_asyncio_is_waited_for() -> None:
    work, begun, ends, closed = Work(), threading.Event(), threading.Event(), list[str]()

    def slow() -> Generator[str]:
        try:
            begun.set()
            ends.wait(30)
            yield "x"
        finally:
            closed.append("search")

    async def take() -> None:
        steps = work.steps(slow())
        try:
            await anext(steps)
        finally:
            await steps.aclose()

    async def run() -> None:
        task = asyncio.ensure_future(take())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, ends.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert closed == ["search"]
