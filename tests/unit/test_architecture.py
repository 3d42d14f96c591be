"""What ARCHITECTURE.md says of the code is so."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage import locks
from odradek.storage.locks import Rank

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = Path(odradek.__file__).parent


def ways() -> tuple[list[str], list[str]]:
    """Return the two columns of the table of files."""
    rows = re.findall(r"^\| (?:`([a-z_/]+\.py)`)? *\| `([a-z_/]+\.py)` \|$", TEXT, re.MULTILINE)
    return [first for first, _ in rows if first], [second for _, second in rows]


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
        logs.create_topic("t", config={"index.interval.bytes": "50"})
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


def holders() -> dict[str, set[str]]:
    """Return the classes that make a lock of each rank."""
    found: dict[str, set[str]] = {rank.name: set() for rank in Rank}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for made_by in ast.walk(ast.parse(text)) if "create_lock(" in text else ():
            if isinstance(made_by, ast.ClassDef):
                for rank in re.findall(r"create_lock\(Rank\.([A-Z]+)\)", ast.unparse(made_by)):
                    found[rank].add(made_by.name)
    return found


@pytest.mark.parametrize(
    "lines",
    [
        re.findall(r"^\| ([A-Z]+) \|[^|]*\| (.*) \|$", TEXT, re.MULTILINE),
        re.findall(r"^    ([A-Z]+)  .*?(`.*`)$", locks.__doc__ or "", re.MULTILINE),
    ],
    ids=["page", "module"],
)
def test_the_order_of_locks_is_the_one_that_is_held(lines: list[tuple[str, str]]) -> None:
    assert [rank for rank, _ in lines] == [rank.name for rank in Rank]
    assert {rank: set(re.findall(r"`(\w+)`", names)) for rank, names in lines} == holders()


@cache
def defined_in(path: Path) -> set[str]:
    """Return the classes and functions of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def questions() -> list[tuple[str, str]]:
    """Return the file and the name that answer each question of a newcomer."""
    return re.findall(r"^\| [^|]+\? \| `([a-z0-9_/]+\.py)` \| `(\w+)` \|$", TEXT, re.MULTILINE)


def test_at_least_ten_questions_are_answered() -> None:
    assert len(questions()) >= 10
    assert len(questions()) == TEXT.count("? | `")


@pytest.mark.parametrize(("file", "name"), questions())
def test_the_answer_to_a_question_is_a_class_or_function_there(file: str, name: str) -> None:
    assert name in defined_in(PACKAGE / file)


def test_a_name_beside_a_file_is_defined_there() -> None:
    pairs = re.findall(r"`([a-z0-9_/]+\.py)`, `(\w+)`", TEXT)
    assert pairs
    assert [name for file, name in pairs if name not in defined_in(PACKAGE / file)] == []


def test_the_classes_of_the_storage_are_in_the_folders_that_the_drawing_names() -> None:
    drawing = re.search(r"^## Storage\n+```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert drawing is not None
    above: dict[int, list[str]] = {}
    for line in drawing[1].splitlines():
        indent, text = len(line) - len(line.lstrip()), line.strip()
        folders = re.findall(r"\b([a-z]+)/", text) or above[max(depth for depth in above if depth < indent)]
        above = {depth: known for depth, known in above.items() if depth < indent} | {indent: folders}
        modules = [path for folder in folders for path in (PACKAGE / "storage" / folder).glob("*.py")]
        defined = set().union(*map(defined_in, modules))
        assert set(re.split(r"  ", text)[0].split(", ")) <= defined, line


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
