"""The files by which a public code host checks each change, and makes wheels: what they run is what is run here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_ends_and_writes_nowhere(workflow: Path) -> None:
    described = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert described["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 120 for job in described["jobs"].values())
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step)
        assert re.fullmatch(r"[\w-]+/[\w-]+@v[\d.]+", step.get("uses", "a/b@v1"))


def test_each_change_is_checked_by_the_script_of_every_developer() -> None:
    commands = [step.get("run") for step in steps(ROOT / ".github/workflows/checks.yml")]
    assert ".ci/run" in commands


def test_there_is_a_wheel_for_every_python_that_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    classifiers = project["project"]["classifiers"]
    promised = {one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)}
    settings = project["tool"]["cibuildwheel"]
    assert {f"cp{version.replace('.', '')}-*" for version in promised} == set(settings["build"])
    [program] = [command.rpartition("/tests/")[2] for command in settings["test-command"] if "/tests/" in command]
    assert (ROOT / "tests" / program).is_file()
