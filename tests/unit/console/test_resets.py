"""The reset of a group's positions: what was previewed is done, by the console's own form, and with `--write` only."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

import odradek
from odradek.admin.group_rows import group_rows
from odradek.admin.opening import open_admin
from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.console.pages import resets
from odradek.messages.coordinators.group_records import OffsetCommitValue
from odradek.places.group_log import commit_offsets
from odradek.records import Record
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

SAME = {"sec-fetch-site": "same-origin", "origin": "http://localhost"}


def console(address: object, **options: Any) -> TestClient:
    return TestClient(create_app(ConsoleOptions(str(address), writes=True, **options)), base_url="http://localhost")


def fields(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in found}


def preview(client: TestClient, group: str, **chosen: object) -> Any:
    form = client.get("/group/reset", params={"id": group})
    assert form.status_code == 200
    return client.post("/group/reset", data=fields(form.text) | chosen, headers=SAME)


def confirm(client: TestClient, previewed: Any, **changes: str) -> Any:
    assert previewed.status_code == 200, previewed.text
    return client.post("/group/set", data=fields(previewed.text) | changes, headers=SAME)


def lag_on(page: str) -> int:
    """Return the lag of the only group on the list of groups."""
    (lag,) = re.findall(r"Empty\D+\d+\D+(\d+)", page)
    return int(lag)


def offsets(address: object, group: str) -> dict[tuple[str, int], int | None]:
    with open_admin(str(address)) as admin:
        (row,) = group_rows(admin, admin.describe_groups([group]))
    name = "start_offset" if row["type"] == "share" else "offset"
    return {(one["topic"], one["partition"]): one[name] for one in row["offsets"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with 2 partitions of 10 records, and a group that is at 4 in one of them and 6 in the other."""
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", 2)
        for number in range(2):
            logs["t", number].append([Record(b"k", b"v", timestamp=1000 * n) for n in range(10)])
        places = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 6}
        commit_offsets(logs, "g", {name: OffsetCommitValue(offset, "", 0) for name, offset in places.items()})
    return tmp_path / "data"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "after"),
    [
        ({"to": "earliest"}, (0, 0)),
        ({"to": "latest", "partitions": "1"}, (4, 10)),
        ({"to": "offset", "value": "99", "topic": "t"}, (10, 10)),
        ({"to": "time", "value": "7000"}, (7, 7)),
        ({"to": "shift", "value": "-5"}, (0, 1)),
    ],
)
def test_what_was_previewed_is_done(folder: Path, chosen: dict[str, str], after: tuple[int, int]) -> None:
    with console(folder) as client:
        assert "/group/reset?id=g" in client.get("/group?id=g").text
        assert lag_on(client.get("/groups").text) == 10
        previewed = preview(client, "g", **chosen)
        assert "Set these positions" in previewed.text
        assert tuple(offsets(folder, "g").values()) == (4, 6)
        done = confirm(client, previewed)
        assert (done.status_code, "The positions were set" in done.text) == (200, True)
        assert tuple(offsets(folder, "g").values()) == after
        text = re.sub(r"<[^>]*>", " ", client.get("/group?id=g").text)
        assert re.search(rf"t-1\s+{after[1]}\s+10", text)
        assert lag_on(client.get("/groups").text) == 20 - sum(after)
        # What is shown again is not done again.
        if after != (4, 6):
            assert confirm(client, previewed).status_code == 409


@pytest.mark.slow
def test_positions_that_moved_are_previewed_again(folder: Path) -> None:
    with console(folder) as client:
        previewed = preview(client, "g", to="earliest")
        with odradek.open(folder) as logs:
            commit_offsets(logs, "g", {TopicPartition("t", 0): OffsetCommitValue(5, "", 0)})
        again = confirm(client, previewed)
        assert (again.status_code, "Nothing was changed" in again.text) == (409, True)
        assert tuple(offsets(folder, "g").values()) == (5, 6)
        # Another plan than the one that was seen is none, either.
        changed = client.post("/group/set", data=fields(again.text) | {"plan": "t,0,9\n"}, headers=SAME)
        assert (changed.status_code, tuple(offsets(folder, "g").values())) == (409, (5, 6))
        assert client.post("/group/set", data=fields(again.text), headers=SAME).status_code == 200
        assert tuple(offsets(folder, "g").values()) == (0, 0)


@pytest.mark.slow
def test_line_ends_of_a_group_are_not_those_of_another_one(folder: Path) -> None:
    with odradek.open(folder) as logs:
        for group in ("a\nb", "a\r\nb"):
            commit_offsets(logs, group, {TopicPartition("t", 0): OffsetCommitValue(4, "", 0)})
    with console(folder) as client:
        form = client.get("/group/reset", params={"id": "a\nb"})
        for path, chosen in (("/group/reset", {"to": "earliest"}), ("/group/set", {})):
            # As browsers send fields.
            sent = {name: re.sub("\r\n|\r|\n", "\r\n", value) for name, value in fields(form.text).items()}
            form = client.post(path, data=sent | chosen, headers=SAME)
    assert offsets(folder, "a\nb") == {("t", 0): 0}
    assert offsets(folder, "a\r\nb") == {("t", 0): 4}


@pytest.mark.slow
def test_a_folder_that_is_in_use_is_not_changed(folder: Path) -> None:
    with console(folder) as client:
        previewed = preview(client, "g", to="earliest")
        with odradek.open(folder):
            refused = confirm(client, previewed)
        assert refused.status_code == 500
        assert "lock" in refused.text
        assert tuple(offsets(folder, "g").values()) == (4, 6)


