"""The recipes in `examples/deploy`, asked of those who would read them: systemd, a shell, the schemas of Kubernetes."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.spark.pipeline.job import JobFile
from odradek.spark.pipeline.parquet_folder import ParquetFolder
from peers.environments import environment

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "deploy"
PROGRAMS = Path(sys.executable).parent
UNIT = (RECIPES / "odradek-pipeline@.service").read_text(encoding="utf-8")
MANIFESTS = RECIPES / "kubernetes.yaml"


def broker_unit() -> str:
    page = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```text\n(\[Unit\]\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def verified(folder: Path, name: str, unit: str) -> str:
    """Return what systemd finds wrong in a unit whose program is that of the tests."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("not on this machine: systemd-analyze")
    file = folder / name
    file.write_text(unit.replace("/opt/odradek/bin", str(PROGRAMS)), encoding="utf-8")
    ended = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unit"), [("odradek-pipeline@orders.service", UNIT), ("odradek.service", broker_unit())]
)
def test_systemd_finds_nothing_wrong_in_a_unit(name: str, unit: str, tmp_path: Path) -> None:
    assert verified(tmp_path, name, unit) == ""
    assert "Unknown key" in verified(tmp_path, name, unit.replace("Restart=", "Retsart="))


def cron_lines(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the crontab, and its commands by their schedules, with the folders of a test."""
    text = (RECIPES / "crontab").read_text(encoding="utf-8")
    for there in ("/etc/odradek", "/var/log/odradek"):
        text = text.replace(there, str(folder))
    lines = [line for line in text.replace("/opt/odradek/bin", str(PROGRAMS)).splitlines() if line and line[0] != "#"]
    variables = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    commands = {
        " ".join(line.split()[:5]): line.split(maxsplit=5)[5] for line in lines if not re.match("[A-Z]+=", line)
    }
    return variables, commands


def as_cron(command: str, variables: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as cron does: by `sh`, in the home folder, with little else than the crontab's variables."""
    # cron would end the command there, and give the rest to its stdin.
    assert "%" not in command
    environment = {"HOME": str(folder), "LOGNAME": "odradek", "SHELL": "/bin/sh", **variables}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


ORDERS = """
source = { path = "data", subscribe = "orders" }
offsets = { store = "file:offsets.json" }
[[sink]]
type = "parquet"
path = "orders"
"""


@pytest.mark.slow
def test_a_second_run_of_the_crontab_is_refused_by_the_lock_of_the_folder(tmp_path: Path) -> None:
    variables, commands = cron_lines(tmp_path)
    (tmp_path / "orders.toml").write_text(ORDERS, encoding="utf-8")
    first = ParquetFolder(tmp_path / "orders")
    try:
        ended = as_cron(commands["*/15 * * * *"], variables, tmp_path)
    finally:
        first.close()
    assert ended.stdout.startswith("exit code 3: ")
    assert ended.stdout.endswith("orders: another pipeline writes here\n")
    assert ended.stderr == ""


@pytest.mark.slow
def test_a_second_run_of_topics_is_not_started(tmp_path: Path) -> None:
    variables, commands = cron_lines(tmp_path)
    job = tmp_path / "forward.toml"
    job.touch()
    with job.open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        ended = as_cron(commands["*/5 * * * *"], variables, tmp_path)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    # Nobody has it: the command runs, and finds that the file describes no job.
    ended = as_cron(commands["*/5 * * * *"], variables, tmp_path)
    assert ended.stdout.startswith("exit code 3: ")
    assert "forward.toml" in ended.stdout


def manifests() -> list[dict[str, Any]]:
    read = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    command = [environment("kubernetes"), "-c", read, str(MANIFESTS)]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def against_the_schemas(file: Path) -> subprocess.CompletedProcess[str]:
    command = [environment("kubernetes"), "-m", "kubernetes_validate", "--strict", "-k", "1.37.0", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.interop
def test_kubernetes_would_take_the_manifests(tmp_path: Path) -> None:
    ended = against_the_schemas(MANIFESTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFESTS.read_text(encoding="utf-8").replace("periodSeconds: 30", "periodSecond: 30"))
    ended = against_the_schemas(wrong)
    assert ended.returncode != 0
    assert "periodSecond" in ended.stdout + ended.stderr


def pods(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specifications of the pods of the manifests."""
    specs = {one["kind"]: one["spec"] for one in found if one["kind"] != "ConfigMap"}
    return [specs["StatefulSet"]["template"]["spec"], specs["CronJob"]["jobTemplate"]["spec"]["template"]["spec"]]


@pytest.mark.interop
def test_the_jobs_of_the_manifests_are_those_that_their_pods_run(tmp_path: Path) -> None:
    found = manifests()
    (files,) = (one["data"] for one in found if one["kind"] == "ConfigMap")
    run = {}
    for pod in pods(found):
        (container,) = pod["containers"]
        name = Path(container["command"][-1]).name
        (tmp_path / name).write_text(files[name], encoding="utf-8")
        (job,) = JobFile.read(tmp_path / name).jobs
        run[job.name] = (container, job)
    assert run.keys() == {"orders", "nightly"}
    container, job = run["orders"]
    assert job.trigger_interval_ms is not None
    assert job.metrics is not None
    assert job.metrics[1] == container["ports"][0]["containerPort"]
    assert {"/data", "/tmp"} < {mount["mountPath"] for mount in container["volumeMounts"]}
    assert run["nightly"][1].trigger_interval_ms is None
