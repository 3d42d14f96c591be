"""The console in a real browser, Debian's Chromium: each page over a folder, our broker and Apache Kafka.

Playwright drives it. axe-core, which checks what people with screen readers and keyboards need, finds nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

import odradek
from odradek.console import history
from odradek.console.history import History
from odradek.messages.coordinators.group_records import OffsetCommitValue
from odradek.minutes import this_minute
from odradek.places.group_log import commit_offsets
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.storage.names import TopicPartition
from peers.command import rows
from peers.every_group import SETTINGS, TIMEOUT_S
from peers.fixtures import BrokerFactory
from peers.jars import require
from peers.kafka_fixture import KafkaFixture
from peers.process import wait_for

PAGES = (
    "/",
    "/topics",
    "/topics/keyed",
    "/topics/keyed/records",
    "/topics/keyed/records?columns=key,length(value)",
    "/topics/keyed/0/5",
    "/topics/keyed/tail",
    "/search",
    "/search?topic=keyed&pattern=segment",
    "/groups",
    "/transactions",
    "/cluster",
    "/topics/nothing",
)
OF_FOLDERS = ("/files", "/files/verify")
MARKUP = b"<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    require("chromium")
    path = shutil.which("chromium")
    with playwright.sync_playwright() as running:
        # Root may not use the sandbox, and a container has no shared memory to speak of.
        launched = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


@pytest.fixture(params=["light", "dark"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page that fails its test for an error of a script, a refusal of the content policy, or a request elsewhere."""
    context = browser.new_context(color_scheme=request.param)
    found = context.new_page()
    wrong: list[str] = []
    found.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("request", lambda asked: wrong.append(asked.url) if "//127.0.0.1:" not in asked.url else None)
    yield found
    context.close()
    # A page that is not there is an error for Chromium's console, too, and so is the end of the server.
    assert [text for text in wrong if "404" not in text and "net::ERR" not in text] == []


@contextmanager
def served(place: object, *options: str, password: str | None = None) -> Iterator[str]:
    command = [sys.executable, "-m", "odradek", "ui", str(place), "--port", "0", *options]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            if password is not None:
                process.stdin.write(password)
            process.stdin.close()
            line = process.stderr.readline()
            found = re.search(r"http://\S+?/(?=,)", line)
            assert found, line + process.stderr.read()
            # What it says later must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[0].rstrip("/")
        finally:
            process.kill()


def violations(page: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [f"{page.url}: {one['id']}: {one['nodes'][0]['html']}" for one in found]


def reset(page: Any, address: str, group: str, to: str, value: str, row: str) -> None:
    """Set a group's positions, as somebody does who has no mouse."""
    page.goto(f"{address}/group?id={quote(group, safe='')}")
    page.get_by_role("link", name="Reset its positions").press("Enter")
    page.locator("select[name=to]").select_option(to)
    assert violations(page) == []
    page.get_by_label("Offset, time (UTC) or number").fill(value)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("^Preview")).wait_for()
    assert violations(page) == []
    assert re.search(row, " ".join(page.locator("main table").inner_text().split()))
    page.get_by_role("button", name="Set these positions").press("Enter")
    page.get_by_role("status").wait_for()
    assert violations(page) == []


def visited(page: Any, address: str, paths: tuple[str, ...]) -> None:
    for path in paths:
        opened(page, address + path)
        assert violations(page) == []


def opened(page: Any, address: str) -> None:
    page.goto(address)
    assert page.locator("h1").count() == 1
    # The script has begun, and the style sheet counts.
    assert page.evaluate("getComputedStyle(document.querySelector('.skip')).position") == "absolute"


def test_every_page_over_a_folder(page: Any, fixture_4_3_1: KafkaFixture) -> None:
    with served(fixture_4_3_1.log_dir) as address:
        visited(page, address, PAGES + OF_FOLDERS)
        page.set_viewport_size({"width": 320, "height": 600})
        for path in PAGES:
            page.goto(address + path)
            # Nothing but tables and plots is wider than a narrow window, and those scroll by themselves.
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


@pytest.mark.compared
@pytest.mark.laboratory  # the pages are those of a folder
def test_every_page_over_a_broker(browser: Any, fixture_broker: Any) -> None:
    page = browser.new_page()
    with served(f"kafka://{fixture_broker.bootstrap_servers}") as address:
        # axe, which takes seconds a page, has seen the same pages over a folder.
        for path in PAGES:
            opened(page, address + path)
        page.goto(f"{address}/topics/keyed/records?at=start&count=25")
        assert page.locator("article.record").count() == 25
    page.close()


JOB = """
name = "keyed"
source = { path = "%s", subscribe = "keyed" }
offsets.store = "file:offsets.json"
sink = [{ type = "console" }]
"""


