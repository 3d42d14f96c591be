"""What ARCHITECTURE.md says of the code is so."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.locks import Rank

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = Path(odradek.__file__).parent


def ways() -> tuple[list[str], list[str]]:
    """Return the two columns of the table of files."""
    rows = re.findall(r"^\| `([a-z_/]+\.py)` \| (?:`([a-z_/]+\.py)`)? *\|$", TEXT, re.MULTILINE)
    return [first for first, _ in rows], [second for _, second in rows if second]


def calls(action: Callable[[], object], files: list[str]) -> list[tuple[str, str]]:
    """Return the calls from one of some files to another, in their order; those between them do not count."""
    found: list[tuple[str, str]] = []

    def place(frame: FrameType | None) -> str:
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE) and str(path.relative_to(PACKAGE)) in files:
                return str(path.relative_to(PACKAGE))
            frame = frame.f_back
        return ""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            caller, called = place(frame.f_back), place(frame)
            if caller != called:
                found.append((caller, called))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def check(action: Callable[[], object], files: list[str]) -> None:
    found = calls(action, files)
    for caller, called in found:
        assert not caller or files.index(caller) < files.index(called), f"{caller} calls {called}"
    assert {called for _, called in found} == set(files)


def test_an_append_and_a_look_up_go_down_a_list_of_files(tmp_path: Path) -> None:
    to_the_file, by_time = ways()
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"index.interval.bytes": "100"})
        log = logs["t", 0]
        log.append([Record(b"k", b"%0100d" % number, timestamp=1_700_000_000_000 + number) for number in range(9)])
        log.append([Record(b"k", b"v", timestamp=1_700_000_000_009)])
        batch = build_batch(
            [Record(b"k", b"v", timestamp=1_700_000_000_010)], producer_id=7, producer_epoch=0, base_sequence=0
        )
        check(lambda: log.append_batches(bytearray(batch)), to_the_file)
    with odradek.open(tmp_path) as logs:
        log = logs["t", 0]
        check(lambda: log.offset_for_time(1_700_000_000_009), by_time)


def test_the_order_of_locks_is_the_one_that_is_held() -> None:
    assert re.findall(r"^\| ([A-Z]+) \|", TEXT, re.MULTILINE) == [rank.name for rank in Rank]
