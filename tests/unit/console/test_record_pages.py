"""Records on pages, live and as files: what is shown, what is left out, and what a stranger's records cannot do."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import odradek
from odradek.console.app import create_app
from odradek.console.exporting import encoder_of, exported
from odradek.console.options import ConsoleOptions
from odradek.console.pages.records import event
from odradek.console.searching import Query
from odradek.console.shown_records import RecordView, indented
from odradek.inspection.decoding import decode_json
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.testing import Broker
from peers.kafka_fixture import KafkaFixture

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def console(address: object, **options: Any) -> TestClient:
    return TestClient(create_app(ConsoleOptions(str(address), **options)), base_url="http://localhost")


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def offsets(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'<h3><a href="/topics/[^"]*/(\d+)"', page)]


@pytest.fixture(scope="module")
def client(fixture_4_3_1: KafkaFixture) -> Iterator[TestClient]:
    with console(fixture_4_3_1.log_dir) as client:
        yield client


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[odradek.WritableLogDirectory]:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        yield logs


@pytest.mark.slow
def test_records_are_read_from_either_end_an_offset_and_a_time(client: TestClient) -> None:
    assert offsets(client.get("/topics/keyed/records?count=3").text) == [378, 379, 380]
    assert offsets(client.get("/topics/keyed/records?count=3&at=start").text) == [0, 1, 2]
    assert offsets(client.get("/topics/keyed/records?count=2&at=offset&offset=7").text) == [7, 8]
    assert offsets(client.get("/topics/keyed/records?at=offset&offset=999999").text) == []
    assert offsets(client.get("/topics/keyed/records?count=1&at=time&time=1970-01-01").text) == [0]
    assert offsets(client.get("/topics/keyed/records?count=1&at=time&time=2038-01-01").text) == []
    for query in ("at=time", "at=time&time=yesterday", "count=501", "offset=-1", "isolation=none", "partition=x"):
        assert client.get(f"/topics/keyed/records?{query}").status_code == 400
    assert client.get("/topics/keyed/records?partition=9").status_code == 404


def test_pages_lead_through_a_partition_without_a_gap(client: TestClient) -> None:
    found: list[int] = []
    link = "?at=start&count=100"
    while link:
        page = client.get(f"/topics/keyed/records{link}").text
        found += offsets(page)
        following = re.search(r'<a rel="next" href="([^"]*)">Later', page)
        link = html.unescape(following[1]) if following else ""
    assert found == list(range(381))


def test_a_view_has_a_link_that_shows_the_same_later(logs: odradek.WritableLogDirectory) -> None:
    logs["t", 0].append([Record(b"k", b"%d" % number) for number in range(10)])
    with console(logs.path) as client:
        page = client.get("/topics/t/records?count=25").text
        exact = re.search(r'<a href="([^"]*)">A link to exactly this view', page)
        assert exact
        logs["t", 0].append([Record(b"k", b"later") for _ in range(30)])
        assert offsets(client.get(f"/topics/t/records{html.unescape(exact[1])}").text)[:10] == list(range(10))


def test_committed_records_only(client: TestClient, fixture_4_3_1: KafkaFixture) -> None:
    for isolation, consumed in (
        ("read_uncommitted", fixture_4_3_1.consumed),
        ("read_committed", fixture_4_3_1.consumed_committed),
    ):
        page = client.get(f"/topics/transactional/records?at=start&count=500&isolation={isolation}").text
        expected = [one["offset"] for one in consumed["transactional-0"]["records"]]
        assert offsets(page) == expected[:500]


@pytest.mark.slow
def test_contents_are_text_json_or_bytes(logs: odradek.WritableLogDirectory) -> None:
    value = b'{"big":12345678901234567890.10,"a":{},"b":[1,{"c":"\\u00e9\\"}"}]}'
    logs["t", 0].append([Record(None, value, [("h", b"\xff\x00")]), Record(b"", b"\x80\x81"), Record(b"k", None)])
    with console(logs.path) as client:
        page = text_of(client.get("/topics/t/0/0").text)
        # Each token is as it was written.
        assert '"big": 12345678901234567890.10' in page
        assert '"a": {}' in page
        assert '{\n      "c": "\\u00e9\\"}"\n    }' in page
        assert "ff 00" in page
        assert "80 81" in text_of(client.get("/topics/t/0/1").text)
        assert "null" in text_of(client.get("/topics/t/0/2").text)
        assert "7b 22 62 69 67" in text_of(client.get("/topics/t/0/0?hex=1").text)
        assert "No consumer is given a record" in client.get("/topics/t/0/3").text


@pytest.mark.parametrize("text", ["{}", "[]", "[{}]", '[[],"a,b:{"]', ' { "a" : 1 } ', '{"a":[1,2]}', '["\\\\"]'])
def test_indented_json_is_the_same_json(text: str) -> None:
    found = indented(text)
    assert found is not None
    assert json.loads(found) == json.loads(text)


@pytest.mark.parametrize("text", ["{", "[1,]", "[" * 100_000, "{'a':1}"])
def test_what_is_no_json_is_not_indented(text: str) -> None:
    assert indented(text) is None


@pytest.mark.slow
def test_a_large_value_is_cut_and_says_so(logs: odradek.WritableLogDirectory) -> None:
    logs["t", 0].append([Record(b"k", "é".encode() * 500_000)] * 3)
    with console(logs.path) as client:
        listed = client.get("/topics/t/records").text
        assert len(listed) < 20_000
        assert listed.count("Cut here: 1.0 MB in all") == 3
        assert len(client.get("/topics/t/0/0").text) < 100_000


@pytest.mark.slow
def test_a_batch_that_no_page_should_read_is_named(
    logs: odradek.WritableLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.console.reading._LARGEST_BATCH_BYTES", 2 << 20)
    logs.create_topic("large", config={"max.message.bytes": str(4 << 20)})
    log = logs["large", 0]
    log.append([Record(b"k", b"before")])
    log.append([Record(b"k", bytes(3 << 20))])
    log.append([Record(b"k", b"after")])
    with console(logs.path) as client:
        page = text_of(client.get("/topics/large/records?at=start").text)
        assert ("before" in page, "Offset 1 is in it" in page) == (True, True)
        page = text_of(client.get("/topics/large/0/1").text)
        assert "is not shown here" in page
        assert offsets(client.get("/topics/large/records?at=offset&offset=2").text) == [2]


@pytest.mark.slow
def test_what_records_hold_is_never_markup(logs: odradek.WritableLogDirectory) -> None:
    data = MARKUP.encode()
    object_ = json.dumps({MARKUP: MARKUP}).encode()
    line = b"a\r\nevent: end\r\ndata: gone\n\n\xe2\x80\xa8\xe2\x80\xaex"
    logs["t", 0].append([Record(data, data, [(MARKUP, data)]), Record(object_, object_), Record(line, line)])
    with console(logs.path) as client:
        for path in (
            "/topics/t/records",
            "/topics/t/0/0",
            "/topics/t/0/1",
            "/search?topic=t&pattern=alert&hits=100",
            "/search?topic=t&edit=1&pattern=" + MARKUP + "&condition=" + MARKUP,
            "/search?topic=t&mode=text&pattern=" + MARKUP,
            "/search?topic=t&condition=" + MARKUP,
            "/topics/t/records?at=time&time=" + MARKUP,
            "/topics/t/tail?partition=0&x=" + MARKUP,
        ):
            page = client.get(path).text
            assert not re.search(r"<script>|<img|onerror=alert\(2\)>\"", page), path
            assert "\u202e" not in page
        view = RecordView("t", ConsoleOptions("x"))
        assert "\u202e" not in str(view.show(0, Record(line, line, (), None)))
    # No record ends an event, or begins one.
    sent = event("records", "a\r\nevent: end\rdata: x\n\ny\u2028")
    assert all(part.startswith(("event: records", "data: ")) for part in sent.strip("\n").split("\n"))
    assert not re.search("[\r\u2028]", sent)


@pytest.mark.slow
def test_what_is_redacted_is_nowhere(logs: odradek.WritableLogDirectory) -> None:
    secret, open_ = "s3cret", "open"
    value = json.dumps({"card": {"number": secret}, "name": open_}).encode()
    logs["t", 0].append([Record(secret.encode(), value, [("token", secret.encode())])])
    paths = ["/topics/t/records", "/topics/t/0/0", "/topics/t/0/0?hex=1", "/topics/t/records?hex=1"]
    paths += ["/export?topic=t&format=jsonl", "/export?topic=t&format=csv", "/search?topic=t&condition=offset=0"]
    with console(logs.path, redact=("key", "headers", "value.card.number")) as client:
        for path in paths:
            page = client.get(path)
            assert (page.status_code, secret in page.text) == (200, False), path
            assert secret.encode().hex(" ") not in page.text
        # Nor does a search tell it.
        assert client.get(f"/search?topic=t&pattern={secret}").status_code == 400
        assert client.get(f"/search?topic=t&mode=key&pattern={secret}").status_code == 400
        found = client.get("/search", params={"topic": "t", "condition": f"key = '{secret}'"}).text
        assert offsets(found) == []
        found = client.get("/search", params={"topic": "t", "condition": f"value.card.number = '{secret}'"}).text
        assert offsets(found) == []
        found = client.get("/search", params={"topic": "t", "condition": f"value.name = '{open_}'"}).text
        assert offsets(found) == [0]


@pytest.mark.slow
def test_values_are_decoded_and_what_cannot_be_is_noted(logs: odradek.WritableLogDirectory) -> None:
    logs["t", 0].append([Record(None, b"\0\0\0\0\1" + b'{"a":1}'), Record(None, b"none")])
    with console(logs.path, values=decode_json) as client:
        assert '"a": 1' in text_of(client.get("/topics/t/0/0").text)
        assert "cannot be decoded" in client.get("/topics/t/0/1").text


def test_records_of_kafkas_own_topics_are_decoded(client: TestClient) -> None:
    assert "group" in text_of(client.get("/topics/__consumer_offsets/records?at=start").text)


@pytest.mark.slow
def test_damage_is_told(logs: odradek.WritableLogDirectory) -> None:
    for number in range(3):
        logs["t", 0].append([Record(b"k", b"value-%d" % number)])
    logs.close()
    segment = next(Path(logs.path, "t-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[data.index(b"value-1")] ^= 1
    segment.write_bytes(data)
    with console(logs.path) as client:
        page = client.get("/topics/t/records?at=start").text
        assert offsets(page) == [0]
        assert "findings bad" in page
        assert "findings bad" in client.get("/search?topic=t&pattern=value").text
    # A file that is not whole is not passed off as whole: its end is never sent.
    for form in (b"jsonl", b"parquet"):
        sent = anyio.run(_messages, create_app(ConsoleOptions(str(logs.path))), "/export", b"topic=t&format=" + form)
        assert [message.get("more_body") for message in sent[1:]].count(False) == 0
        body = b"".join(message.get("body", b"") for message in sent)
        assert b"value-0" in body or body == b"PAR1"


async def _messages(app: Any, path: str, query: bytes) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return await anyio.sleep(3600)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": [(b"host", b"localhost")]}
    with anyio.fail_after(20):
        await app({**scope, "raw_path": path.encode(), "server": ("localhost", 80), "scheme": "http"}, receive, send)
    app.state.console.source.close()
    return sent


# -- export


def test_exports_are_what_dump_prints(client: TestClient, fixture_4_3_1: KafkaFixture) -> None:
    expected = [one["offset"] for one in fixture_4_3_1.consumed["keyed-1"]["records"]]
    answer = client.get("/export?topic=keyed&partition=1&format=jsonl")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["offset"] for line in lines] == expected
    assert answer.headers["content-disposition"] == 'attachment; filename="keyed.jsonl"'
    rows = list(csv.DictReader(io.StringIO(client.get("/export?topic=keyed&partition=1&format=csv").text)))
    assert [int(row["offset"]) for row in rows] == expected
    answer = client.get("/export?topic=keyed&partition=1&format=parquet")
    assert answer.headers["content-disposition"] == 'attachment; filename="keyed.parquet"'
    with odradek.scan(fixture_4_3_1.log_dir, topics="keyed", partitions=1) as reader:
        assert pq.read_table(io.BytesIO(answer.content)).equals(reader.read_all())
    part = client.get("/export?topic=keyed&partition=1&start=3&end=5&format=jsonl").text
    assert [json.loads(line)["offset"] for line in part.splitlines()] == [3, 4]


def test_parquet_has_no_far_timestamps(logs: odradek.WritableLogDirectory) -> None:
    """Microseconds: a reader of the file would fail without a place, or show the year 55840."""
    logs.alter_topic_config("t", {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    logs["t", 0].append([Record(b"k", b"v", timestamp=1_700_000_000_000_000)])
    options = ConsoleOptions(str(logs.path))
    with open_place(logs.path) as place, pytest.raises(odradek.TimestampOutOfRangeError, match="t-0, offset 0"):
        list(exported(place, Query("t", (0,)), options, encoder_of("parquet", "t", options)))


@pytest.mark.slow
def test_parquet_is_sent_in_parts_and_holds_little(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        for _ in range(24):
            logs["t", 0].append([Record(None, os.urandom(1_000_000))])
    options = ConsoleOptions(str(tmp_path / "data"))
    encoder = encoder_of("parquet", "t", options)
    with open_place(tmp_path / "data") as place:
        parts = list(exported(place, Query("t", (0,)), options, encoder))
    assert max(map(len, parts)) < 12 << 20
    assert pq.ParquetFile(io.BytesIO(b"".join(parts))).num_row_groups == 3


def test_what_is_redacted_is_not_in_parquet(logs: odradek.WritableLogDirectory) -> None:
    value = json.dumps({"card": {"number": "s3cret"}, "name": "open"}).encode()
    logs["t", 0].append([Record(b"s3cret", value, [("token", b"s3cret")]), Record(None, None)])
    with console(logs.path, redact=("key", "headers", "value.card.number")) as client:
        (shown, empty) = pq.read_table(io.BytesIO(client.get("/export?topic=t&format=parquet").content)).to_pylist()
    assert (shown["key"], shown["headers"]) == (b"[redacted]", [{"key": "token", "value": b"[redacted]"}])
    assert json.loads(shown["value"]) == {"card": {"number": "[redacted]"}, "name": "open"}
    assert (empty["key"], empty["value"], empty["offset"]) == (None, None, 1)


# -- live


async def _exchange(app: Any, path: str, until: str, act: Any) -> str:
    """Ask for a page, act once it begins, and go as soon as it has a text."""
    received, gone = "", anyio.Event()

    async def send(message: Any) -> None:
        nonlocal received, act
        received += message.get("body", b"").decode()
        if act is not None and "event: records" in received:
            done, act = act, None
            await anyio.to_thread.run_sync(done)
        if until in received:
            gone.set()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")]}
    with anyio.fail_after(20):
        await app({**scope, "raw_path": path.encode(), "server": ("localhost", 80), "scheme": "http"}, receive, send)
    return received


def test_a_live_tail_shows_what_comes_and_ends_with_its_reader(logs: odradek.WritableLogDirectory) -> None:
    logs["t", 0].append([Record(b"k", b"first")])
    app = create_app(ConsoleOptions(str(logs.path)))
    more = lambda: logs["t", 0].append([Record(b"k", b"second")])  # noqa: E731
    received = anyio.run(_exchange, app, "/topics/t/events", "second", more)
    assert received.index("event: reset") < received.index("first") < received.index("second")
    work = app.state.console.work
    assert work._free["tail"] == 16
    app.state.console.source.close()


@pytest.mark.slow
def test_a_broker_is_read_searched_and_followed() -> None:
    with Broker() as broker:
        broker.create_topic("events", 2)
        broker.logs["events", 0].append([Record(b"k", b"first")])
        address = f"kafka://{broker.bootstrap_servers}"
        with console(address) as client:
            assert offsets(client.get("/topics/events/records").text) == [0]
            assert offsets(client.get("/search?topic=events&pattern=fir.t").text) == [0]
            assert "first" in client.get("/export?topic=events&format=jsonl").text
        app = create_app(ConsoleOptions(address))
        more = lambda: broker.logs["events", 1].append([Record(b"k", b"second")])  # noqa: E731
        assert "first" in anyio.run(_exchange, app, "/topics/events/events", "second", more)
        app.state.console.source.close()


def test_json_that_is_nested_deeply_does_not_grow() -> None:
    text = "[" * 500 + "1" + ",1" * 400 + "]" * 500
    assert indented(text) is None
    assert len(indented("[" * 20 + "]" * 20) or "") < 1000


@pytest.mark.slow
def test_chosen_columns_are_a_table(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        values = (b'{"user": {"id": 17}, "card": "s3cret", "text": "<b>x"}', b"no JSON", None)
        logs["t", 0].append([Record(b"k%d" % n, value, [("h", b"v")]) for n, value in enumerate(values)])
    with console(tmp_path / "data", redact=("value.card",)) as client:
        asked = {"at": "start", "columns": "key, value.user.id ,value.card,value.text, headers.h, length(key)"}
        page = client.get("/topics/t/records", params=asked)
        cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", page.text)]
        rows = [cells[first + 1 : first + 7] for first in range(0, 21, 7)]
        assert rows == [
            ["k0", "17", rows[0][2], "&lt;b&gt;x", "v", "2"],
            *[[f"k{n}", "null", "null", "null", "v", "2"] for n in (1, 2)],
        ]
        assert "s3cret" not in page.text
        assert "columns=key" in page.text
        for wrong in ("value.", "1 +", "nothing(key)", ",".join(["key"] * 13)):
            assert client.get("/topics/t/records", params={"columns": wrong}).status_code == 400, wrong
