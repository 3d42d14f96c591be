"""Who gets an answer of the console, and what browsers may do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import anyio
import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from odradek.console.app import create_app
from odradek.console.guard import Guard
from odradek.console.options import ConsoleOptions
from odradek.console.sessions import COOKIE, Sessions
from peers.kafka_fixture import KafkaFixture

PASSWORD = "correct horse"
SAME = {"sec-fetch-site": "same-origin", "origin": "http://localhost"}


@pytest.fixture(scope="module")
def client(fixture_4_3_1: KafkaFixture) -> Iterator[TestClient]:
    options = ConsoleOptions(str(fixture_4_3_1.log_dir), hosts=frozenset({"box.lan"}))
    with TestClient(create_app(options), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def locked(fixture_4_3_1: KafkaFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr("odradek.console.app._WRONG_PASSWORD_S", 0.0)
    options = ConsoleOptions(str(fixture_4_3_1.log_dir), password=PASSWORD)
    with TestClient(create_app(options), base_url="http://localhost", follow_redirects=False) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1:8080", "[::1]:80", "10.1.2.3", "BOX.lan:1"])
def test_the_consoles_own_hosts_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/topics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.",
        "[localhost]",
        "evil@localhost",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "a:b:c",
        "::1x",
    ],
)
def test_a_name_that_leads_here_is_not_enough(client: TestClient, host: str) -> None:
    answer = client.get("/topics", headers={"host": host})
    assert (answer.status_code, "keyed" in answer.text) == (421, False)


@pytest.mark.slow
def test_another_site_cannot_read_or_load_pages(client: TestClient) -> None:
    for site in ("cross-site", "same-site"):
        for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "script")):
            sent = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
            assert client.get("/search", headers=sent).status_code == 403
        followed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert client.get("/topics", headers=followed).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://[::1"},
    ],
)
@pytest.mark.parametrize("path", ["/login", "/logout", "/topics"])
def test_what_changes_something_comes_from_the_console(locked: TestClient, path: str, sent: dict[str, str]) -> None:
    answer = locked.post(path, data={"password": PASSWORD}, headers=sent)
    assert (answer.status_code, answer.cookies.get(COOKIE)) == (403, None)


@pytest.mark.slow
def test_every_answer_forbids_what_browsers_could_do_with_it(client: TestClient) -> None:
    for path in ("/", "/nothing", "/static/console.js", "/login"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.slow
def test_pages_have_no_script_or_style_of_their_own(client: TestClient) -> None:
    paths = ["/", "/topics", "/topics/keyed", "/topics/keyed/records", "/topics/keyed/0/5", "/topics/keyed/tail"]
    paths += [
        "/search",
        "/search?topic=keyed&pattern=a",
        "/groups",
        "/transactions",
        "/cluster",
        "/files",
        "/files/verify",
        "/login",
    ]
    for path in paths:
        page = client.get(path).text
        assert not re.search(r"<script(?! src=\"/static/console.js\" defer)|<style| style=| on\w+=|javascript:", page)
        # Nothing outside of the console is asked for.
        assert not re.search(r"(?:src|href|action)=\"(?!/|\?|#)", page)


def test_without_the_password_nothing_is_shown(locked: TestClient) -> None:
    for path in ("/", "/topics", "/topics/keyed"):
        answer = locked.get(path)
        assert (answer.status_code, answer.headers["location"], "keyed" in answer.text) == (303, "/login", False)
    answer = locked.get("/topics", headers={"sec-fetch-dest": "empty"})
    assert (answer.status_code, "keyed" in answer.text) == (401, False)
    assert locked.get("/static/../topics").status_code == 303
    assert locked.get("/static/%2e%2e/topics").status_code in (303, 404)


@pytest.mark.slow
def test_a_reader_logs_in_and_out(locked: TestClient) -> None:
    wrong = locked.post("/login", data={"password": "wrong"}, headers=SAME)
    assert (wrong.status_code, wrong.cookies.get(COOKIE)) == (403, None)
    right = locked.post("/login", data={"password": PASSWORD}, headers=SAME)
    assert right.status_code == 303
    cookie = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert PASSWORD not in cookie
    assert locked.get("/topics").status_code == 200
    token = locked.cookies[COOKIE]
    assert locked.post("/logout", headers=SAME).status_code == 303
    # The token itself is forgotten, not only by the browser.
    assert locked.get("/topics", headers={"cookie": f"{COOKIE}={token}"}).status_code == 303


def test_passwords_beyond_some_at_once_are_not_even_compared(locked: TestClient) -> None:
    waiting = locked.app.state.console.logins  # type: ignore[attr-defined]
    for busy in ({"testclient": 2}, {str(number): 2 for number in range(4)}):
        waiting.update(busy)
        assert locked.post("/login", data={"password": PASSWORD}, headers=SAME).status_code == 429
        waiting.clear()
    waiting.update({"10.0.0.1": 2})
    assert locked.post("/login", data={"password": "wrong"}, headers=SAME).status_code == 403
    assert waiting == {"10.0.0.1": 2}
    assert locked.post("/login", data={"password": PASSWORD}, headers=SAME).status_code == 303


def test_a_large_form_is_refused(locked: TestClient) -> None:
    assert locked.post("/login", data={"password": "x" * 5000}, headers=SAME).status_code == 413
    assert locked.post("/login", data={str(n): "x" for n in range(60)}, headers=SAME).status_code == 400


def test_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, now = Sessions("p"), 1000.0
    monkeypatch.setattr("odradek.console.sessions.time.monotonic", lambda: now)
    token = sessions.log_in("p")
    assert sessions.log_in("P") is None
    assert sessions.knows(token)
    now += 13 * 3600
    assert not sessions.knows(token)
    # There are never more than a thousand.
    tokens = [sessions.log_in("p") for _ in range(1001)]
    assert [sessions.knows(one) for one in (tokens[0], tokens[1], tokens[-1])] == [False, True, True]


def test_a_browser_that_takes_nothing_does_not_keep_its_page() -> None:
    closed: list[str] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
        finally:
            closed.append("page")

    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    async def nothing() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    guard = Guard(endless, Sessions(None), (), send_timeout_s=0.01)
    anyio.run(guard, scope, nothing, stuck)
    assert closed == ["page"]


@pytest.mark.parametrize("target", ["http://localhost/topics", "*", "localhost:80"])
def test_a_target_with_its_own_host_is_refused(target: str) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def nothing() -> Message:
        raise AssertionError

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": target, "headers": [(b"host", b"localhost")]}
    anyio.run(Guard(page, Sessions(None), ()), scope, nothing, send)
    assert sent[0]["status"] == 421


def test_numbers_of_any_length_in_a_path_are_no_page(client: TestClient) -> None:
    assert client.get(f"/topics/keyed/{'9' * 5000}/1").status_code == 404
