"""The verdict of `.ci/run`: what is tried again, what is red at once, and what the last lines say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gate.__main__ import again, end, seconds, sweep
from gate.cases import other_cases
from gate.outcomes import (
    CRASHED,
    MOST_CAUSES,
    Failure,
    Outcomes,
    have_passed,
    read_outcomes,
    used_chances,
    why_not_again,
)
from peers.process import wait_for

pytestmark = pytest.mark.every_case
ROOT = Path(__file__).parents[2]
ONE = Failure("tests/interop/test_a.py::test_one", "call", "TimeoutError: no broker", is_outside=True)


def failed_run(*failures: Failure, **others: Any) -> Outcomes:
    """Return a run of which these tests failed, and a hundred passed."""
    failures = failures or (ONE,)
    run = Outcomes(100 + len({one.id for one in failures}), 1, {f"passed-{n}" for n in range(100)}, set(), [*failures])
    for name, value in others.items():
        setattr(run, name, value)
    return run


def test_a_test_of_the_outside_world_may_run_again() -> None:
    assert why_not_again(failed_run(), []) is None
    assert why_not_again(failed_run(ONE, replace(ONE, when="teardown")), []) is None
    many = [replace(ONE, id=f"tests/interop/test_a.py::test_{n}") for n in range(MOST_CAUSES)]
    assert why_not_again(failed_run(*many), []) is None


def test_one_set_up_that_fails_for_many_tests_is_one_cause() -> None:
    many = [replace(ONE, id=f"tests/interop/test_a.py::test_{n}", when="setup") for n in range(200)]
    assert why_not_again(failed_run(*many), []) is None
    others = [replace(one, message=f"{one.message} {number}") for number, one in enumerate(many)]
    assert why_not_again(failed_run(*others), []) == "there are 200 causes, more than 5"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (failed_run(*(replace(ONE, id=f"{ONE.id}-{n}") for n in range(MOST_CAUSES + 1))), "6 causes"),
        (failed_run(ONE, replace(ONE, when=CRASHED)), "a worker died"),
        (failed_run(replace(ONE, is_final=True)), "records are lost"),
        (failed_run(ONE, replace(ONE, id="tests/unit/test_b.py::test_b", is_outside=False)), "test_b is no test of"),
        (failed_run(exit=2), "pytest ended with 2"),
        (failed_run(exit=3), "pytest ended with 3"),
        (failed_run(exit=4), "pytest ended with 4"),
        (failed_run(exit=5), "pytest ended with 5"),
        (failed_run(exit=None), "pytest was killed"),
        (failed_run(collected=102), "only 101 of 102 tests"),
        (failed_run(running={ONE.id}), "only 101 of 101 tests"),
        (failed_run(failures=[], collected=100), "no test is known to have failed"),
    ],
)
def test_red_at_once(run: Outcomes, why: str) -> None:
    told = why_not_again(run, [])
    assert told is not None
    assert why in told


def test_a_test_that_has_had_its_second_chance_gets_no_other() -> None:
    assert "has had its second chance" in (why_not_again(failed_run(), [ONE.id]) or "")


def test_the_list_of_used_chances_names_tests_that_exist() -> None:
    for name in used_chances():
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), name


@pytest.mark.parametrize(
    ("second", "passed"),
    [
        (Outcomes(1, 0, {ONE.id}), True),
        (Outcomes(1, 1, set(), set(), [ONE]), False),
        (Outcomes(1, 0, set(), {ONE.id}), False),
        (Outcomes(1, None, {ONE.id}), False),
        (Outcomes(1, 1, {ONE.id}, set(), [replace(ONE, when="teardown")]), False),
        (Outcomes(2, 0, {ONE.id, "another"}), False),
        (Outcomes(1, 0, {ONE.id}, {"a subtest"}), False),
        (Outcomes(1, 0, {ONE.id}, running={ONE.id}), False),
        (Outcomes(), False),
    ],
)
def test_green_only_if_all_that_were_asked_for_pass(second: Outcomes, passed: bool) -> None:
    assert have_passed(second, [ONE.id]) is passed


# -- with pytest itself

PASSES = "def test_passes():\n    pass\n"
FLAKY = """
from pathlib import Path

