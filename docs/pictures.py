"""Takes the pictures of docs/console.md: a folder with orders is made, and its pages are shown in Chromium.

python docs/pictures.py [FOLDER]

It needs Debian's `chromium` and the package `playwright`. Each picture is a WebP of less than 60 kB.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

import odradek
from odradek.messages.coordinators.group_records import OffsetCommitValue
from odradek.places.group_log import commit_offsets
from odradek.records import Record
from odradek.storage.names import TopicPartition

PICTURES = Path(__file__).parent / "pictures"
_WIDTH = 1000
_START_MS = 1_790_000_000_000
_SHOPS = ("Vienna", "Prague", "Graz", "Brno")
_GROUPS = {"billing": (0, 0, 0), "shipping": (310, 42, 0), "search-index": (900, 850, 700)}


def make_folder(folder: Path) -> None:
    """Make a log directory with three topics, and three groups of which two are behind."""
    with odradek.open(folder) as logs:
        logs.create_topic("orders", 3, config={"retention.ms": "604800000"})
        logs.create_topic("payments", 1)
        logs.create_topic("returns", 1, config={"cleanup.policy": "compact"})
        for number in range(3):
            name = TopicPartition("orders", number)
            for first in range(0, 3000, 100):
                logs[name].append([_order(number, n) for n in range(first, first + 100)])
        for topic, count in (("payments", 4000), ("returns", 300)):
            logs[topic, 0].append(
                [Record(b"o-%d" % n, b'{"paid": %d}' % (n % 90), timestamp=_START_MS) for n in range(count)]
            )
        for group, lags in _GROUPS.items():
            places = {TopicPartition("orders", number): 3000 - lag for number, lag in enumerate(lags)}
            commit_offsets(logs, group, {name: OffsetCommitValue(offset, "", 0) for name, offset in places.items()})


def _order(partition: int, n: int) -> Record:
    order: dict[str, Any] = {
        "id": 3 * n + partition,
        "shop": _SHOPS[n % 4],
        "total": n * 37 % 1000 / 10,
        "user": {"id": n % 211},
    }
    headers = [("trace", b"%08x" % (n * 2_654_435_761 % 2**32))]
    return Record(b"o-%d" % order["id"], json.dumps(order).encode(), headers, timestamp=_START_MS + 20_000 * n)


@contextmanager
def console(folder: Path) -> Iterator[str]:
    """Serve a folder; yield the console's address."""
    command = [sys.executable, "-m", "odradek", "ui", folder.name, "--port", "0", "--write"]
    with subprocess.Popen(command, cwd=folder.parent, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+?(?=/,)", line)
            assert found, line + process.stderr.read()
            yield found[0]
        finally:
            process.terminate()


def _home(page: Page) -> None:
    page.get_by_role("link", name="shipping").wait_for()


def _search(page: Page) -> None:
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("Condition").fill("value.total > 99 and value.shop like 'Vi%'")
    page.get_by_role("button", name="Search").click()
    page.locator(".result").wait_for()


def _reset(page: Page) -> None:
    page.locator("select[name=to]").select_option("time")
    page.get_by_label("Offset, time (UTC) or number").fill("2026-09-22T02:00")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name=re.compile("^Preview")).wait_for()


def _record(page: Page) -> None:
    page.get_by_role("heading", name="Where it lies").wait_for()


SHOWN = {
    "home": ("light", 640, "/", _home),
    "search": ("light", 640, "/search", _search),
    "record": ("dark", 640, "/topics/orders/1/1234#why", _record),
    "reset": ("light", 480, "/group/reset?id=shipping", _reset),
}
"""Each picture: its colours, its height, its page, and what is done there."""


def take(folder: Path) -> None:
    """Take the pictures."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        data = Path(made) / "kafka-data"
        make_folder(data)
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        with console(data) as address:
            for name, (colours, height, path, do) in SHOWN.items():
                size: Any = {"width": _WIDTH, "height": height}
                context = browser.new_context(color_scheme=colours, viewport=size)  # type: ignore[arg-type]
                page = context.new_page()
                page.goto(address + path)
                do(page)
                shot: Any = {"format": "webp", "quality": 55}
                taken = context.new_cdp_session(page).send("Page.captureScreenshot", shot)
                (folder / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
                context.close()
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
