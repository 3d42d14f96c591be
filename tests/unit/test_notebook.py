"""Tables and plots of notebooks: `_repr_html_`, `odradek.notebook`, and the notebook of the examples."""

from __future__ import annotations

import ast
import json
import mmap
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek import Record, TopicPartition, notebook
from odradek.errors import OptionError
from odradek.html_table import html_table
from peers.environments import environment

ROOT = Path(__file__).parents[2]
MARKUP = "<script>alert('&')</script>"
T0 = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=2, config={"internal.segment.bytes": 500, "retention.ms": -1})
        for number in range(20):
            content = MARKUP.encode() + b"%d\x1b[1m" % number
            record = Record(content, content, [(MARKUP, content)], T0 + number * 60_000)
            logs["orders", number % 2].append([record])
    with odradek.open_store(f"folder:{tmp_path / 'data'}?group=billing") as store:
        store.commit({TopicPartition("orders", 0): odradek.Position(4)}, expected=store.claim())
    return tmp_path / "data"


def shown(thing: Any) -> str:
    html = thing._repr_html_()
    assert isinstance(html, str)
    assert "<script" not in html
    assert "\x1b" not in html
    return html


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", html)]


@pytest.fixture(params=["r", "a"])
def logs(request: pytest.FixtureRequest, folder: Path) -> Iterator[odradek.LogDirectory]:
    with odradek.open(folder, mode=request.param) as logs:
        yield logs


def test_logs_show_their_sizes_and_read_no_record(logs: odradek.LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("odradek.storage.segment.segment.read_records", "odradek.records.batch.read_records"):
        monkeypatch.delattr(name)
    sizes = [logs["orders", number].size_bytes for number in range(2)]
    html = shown(logs)
    assert cells(html)[-1] == ["orders", "2", str(sum(sizes))]
    assert 'aria-label="The largest topics"' in html
    html = shown(logs.topic("orders"))
    assert [row[0::4] for row in cells(html)] == [[str(number), str(size)] for number, size in enumerate(sizes)]
    assert f"partition 1: {sizes[1]:,} bytes" in html
    html = shown(logs["orders", 1])
    assert ["log_end_offset", "10"] in cells(html)
    assert ["newest", "2023-11-14T22:32:20.000+00:00"] in cells(html)
    assert html.count("<rect") == len(logs["orders", 1].segments) > 1


def test_a_table_is_bounded(logs: odradek.LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    html = html_table("x" * 10**6, ("a",), [("y" * 10**6, b"z" * 10**6, [("h", b"v")] * 1000)] * 1000)
    assert len(html) < 150_000
    assert html.endswith("<tr><td>and 950 more</td></tr>\n</table>")
    monkeypatch.setattr("odradek.storage.directory.log_directory._MEASURED", 1)
    assert cells(shown(logs))[-1] == ["orders", "2"]


def test_what_cannot_be_read_is_said_and_not_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(folder, mode="r") as logs:
        topic, log = logs.topic("orders"), logs["orders", 0]
        for file in (folder / "orders-0").iterdir():
            file.unlink()
        (folder / "orders-0").rmdir()
        assert cells(shown(topic))[0][0] == "0"
        assert cells(shown(topic))[1][2] == "10"
        assert "No such file" in shown(log) or "deleted" in shown(log)
        assert len(cells(shown(logs))) >= 1
        monkeypatch.setattr(type(logs), "_listed", lambda _: 1 / 0)
        assert cells(shown(logs)) == [["ZeroDivisionError", "division by zero"]]
    for thing in (logs, topic, log):
        assert "closed" in shown(thing)


@pytest.mark.slow
def test_tables_have_what_the_console_shows_while_another_holds_the_folder(folder: Path) -> None:
    with odradek.open(folder):
        topics = notebook.topics(folder)
        assert topics.columns == ("topic", "partitions", "offsets", "size_bytes", "newest")
        assert [row[:3] for row in topics if row[0] == "orders"] == [("orders", 2, 20)]
        assert 'aria-label="The largest topics"' in shown(topics)
        assert notebook.groups(folder).rows == [("billing", "classic", "Empty", 0, 6)]
        assert notebook.group(folder, "billing").rows == [("orders", 0, 4, 10, 6, None)]
        assert "orders-0: 6" in shown(notebook.group(folder, "billing"))
        assert notebook.findings(folder).rows == []
        found = notebook.search(folder, "orders", "script>1[0-9]", condition="offset > 6", limit=2)
        assert [row[:3] for row in found] == [(0, 7, "2023-11-14 22:27:20.000Z"), (0, 8, "2023-11-14 22:29:20.000Z")]
        assert found.title.startswith("2 records of orders; ")
        assert len(cells(shown(found))) == len(found) == 2


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"mode": "regex"}])
def test_a_search_that_could_find_nothing_is_refused(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        notebook.search(folder, "orders", "script", **wrong)


@pytest.mark.slow
def test_findings_are_counted_by_kind(folder: Path) -> None:
    segment = min(folder.glob("orders-1/*.log"))
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        data[70] ^= 1
    found = notebook.findings(folder)
    assert [(row[0], row[2]) for row in found] == [(str(segment), "damage")]
    assert "damage: 1" in shown(found)


@pytest.mark.slow
def test_the_notebook_of_the_examples(tmp_path: Path) -> None:
    """Its cells are run as a kernel runs them: what the last line of a cell gives is shown."""
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shows: list[str] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            tree = ast.parse(cell["source"])
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)
            result = None if last is None else eval(ast.unparse(last), names)
            if result is not None:
                shows.append(shown(result))
    assert len(shows) == 8
    assert all("<table>" in html for html in shows)
    assert sum("<svg" in html for html in shows) == 7


RUN = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=120).execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.mark.laboratory
def test_the_notebook_in_a_kernel_of_jupyter(tmp_path: Path) -> None:
    paths = [str(ROOT / "src"), sysconfig.get_path("platlib")]
    given = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    command = [environment("notebook"), "-c", RUN, str(ROOT / "examples/notebook.ipynb"), str(tmp_path / "run.ipynb")]
    subprocess.run(command, env=given, check=True, timeout=280)
    cells = json.loads((tmp_path / "run.ipynb").read_text(encoding="utf-8"))["cells"]
    data = [output["data"] for cell in cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("<table>" in "".join(one["text/html"]) for one in data) == len(data) == 8


@pytest.mark.slow
def test_the_console_needs_no_web_server_for_it() -> None:
    program = "import sys, odradek.notebook; print({'starlette', 'uvicorn', 'jinja2'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