@pytest.mark.laboratory  # a browser; every_page_over_a_folder opens the pages
def test_plots_over_time_and_pipelines(page: Any, fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB % fixture_4_3_1.log_dir, encoding="utf-8")
    kept, now = History(tmp_path / "history"), this_minute()
    for minute in range(4, 1, -1):
        # As a console that ran in the last minutes has kept it.
        with mock.patch.object(history, "this_minute", return_value=now - minute):
            kept.note(1000 * minute, 1000 // minute, [{"group": "g", "lag": 7, "offsets": []}])
    kept.close()
    options = ("--pipeline", str(tmp_path / "job.toml"), "--history", str(tmp_path / "history"))
    with served(fixture_4_3_1.log_dir, *options) as address:
        page.goto(f"{address}/")
        # The first survey ends when it does.
        while not page.get_by_role("heading", name="What is wrong").count():
            page.reload()
        names = ("Size of all topics", "Offsets written per second", "Lag of all groups")
        for name in names:
            plot = page.get_by_role("img", name=name)
            assert plot.is_visible()
            # The style sheet draws the line, in the colours of the page.
            line = plot.locator(".line")
            assert line.evaluate("one => getComputedStyle(one).stroke") not in ("none", "rgb(0, 0, 0)")
            assert line.bounding_box()["height"] > 0 or name == names[2]
        assert violations(page) == []
        paths = ["/", "/pipelines", "/topics/keyed?since=2020-01-01&until=2040-01-01", "/files?q=keyed"]
        page.goto(f"{address}/groups")
        paths.append(page.locator("main tbody a").first.get_attribute("href"))
        visited(page, address, tuple(paths))
        page.set_viewport_size({"width": 320, "height": 600})
        for path in paths:
            page.goto(address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        page.goto(f"{address}/topics/keyed")
        with page.expect_download() as download:
            page.get_by_role("link", name="as Parquet").click()
        assert pq.read_table(download.value.path()).num_rows == sum(
            len(found["records"]) for name, found in fixture_4_3_1.consumed.items() if name.startswith("keyed-")
        )


def test_records_come_live_and_cannot_run_scripts(page: Any, tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs, ExitStack() as stack:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"first", MARKUP)])
        address = stack.enter_context(served(tmp_path / "data"))
        page.goto(f"{address}/topics/t/tail")
        page.locator("#tail").get_by_text("first", exact=True).wait_for()
        logs["t", 0].append([Record(b"second", MARKUP, [("<b>h", MARKUP)])])
        page.locator("#tail").get_by_text("second", exact=True).wait_for()
        # What came last is first.
        assert page.locator("#tail article").first.get_by_text("second", exact=True).count() == 1
        page.get_by_role("button", name="Pause").click()
        assert page.get_by_role("status").inner_text() == "Paused."
        assert (page.title(), page.locator("#tail img, #tail script").count()) == ("t, live – Odradek", 0)
        page.goto(f"{address}/topics/t/records")
        assert (page.title(), page.locator("main img, main script").count()) == ("t-0 – Odradek", 0)


def test_a_search_by_the_keyboard_alone(page: Any, fixture_4_3_1: KafkaFixture) -> None:
    with served(fixture_4_3_1.log_dir) as address:
        page.goto(f"{address}/search")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.get_by_label("Topic").fill("keyed")
        page.get_by_label("Pattern, text or key").fill("seg.*epoch")
        page.keyboard.press("Enter")
        page.locator(".result").wait_for()
        assert page.locator("article.record").count() > 0
        # Of the progress, only the result is left.
        assert page.locator(".progress:visible").count() == 0


def test_a_reader_logs_in(page: Any, fixture_4_3_1: KafkaFixture) -> None:
    with served(fixture_4_3_1.log_dir, "--password-file", "-", password="correct horse\n") as address:
        page.goto(f"{address}/topics")
        assert page.url == f"{address}/login"
        assert violations(page) == []
        page.get_by_label("Password").fill("correct horse")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{address}/login")
        page.goto(f"{address}/topics")
        assert page.url == f"{address}/login"


def test_a_reset_by_the_keyboard_alone(page: Any, tmp_path: Path) -> None:
    name = TopicPartition("orders", 0)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
        logs["orders", 0].append([Record(b"k", b"v")] * 10)
        commit_offsets(logs, MARKUP.decode(), {name: OffsetCommitValue(4, "", 0)})
    with served(tmp_path / "data", "--write") as address:
        reset(page, address, MARKUP.decode(), "shift", "-3", "orders-0 4 1 0 10")
    with open_place(tmp_path / "data") as place:
        assert place.group_offsets()[MARKUP.decode()][name].offset == 1


@pytest.mark.laboratory  # unit/console has the resets, and the next one the keys
@pytest.mark.compared
def test_resets_over_brokers(browser: Any, any_broker: BrokerFactory, kafka_groups: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kafka_groups / "log-dir", tmp_path / "groups"))
    page, address = browser.new_page(), f"kafka://{any_broker(folder, SETTINGS).bootstrap_servers}"
    groups = ("idle", "idle-share")
    wait_for(lambda: set(groups) <= {row["group"] for row in rows("groups", "list", address)}, TIMEOUT_S, "the groups")
    with served(address, "--write") as at:
        for group in groups:
            reset(page, at, group, "offset", "7", r"events-3 \d+ 7 0 20")
    for row in rows("groups", "describe", address, *groups):
        assert {one.get("offset", one.get("start_offset")) for one in row["offsets"]} == {7}
    page.close()


@pytest.mark.laboratory  # it draws, and compares nothing
def test_the_pictures_of_the_documentation_can_be_taken(browser: Any, tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    subprocess.run([sys.executable, docs / "pictures.py", tmp_path], check=True, timeout=120)
    named = set(re.findall(r"\(pictures/(\S+)\)", (docs / "console.md").read_text(encoding="utf-8")))
    for folder in (tmp_path, docs / "pictures"):
        assert {path.name for path in folder.iterdir()} == named
        assert max(path.stat().st_size for path in folder.iterdir()) < 60_000
