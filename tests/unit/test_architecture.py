"""What ARCHITECTURE.md says of the code is so."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

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


def questions() -> list[tuple[str, str]]:
    """Return the file and the name that answer each question of a newcomer."""
    return re.findall(r"^\| [^|]+\? \| `([a-z0-9_/]+\.py)` \| `(\w+)` \|$", TEXT, re.MULTILINE)


def test_at_least_ten_questions_are_answered() -> None:
    assert len(questions()) >= 10
    assert len(questions()) == TEXT.count("? | `")


@pytest.mark.parametrize(("file", "name"), questions())
def test_the_answer_to_a_question_is_a_class_or_function_there(file: str, name: str) -> None:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert name in defined


def named_paths() -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+/[A-Za-z0-9_/.-]*|[a-z0-9_]+\.py)`", TEXT))


def test_every_file_that_is_named_exists() -> None:
    missing = {path for path in named_paths() if not (PACKAGE / path).exists() and not (ROOT / path).exists()}
    assert not missing


def test_the_layers_are_those_of_the_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}
    drawings = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    drawn = [[line.split("  ")[0] for line in drawing.splitlines()] for drawing in drawings[:2]]
    assert drawn[0] == contracts["arrows point down"]["layers"]
    inner = [layer for layer in contracts["arrows point down within storage"]["layers"] if "names" not in layer]
    assert [layer for layer in drawn[1] if "names" not in layer] == inner