def test_fails_once(tmp_path):
    (tmp_path / "left").write_text("what it left")
    marker = Path({marker!r})
    if not marker.exists():
        marker.touch()
        raise TimeoutError("no broker in time")
"""
LOSES = """
from peers.ledger import require

def test_loses():
    try:
        require(False, "a record is lost")
    except AssertionError as error:
        raise ValueError("in a wrapper") from error
"""
LOSES_ELSEWHERE = """
import subprocess, sys

def test_loses():
    program = "from peers.ledger import RecordsError; raise RecordsError('lost')"
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path}; {program}"], check=True)
"""
ENDS_BY_ITSELF = """
import pytest
from peers.process import ServerEndedError

@pytest.fixture(scope="module")
def server():
    yield
    raise ServerEndedError("broker had ended by itself (-11)")

def test_serves(server):
    pass
"""
DIES = "import os\n\ndef test_dies():\n    os._exit(7)\n"
DIES_AT_THE_END = """
import os

def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        os._exit(7)
"""
FAILS = "def test_fails():\n    assert 1 == 2\n"


class Suite:
    """A folder with tests, laid out as this one, and what `.ci/run` does with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.told = folder / "told"
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p gate.events\n")

    def write(self, path: str, text: str) -> None:
        file = self._folder / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def command(self, *options: str) -> Sequence[str]:
        search = [str(ROOT / "tests"), str(ROOT / "src")]
        plain = ["-p", "no:cacheprovider", "-p", "no:odradek", "--import-mode=importlib", f"--rootdir={self._folder}"]
        start = f"import sys; sys.path[:0] = {search!r}; import pytest; sys.exit(pytest.main())"
        return [sys.executable, "-c", start, *plain, "-c", str(self._folder / "pytest.ini"), *options]

    def run(self, *options: str) -> Outcomes:
        command = [*self.command(*options), f"--told={self.told / 'one'}", str(self._folder / "tests")]
        subprocess.run(command, cwd=self._folder, capture_output=True, check=False)
        return read_outcomes(self.told / "one")

    def again(self, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.chdir(self._folder)
        return again(self.told / "one", self.command("-n", "1"))


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def said(suite: Suite, code: int, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return the code of the verdict and its last lines."""
    capfd.readouterr()
    code = end(suite.told, "make test-interop", code)
    return code, capfd.readouterr().out.splitlines()


@pytest.mark.slow
def test_what_passes_the_second_time_is_named_and_green(
    suite: Suite, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write("interop/test_a.py", PASSES + FLAKY.format(marker=str(tmp_path / "marker")))
    suite.write("unit/test_b.py", PASSES)
    first = suite.run("-n", "2")
    assert (first.collected, first.exit, len(first.passed)) == (3, 1, 2)
    (kept,) = suite.told.glob("one/files/**/left")
    assert kept.read_text() == "what it left"
    assert suite.again(monkeypatch) == 0
    code, lines = said(suite, 0, capfd)
    assert code == 0
    assert lines[0] == "FLAKY tests/interop/test_a.py::test_fails_once: TimeoutError: no broker in time"
    assert lines[1].startswith("load ")
    assert lines[2:] == ["green: 3 passed (1 of them by a second run), 0 failed, 0 skipped"]


@pytest.mark.slow
def test_what_fails_twice_is_red(
    suite: Suite, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write("interop/test_a.py", PASSES + FAILS)
    suite.run("-n", "0")
    assert suite.again(monkeypatch) == 1
    code, lines = said(suite, 1, capfd)
    assert code == 1
    assert lines[0] == "RED tests/interop/test_a.py::test_fails: assert 1 == 2"
    assert lines[-1] == "red: 1 passed, 1 failed, 0 skipped"


@pytest.mark.slow
@pytest.mark.costly
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("interop/test_a.py", LOSES, "RED tests/interop/test_a.py::test_loses: ValueError: in a wrapper"),
        ("interop/test_a.py", LOSES_ELSEWHERE, "RED tests/interop/test_a.py::test_loses: subprocess.CalledProcess"),
        ("interop/test_a.py", ENDS_BY_ITSELF, "RED tests/interop/test_a.py::test_serves: peers.process.ServerEnded"),
        ("unit/test_a.py", FAILS, "RED tests/unit/test_a.py::test_fails: assert 1 == 2"),
        ("interop/test_a.py", DIES, "RED tests/interop/test_a.py::test_dies: worker 'gw0' crashed"),
        ("interop/test_a.py", "import nowhere_at_all\n", "RED tests/interop/test_a.py: "),
    ],
)
def test_what_has_no_second_chance(
    suite: Suite,
    path: str,
    text: str,
    line: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suite.write(path, text)
    suite.run("-n", "1")
    assert suite.again(monkeypatch) == 1
    assert not suite.told.joinpath("one-again").exists()
    code, lines = said(suite, 1, capfd)
    assert code == 1
    assert any(one.startswith(line) for one in lines), lines


@pytest.mark.slow
def test_a_worker_that_dies_between_tests_is_red(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    suite.write(
        "conftest.py",
        "import os\n\ndef pytest_sessionfinish(session):\n    hasattr(session.config, 'workerinput') and os._exit(7)\n",
    )
    suite.write("interop/test_a.py", PASSES)
    suite.run("-n", "1")
    code, lines = said(suite, 0, capfd)
    assert code == 1
    assert lines[0].startswith("RED worker gw0: ")


@pytest.mark.slow
def test_a_second_run_that_dies_as_it_ends_is_red(
    suite: Suite, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write("interop/test_a.py", FLAKY.format(marker=str(tmp_path / "marker")))
    suite.run("-n", "1")
    suite.write("conftest.py", "import os\n\ndef pytest_unconfigure():\n    os._exit(7)\n")
    assert suite.again(monkeypatch) == 1
    code, lines = said(suite, 1, capfd)
    assert (code, lines[0]) == (1, "RED tests/interop/test_a.py::test_fails_once: TimeoutError: no broker in time")


@pytest.mark.parametrize(
    "events",
    [
        [{"collected": 0}, {"exit": 3}],
        [{"collected": 1}, {"id": "a", "when": "call", "outcome": "passed"}, {"exit": 1}],
        [{"collected": 0}],
        [{"collected": 1}, {"id": "a", "started": True}, {"exit": 0}],
    ],
)
def test_a_run_that_did_not_end_well_is_red_whatever_its_code(
    suite: Suite, events: list[dict[str, object]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = suite.told / "one"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    code, lines = said(suite, 0, capfd)
    assert code == 1
    assert lines[0].startswith("RED ")


def test_a_run_that_was_killed_is_red(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    folder = suite.told / "one"
    folder.mkdir(parents=True)
    events: list[dict[str, object]] = [{"collected": 2}, {"id": "tests/interop/test_a.py::test_a", "started": True}]
    cut = '{"id": "tests/interop/te'
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + cut)
    code, lines = said(suite, 0, capfd)
    assert code == 1
    assert lines[0] == "RED tests/interop/test_a.py::test_a: was running as the run ended"


def test_a_stage_without_tests_is_red_by_its_name(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines = said(suite, 2, capfd)
    assert (code, lines[0]) == (2, "RED make test-interop: ended with 2")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with `.ci/run` and what it calls; a test writes the Makefile."""
    for name in ("tests", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_text((ROOT / ".ci/run").read_text(encoding="utf-8"))
    (tmp_path / ".ci/install-peers").write_text("#!/bin/sh\n")
    (tmp_path / ".ci/install-peers").chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_the_script_says_last_which_stage_failed(clone: Path) -> None:
    (clone / "Makefile").write_text("spark:\n\t@true\nlint:\n\t@echo lint; exit 3\n")
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    assert (ended.returncode, lines[0], lines[-1]) == (2, "lint", "red: 0 passed, 1 failed, 0 skipped")
    assert "RED make lint: ended with 2" in lines


@pytest.mark.slow
def test_the_script_says_what_failed_beside_another_stage(clone: Path) -> None:
    (clone / "Makefile").write_text("spark lint:\n\t@true\ndocs:\n\t@echo no such name; exit 3\n")
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    assert (ended.returncode, lines[0], lines[-1]) == (1, "no such name", "red: 0 passed, 1 failed, 0 skipped")
    assert "RED make docs: ended with 1" in lines


@pytest.mark.slow
def test_the_script_says_why_a_program_cannot_be_installed(clone: Path) -> None:
    (clone / "Makefile").write_text(GREEN)
    (clone / ".ci/install-peers").write_text("#!/bin/sh\necho no such package >&2\nexit 1\n")
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    assert (ended.returncode, lines[0], lines[-1]) == (1, "no such package", "red: 0 passed, 1 failed, 0 skipped")
    assert "RED .ci/install-peers: ended with 1" in lines


def is_running(pid: int) -> bool:
    """Say whether there is a process that has not been ended; nobody may have asked how it ended."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_the_script_is_never_green_if_it_is_ended(clone: Path) -> None:
    (clone / "Makefile").write_text("spark:\n\t@true\nlint:\n\t@echo $$$$ > told; mv told begun; sleep 600\n")
    with (clone / "printed").open("w") as printed:
        process = subprocess.Popen(["bash", ".ci/run"], cwd=clone, stdout=printed, start_new_session=True)
    try:
        wait_for((clone / "begun").exists, 60, "the stage")
        process.terminate()
        process.wait()
        lines = (clone / "printed").read_text().splitlines()
        assert "RED make lint: ended with 143" in lines
        assert lines[-1] == "red: 0 passed, 1 failed, 0 skipped"
        wait_for(lambda: not is_running(int((clone / "begun").read_text())), 60, "the end of what it had started")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


TOLD = '{"collected": 1}\\n{"id": "%s", "when": "call", "outcome": "passed"}\\n{"exit": 0}\\n'
GREEN = (
    f"spark lint docs:\n\t@true\ntest test-interop:\n\t@mkdir -p $(TOLD); printf '{TOLD}' $@ > $(TOLD)/events.jsonl\n"
)


@pytest.mark.slow
def test_the_script_is_green_if_every_stage_is(clone: Path) -> None:
    (clone / "Makefile").write_text(GREEN)
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "green: 2 passed, 0 failed, 0 skipped")


@pytest.mark.slow
def test_what_the_laboratory_finds_changes_no_verdict(clone: Path) -> None:
    failed = '{"id": "tests/crash/test_a.py::test_b", "when": "call", "outcome": "failed", "message": "a torn batch"}'
    (clone / "Makefile").write_text(
        f"{GREEN}laboratory:\n\t@mkdir -p $(TOLD); echo ODRADEK_SEED=4711\n"
        f"\t@echo '{failed}' > $(TOLD)/events.jsonl; false\n"
    )
    environment = os.environ | {"CI": "true"}
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0
    verdict = "green: 2 passed, 0 failed, 0 skipped"
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("load ")]
    assert lines[-7:] == [
        verdict,
        "this verdict stands; ten minutes of the laboratory follow",
        "ODRADEK_SEED=4711",
        "FOUND tests/crash/test_a.py::test_b: a torn batch",
        'run one of them again: .venv/bin/pytest -n 0 -m "" ID, with the seed above',
        "laboratory: 0 passed, 1 failed",
        verdict,
    ]


@pytest.mark.slow
def test_the_laboratory_ends_with_the_script_and_the_verdict_stands(clone: Path) -> None:
    (clone / "Makefile").write_text(f"{GREEN}laboratory:\n\t@echo $$$$ > told; mv told begun; sleep 600\n")
    with (clone / "printed").open("w") as printed:
        environment = os.environ | {"CI": "true"}
        process = subprocess.Popen(
            ["bash", ".ci/run"], cwd=clone, stdout=printed, start_new_session=True, env=environment
        )
    try:
        wait_for((clone / "begun").exists, 60, "the laboratory")
        process.terminate()
        assert process.wait() == 0
        assert (clone / "printed").read_text().splitlines()[-1] == "green: 2 passed, 0 failed, 0 skipped"
        wait_for(lambda: not is_running(int((clone / "begun").read_text())), 60, "the end of what it had started")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_script_judges_the_clone_that_it_is_in(clone: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("tests", "src"):
        (other / name).symlink_to(ROOT / name)
    shutil.copytree(clone / ".ci", other / ".ci")
    (other / "Makefile").write_text(GREEN)
    (clone / "Makefile").write_text("spark:\n\t@false\n")
    environment = os.environ | {"CDPATH": str(other)}
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, env=environment, check=False)
    assert ended.stdout.splitlines()[-1] == "red: 0 passed, 1 failed, 0 skipped"


@pytest.mark.slow
def test_a_module_that_skips_itself_is_red_in_the_gate(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    environment = os.environ | {"ODRADEK_GATE": "1", "PYTHONPATH": str(ROOT / "tests")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "gate.events",
        "-p",
        "no:cacheprovider",
        f"--told={tmp_path / 'told'}",
    ]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert [failure.id for failure in read_outcomes(tmp_path / "told").failures] == ["test_it.py"]


def test_what_starts_again_while_it_is_ended_is_ended_too(tmp_path: Path) -> None:
    """In a folder below, as a run within the run has."""
    environment = os.environ | {"TMPDIR": f"{tmp_path}/below"}
    parent = subprocess.Popen(["bash", "-c", "while true; do sleep 600 & wait; done"], env=environment)
    try:
        sweep(str(tmp_path))
        parent.wait()
        marks = {f"TMPDIR={tmp_path}/below".encode()}
        running = [
            pid for pid in (path.name for path in Path("/proc").iterdir()) if pid.isdigit() and is_running(int(pid))
        ]
        assert not [pid for pid in running if marks & {*environ_of(pid)}]
    finally:
        parent.kill()


def environ_of(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"GNUMAKEFLAGS": "-n"}, {"GNUMAKEFLAGS": "-i"}])
def test_the_script_is_red_if_no_test_was_run(clone: Path, variables: dict[str, str]) -> None:
    (clone / "Makefile").write_text(f"spark lint docs test test-interop:\n\t@{'false' if variables else 'true'}\n")
    environment = os.environ | variables
    ended = subprocess.run(["bash", ".ci/run"], cwd=clone, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode != 0
    assert ended.stdout.splitlines()[-1].startswith("red: 0 passed")


def as_test(name: str, *markers: str) -> Any:
    """Return what `other_cases` asks of a test: its id, its parameters, its markers."""
    params = dict(enumerate(re.findall(r"[^-\[\]]+", name)[1:]))
    found = dict.fromkeys(markers, pytest.mark.slow)
    return SimpleNamespace(nodeid=name, callspec=SimpleNamespace(params=params), get_closest_marker=found.get)


def test_the_gate_has_one_case_with_each_kind_of_fixture_and_one_broker() -> None:
    names = ["t[kafka-1]", "t[kafka-2]", "t[odradek-1]", "w[odradek]", "u[4.3.1-1]", "u[2.8.2-1]", "u[2.8.2-2]", "v"]
    others = [test.nodeid for test in other_cases(as_test(name, "interop") for name in names)]
    assert others == ["t[kafka-2]", "t[odradek-1]", "u[2.8.2-2]"]


def test_the_gate_has_all_cases_that_start_no_program_and_every_case_where_that_is_asked_for() -> None:
    tests = [
        as_test("t[1]"),
        as_test("t[2]", "slow"),
        as_test("t[3]", "interop"),
        as_test("u[1]", "spark", "every_case"),
    ]
    tests += [as_test(name, "spark", "every_case") for name in ("u[2]", "u[2.8.2-1]", "u[2.8.2-2]")]
    tests += [as_test("v[1]", "interop", "laboratory"), as_test("v[2]", "interop")]
    tests += [as_test("v[kafka]", "interop", "compared"), as_test("v[odradek]", "interop", "compared")]
    tests += [as_test("w[1]", "slow", "costly"), as_test("w[2]", "slow", "costly")]
    tests += [as_test("x[kafka]", "spark", "every_case"), as_test("x[odradek]", "spark", "every_case")]
    tests += [as_test("y[kafka]", "slow"), as_test("y[odradek]", "slow")]
    assert [test.nodeid for test in other_cases(tests)] == ["t[3]", "u[2.8.2-2]", "v[kafka]", "w[2]"]


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "outcome"), [({}, "1 skipped"), ({"ODRADEK_GATE": "1"}, "1 error")])
def test_a_program_that_is_missing_is_a_skip_but_red_in_the_gate(
    tmp_path: Path, variables: dict[str, str], outcome: str
) -> None:
    (tmp_path / "test_it.py").write_text("""
import pytest

@pytest.mark.needs("no-such-program")
def test_it(): pass
""")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs\n")
    environment = {name: value for name, value in os.environ.items() if name != "ODRADEK_GATE"} | variables
    environment["PYTHONPATH"] = str(ROOT / "tests")
    command = [sys.executable, "-m", "pytest", "-p", "peers.missing", "-p", "no:cacheprovider", "-rA"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome in ended.stdout.splitlines()[-1]
    assert "not on this machine: no-such-program" in ended.stdout


def test_the_files_that_took_longest_are_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quick").mkdir()
    took = {"tests/a.py::test_1": 1.25, "tests/b.py::test_1": 0.5, "tests/b.py::test_2": 1}
    lines = [json.dumps({"id": name, "finished": True, "seconds": of_one}) for name, of_one in took.items()]
    (tmp_path / "quick/events.jsonl").write_text("\n".join(lines) + "\n")
    seconds(tmp_path)
    assert capsys.readouterr().out.split("\n") == [
        "quick: 3 s of all workers together",
        "     1.5 tests/b.py",
        "     1.2 tests/a.py",
        "",
    ]


SEEDED = """
import pytest

@pytest.mark.laboratory
def test_it(seed):
    print("drawn:", seed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("marker", ["laboratory", "not slow"])
def test_a_seed_that_is_printed_first_repeats_a_run_of_the_laboratory(tmp_path: Path, marker: str) -> None:
    (tmp_path / "test_it.py").write_text(SEEDED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = laboratory\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("ODRADEK_SEED", "PYTEST_ADDOPTS")}
    environment["PYTHONPATH"] = str(ROOT / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "peers.seeds", "-p", "no:cacheprovider", "-m", marker]

    def run(**variables: str) -> tuple[str, str]:
        options: Any = {"cwd": tmp_path, "env": environment | variables, "capture_output": True, "text": True}
        first, *lines = subprocess.run(command, **options, check=True).stdout.splitlines()
        return first, next(line for line in lines if line.startswith("drawn:"))

    first, again = run(), run()
    if marker == "laboratory":
        name, _, seed = first[0].partition("=")
        assert (name, first == again) == ("ODRADEK_SEED", False)
        assert run(ODRADEK_SEED=seed) == first
    else:
        assert first == again
