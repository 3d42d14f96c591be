"""What ARCHITECTURE.md says of the code is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage import locks
from odradek.storage.locks import Rank
from peers.broker_thread import connect, start
from peers.group_requests import find_coordinator, new_member
from peers.requests import batch, fetch_message, produce_message
from peers.walks import CONTRACTS, PACKAGE, ROOT, TEXT, Trace, check_walk, layer, trace_of, traced, walks


@pytest.mark.parametrize("name", walks())
def test_no_step_of_a_walk_goes_up_the_layers(name: str) -> None:
    walk = walks()[name]
    assert len(walk) > 2
    for before, step in pairwise(walk):
        assert layer(before.file) <= layer(step.file), step.file
    for step in walk:
        assert all(layer(step.file) <= layer(file) for file in step.asked), step.file


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[odradek.WritableLogDirectory]:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"index.interval.bytes": "50"})
        yield logs


def given(count: int) -> list[Record]:
    return [Record(b"k", b"%0100d" % number, timestamp=1_700_000_000_000 + number) for number in range(count)]


def test_an_append_and_a_look_up_go_down_their_walks(logs: odradek.WritableLogDirectory, tmp_path: Path) -> None:
    log = logs["t", 0]
    log.append(given(9))
    batch = build_batch(given(1), producer_id=7, producer_epoch=0, base_sequence=0)
    appended = trace_of(lambda: log.append(given(1))) | trace_of(lambda: log.append_batches(bytearray(batch)))
    check_walk("append", appended)
    logs.close()
    with odradek.open(tmp_path) as logs:
        log = logs["t", 0]
        check_walk("a look-up by time", trace_of(lambda: log.offset_for_time(1_700_000_000_008)))


@pytest.mark.slow
def test_requests_go_down_their_walks(tmp_path: Path) -> None:
    with start(tmp_path, **{"offsets.topic.num.partitions": 1}) as running, connect(running) as client:

        def trace(action: Callable[[], object]) -> Trace:
            trace: Trace = set()
            profile = traced(trace)
            running.call(profile.__enter__)
            try:
                action()
            finally:
                running.call(partial(profile.__exit__, None, None, None))
            return trace

        running.broker.logs.create_topic("events", config={"index.interval.bytes": "50"})
        produce = partial(client.call, 0, 12, produce_message(batch(b"%0100d" % 1)))
        produce()
        find_coordinator(client)
        new_member(client, "first")
        check_walk("Produce", trace(produce))
        fetches = [fetch_message(offset, session_id=0, session_epoch=0, max_wait_ms=5) for offset in (0, 2)]
        check_walk("Fetch", trace(lambda: [client.call(1, 12, one) for one in fetches]))
        check_walk("JoinGroup", trace(lambda: new_member(client, "second")))


def test_a_task_of_spark_goes_down_its_walk(logs: odradek.WritableLogDirectory, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from odradek.spark.source import OdradekDataSource

    logs["t", 0].append(given(9))
    source = OdradekDataSource({"path": str(tmp_path), "subscribe": "t"})
    reader = source.reader(source.schema())
    [split] = reader.partitions()
    check_walk("a batch of a pipeline: a task reads its split", trace_of(lambda: [*reader.read(split)]))


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


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("file", "name"), questions())
def test_the_answer_to_a_question_is_a_class_or_function_there(file: str, name: str) -> None:
    assert name in defined_in(PACKAGE / file)


def test_a_name_beside_a_file_is_defined_there() -> None:
    pairs = re.findall(r"`([a-z0-9_/]+\.py)`, `(\w+)`", TEXT)
    assert pairs
    assert [name for file, name in pairs if name not in defined_in(PACKAGE / file)] == []


@pytest.mark.slow
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
    drawings = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    drawn = [[line.split("  ")[0] for line in drawing.splitlines()] for drawing in drawings[:2]]
    assert drawn[0] == CONTRACTS["arrows point down"]["layers"]
    inner = [layer for layer in CONTRACTS["arrows point down within storage"]["layers"] if "names" not in layer]
    assert [layer for layer in drawn[1] if "names" not in layer] == inner


def test_drawings_are_indented() -> None:
    """A docstring that is only a drawing after its first line loses its indentation to the formatter."""
    docstring = re.compile(r'^( *)r?"""(.*?)"""', re.MULTILINE | re.DOTALL)
    for path in PACKAGE.rglob("*.py"):
        for indent, text in docstring.findall(path.read_text(encoding="utf-8")):
            found = re.search(rf"^{indent}(?:[^ `\n][^`\n]* {{3,}}\S|[|+]).*", text, re.MULTILINE)
            assert found is None, f"{path}: {found[0]}: indent it, and add a sentence below it"
