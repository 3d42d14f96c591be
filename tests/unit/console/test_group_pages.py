"""Groups of every kind, transactions, files and their verification, and what explains an offset."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import odradek
from odradek.admin.group_rows import group_rows
from odradek.admin.opening import open_admin
from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.console.pages.files import _verified
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.testing import Broker
from peers.broker_thread import eventually
from peers.kafka_fixture import KafkaFixture


def console(address: object, **options: Any) -> TestClient:
    return TestClient(create_app(ConsoleOptions(str(address), **options)), base_url="http://localhost")


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


@pytest.fixture(scope="module")
def client(fixture_4_3_1: KafkaFixture) -> Iterator[TestClient]:
    with console(fixture_4_3_1.log_dir) as client:
        yield client


@pytest.mark.slow
def test_every_kind_of_group_has_its_page(kafka_groups: Path) -> None:
    folder = next(path.parent for path in kafka_groups.rglob("meta.properties"))
    with open_admin(str(folder)) as admin:
        rows = group_rows(admin, admin.describe_groups())
    assert {row["type"] for row in rows} == {"classic", "consumer", "share", "streams"}
    with console(folder) as client:
        listed = client.get("/groups").text
        for row in rows:
            assert f'/group?id={quote(row["group"], safe="")}"' in listed
            page = client.get("/group", params={"id": row["group"]})
            assert page.status_code == 200
            text = text_of(page.text)
            assert row["type"] in text
            for offsets in row["offsets"]:
                assert f"{offsets['topic']}-{offsets['partition']}" in text
            for member in row["members"] or ():
                assert member["member_id"] in text


def test_a_group_that_is_not_there(client: TestClient) -> None:
    assert client.get("/group?id=<b>nothing").status_code == 410
    assert "<b>nothing" not in client.get("/group?id=<b>nothing").text
    assert client.get("/group").status_code == 400


@pytest.mark.slow
def test_groups_of_a_broker_have_their_lag() -> None:
    with Broker() as broker:
        broker.create_topic("events")
        broker.logs["events", 0].append([Record(b"k", b"v")] * 7)
        broker.commit_offsets("<i>behind/&?", {("events", 0): 3})
        with console(f"kafka://{broker.bootstrap_servers}") as client:
            page = client.get("/groups").text
            assert "<i>behind" not in page
            link = re.search(r'href="(/group\?id=[^"]*)"', page)
            assert link
            text = text_of(client.get(html.unescape(link[1])).text)
            assert re.search(r"events-0\s+3\s+7\s+4", text)
            assert client.get("/transactions").status_code == 200
            assert client.get("/files").status_code == 404
            assert "opened on the log directory itself" in client.get("/topics/events/0/3").text


def test_transactions_of_a_folder(client: TestClient) -> None:
    text = text_of(client.get("/transactions?topic=transactional").text)
    assert "CompleteCommit" in text or "CompleteAbort" in text or "Empty" in text
    assert client.get("/transactions?topic=nothing").status_code == 404


@pytest.mark.slow
def test_a_transaction_that_nobody_ends_hangs(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"k", b"v")])
    segment = tmp_path / "data" / "t-0" / f"{0:020}.log"
    options = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0, "is_transactional": True}
    with segment.open("ab") as file:
        file.write(build_batch([Record(b"k", b"v", offset=1)], base_offset=1, **options))  # type: ignore[arg-type]
    with console(tmp_path / "data") as client:
        page = text_of(client.get("/transactions?topic=t").text)
        assert re.search(r"t-0\s+1\s+none\s+7\s+2\s+yes: nobody ends it", page)
        assert "undecided" in text_of(client.get("/topics/t/0/1").text)


def test_an_offset_is_explained(client: TestClient) -> None:
    page = text_of(client.get("/topics/keyed/0/5").text)
    for fact in ("segment", "batch", "offset index", "read_uncommitted", "is given it", "batch_length"):
        assert fact in page, fact
    assert "has not been written yet" in page or "beyond the end" in text_of(client.get("/topics/keyed/0/999999").text)


def test_an_explanation_shows_nothing_that_is_left_out(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"s3cret", b"open")])
    with console(tmp_path / "data", redact=("key",)) as client:
        page = client.get("/topics/t/0/0").text
        assert ("s3cret" in page, b"s3cret".hex(" ") in page, "open" in page) == (False, False, True)
        assert "is given it" in page


@pytest.mark.slow
def test_files_are_listed_and_verified(client: TestClient) -> None:
    page = text_of(client.get("/files?q=keyed-0").text)
    assert "00000000000000000000.timeindex" in page
    assert "meta.properties" in page
    drawn = client.get("/files?q=keyed").text
    for title in ("Segments by the times of their records", "Sizes of the files on this page, by kind"):
        assert f'aria-label="{title}"' in drawn
    assert "Nothing was found" in text_of(client.get("/files/verify").text)
    assert "nothing was found" in client.get("/files").text
    eventually(lambda: "0 findings" in text_of(client.get("/").text))


@pytest.mark.slow
def test_damage_is_found_by_verification(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "data")
    segment = min((tmp_path / "data" / "keyed-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    with console(tmp_path / "data") as client:
        page = text_of(client.get("/files/verify").text)
        assert f"{segment}" in page
        assert re.search(r"\d+ findings\. ", page)
        assert "damage" in text_of(client.get("/files").text)


@pytest.mark.slow
def test_a_verification_ends_with_its_reader(fixture_4_3_1: KafkaFixture) -> None:
    app = create_app(ConsoleOptions(str(fixture_4_3_1.log_dir)))
    source = app.state.console.source
    parts = _verified(app.state.console, fixture_4_3_1.log_dir, "a<!-- what is found -->b")
    assert next(parts) == "a"
    parts.close()
    parts = _verified(app.state.console, fixture_4_3_1.log_dir, "a<!-- what is found -->b")
    assert "".join(parts).endswith("b")
    assert source.verified is not None
    assert source.verified[2]
    source.close()
