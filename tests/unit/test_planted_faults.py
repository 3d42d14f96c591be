"""Faults that are planted into a copy of the project, one at a time: the gate is red, and its last lines name a test.

The copy is tested as `.ci/run` does it, but only by the file that is there for such a fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
_LEFT_OUT = (".git", ".venv", "build", "dist", ".*_cache", ".hypothesis", "__pycache__", "spark-warehouse")


class Fault(NamedTuple):
    """What is replaced in a file, by what, and the tests that must see it."""

    path: str
    old: str
    new: str
    judges: str


FAULTS = {
    "a record is lost where a job goes on": Fault(
        "src/odradek/spark/pipeline/planning.py",
        "starts = {name: known[name].offset for name in bounds}",
        "starts = {name: known[name].offset + (known[name].offset > 0) for name in bounds}",
        "tests/spark/test_forward.py",
    ),
    "records are forwarded twice after a crash": Fault(
        "src/odradek/spark/pipeline/forwarding.py",
        "else max(start, held.offset)",
        "else start",
        "tests/spark/test_forward_folder.py",
    ),
    "a table has each record twice, so words are counted twice": Fault(
        "src/odradek/spark/source.py",
        "return [*self._splits] or [InputPartition(None)]",
        "return [*self._splits, *self._splits]",
        "tests/spark/test_source.py",
    ),
    "an offset is wrong": Fault(
        "src/odradek/broker/api/k02_list_offsets.py",
        "NO_ERROR, found.timestamp, found.offset, partition",
        "NO_ERROR, found.timestamp, found.offset + 1, partition",
        "tests/unit/testing/test_conformance.py",
    ),
    "an error has another code": Fault(
        "src/odradek/broker/api/k20_delete_topics.py",
        "ErrorCode.unknown_topic_or_partition",
        "ErrorCode.invalid_topic_exception",
        "tests/interop/test_broker_admin.py",
    ),
    "an aborted record is given out": Fault(
        "src/odradek/storage/log/aborted_part.py",
        "return header in self._ranges",
        "return False",
        "tests/unit/storage/log/test_log.py",
    ),
    "a compaction takes an aborted record for the newest of its key": Fault(
        "src/odradek/storage/cleaning/offset_map_builder.py",
        "elif transactions.on_data_batch(header) or header.last_offset < start_offset:",
        "elif header.last_offset < start_offset:",
        "tests/interop/test_cleaner_kafka.py",
    ),
    "an example of the docs prints something else": Fault(
        "docs/cli/dump.md",
        "CreateTime",
        "CreationTime",
        "tests/unit/test_docs.py::test_examples[cli.md]",
    ),
    "a command cannot be started": Fault(
        "src/odradek/cli/groups.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport odradek.no_such_module\n",
        "tests/unit/cli/test_every_command.py",
    ),
    "a test ends its worker": Fault(
        "tests/interop/test_store_peers.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport os\n\n\ndef test_end() -> None:\n    os._exit(9)\n",
        "tests/interop/test_store_peers.py",
    ),
}


@pytest.mark.laboratory
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAULTS)
def test_the_gate_is_red_and_says_where(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    copy = tmp_path / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    path = copy / fault.path
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new, 1), encoding="utf-8")
    told = tmp_path / "told"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "ODRADEK_"))}
    environment |= {"ODRADEK_GATE": "1", "PYTHONPATH": f"{copy / 'src'}:{copy / 'tests'}"}
    code = 0
    for run, marks in (("quick", "not (interop or spark or slow)"), ("interop", "interop or spark or slow")):
        options = ["-n", "1", "-rN", "--max-worker-restart", "1", f"--told={told / run}"]
        marked = ["-m", f"({marks}) and not laboratory", fault.judges]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *marked], cwd=copy, env=environment, check=False
        )
        # 5: the file has no test for this run.
        code = code or (0 if done.returncode == 5 else done.returncode)
    words = [sys.executable, "-m", "gate", "end", str(told), "make test-interop", str(code)]
    ended = subprocess.run(words, cwd=copy, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert ended.returncode
    *lines, counts = ended.stdout.splitlines()
    assert counts.startswith("red: ")
    assert any(line.startswith(f"RED {fault.judges}") for line in lines), ended.stdout


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_place(name: str) -> None:
    fault = FAULTS[name]
    assert (ROOT / fault.judges.partition("::")[0]).exists()
    assert fault.old in (ROOT / fault.path).read_text(encoding="utf-8")