@pytest.mark.slow
def test_groups_of_a_broker_are_reset() -> None:
    with Broker() as broker:
        broker.create_topic("events")
        broker.logs["events", 0].append([Record(b"k", b"v")] * 7)
        broker.commit_offsets("g", {("events", 0): 3})
        address = f"kafka://{broker.bootstrap_servers}"
        with console(address) as client:
            previewed = preview(client, "g", to="latest")
            # The end moves on; what was seen is done all the same.
            broker.logs["events", 0].append([Record(b"k", b"v")])
            assert confirm(client, previewed).status_code == 200
            assert offsets(address, "g") == {("events", 0): 7}
            previewed = preview(client, "g", to="earliest")
            broker.commit_offsets("g", {("events", 0): 8})
            assert confirm(client, previewed).status_code == 409
            assert offsets(address, "g") == {("events", 0): 8}


@pytest.mark.slow
@pytest.mark.parametrize("group", ["share", "consumer"])
def test_groups_that_kafka_left_with_members(kafka_groups: Path, tmp_path: Path, group: str) -> None:
    folder = shutil.copytree(kafka_groups / "log-dir", tmp_path / "data")
    with console(folder) as client:
        refused = preview(client, group, to="earliest")
        assert ("Set these positions" in refused.text, "stop them first" in refused.text) == (False, True)
        forced = preview(client, group, to="earliest", force="1")
        # The button is not all that refuses it.
        assert confirm(client, forced, force="").status_code == 409
        assert confirm(client, forced).status_code == 200
        assert set(offsets(folder, group).values()) == {0}


@pytest.mark.slow
def test_only_members_that_were_previewed_are_removed(
    kafka_groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(kafka_groups / "log-dir", tmp_path / "data")
    before = offsets(folder, "consumer")
    describe = resets._group
    with console(folder) as client:
        monkeypatch.setattr(resets, "_group", lambda *asked: replace(describe(*asked), members=()))
        forced = preview(client, "consumer", to="earliest", force="1")
        # Its broker ran again, and others have joined.
        monkeypatch.setattr(resets, "_group", describe)
        assert confirm(client, forced).status_code == 409
    assert offsets(folder, "consumer") == before


@pytest.mark.slow
def test_what_is_wrong_is_told(folder: Path) -> None:
    with console(folder) as client:
        for chosen in (
            {"to": "nowhere"},
            {"to": "offset"},
            {"to": "offset", "value": "-1"},
            {"to": "time", "value": "yesterday"},
            {"to": "earliest", "partitions": "1;2"},
            {"to": "earliest", "partitions": "9" * 500},
            {"to": "earliest", "partitions": "7"},
        ):
            assert preview(client, "g", **chosen).status_code == 400, chosen
        assert preview(client, "g", to="earliest", topic="nothing").status_code == 404
        assert client.get("/group/reset?id=nothing").status_code == 410
        good = preview(client, "g", to="earliest")
        for plan in ("", "t,0", "t,0,x", "../t,0,1", "t,0,1\nt,0,2", "nothing,0,1", "t,99999999999,1"):
            assert confirm(client, good, plan=plan).status_code == 400, plan
        assert confirm(client, good, plan="t" * (1 << 20)).status_code == 413
        assert tuple(offsets(folder, "g").values()) == (4, 6)


@pytest.mark.slow
def test_only_a_form_of_this_browser_changes_something(folder: Path) -> None:
    with console(folder) as client:
        form = fields(preview(client, "g", to="earliest").text)
        cookie = client.get("/group/reset?id=g", headers={"cookie": ""}).headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        for path in ("/group/reset", "/group/set"):
            for sent in ({}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
                assert client.post(path, data=form, headers=sent).status_code == 403
            for token in ("", "x", "é", "0" * 64):
                assert client.post(path, data=form | {"token": token}, headers=SAME).status_code == 403
            other = client.post(path, data=form, headers=SAME | {"cookie": "odradek-session=other"})
            assert (other.status_code, "of this browser" in other.text) == (403, True)
            assert client.post(path, data=form, headers=SAME | {"host": "evil.example"}).status_code == 421
        assert client.get("/group/set", params=form).status_code == 405
        assert client.get("/group/reset", params=form | {"plan": "t,0,1"}).status_code == 200
        assert tuple(offsets(folder, "g").values()) == (4, 6)


@pytest.mark.slow
def test_without_write_there_is_no_route(folder: Path) -> None:
    app = create_app(ConsoleOptions(str(folder)))
    with TestClient(app, base_url="http://localhost") as client:
        assert "reset" not in client.get("/group?id=g").text
        for path in ("/group/reset", "/group/set"):
            assert client.get(f"{path}?id=g").status_code == 404
            assert client.post(path, data={"id": "g", "to": "earliest"}, headers=SAME).status_code == 404
    changing = [one.path for one in app.routes if isinstance(one, Route) and one.methods and "POST" in one.methods]
    assert changing == ["/login", "/logout"]


@pytest.mark.slow
def test_with_a_password_the_form_is_that_of_the_login(folder: Path) -> None:
    with console(folder, password="p") as client:
        assert client.post("/group/set", data={"token": "x"}, headers=SAME).status_code == 401
        client.post("/login", data={"password": "p"}, headers=SAME)
        previewed = preview(client, "g", to="earliest")
        first = fields(previewed.text)
        client.post("/login", data={"password": "p"}, headers=SAME)
        assert client.post("/group/set", data=first, headers=SAME).status_code == 403
        assert confirm(client, preview(client, "g", to="earliest")).status_code == 200
