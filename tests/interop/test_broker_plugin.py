"""Tests with real clients by the pytest plugin, run again and again, also beside others: none fails by chance.

pytest -m laboratory tests/interop/test_broker_plugin.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import odradek
from peers.kafka import KafkaBroker

SUITE = Path(__file__).parent.parent / "peers" / "plugin_tests.py"
PLUGINS = ["-p", "odradek.testing.pytest_plugin", "-p", "xdist"]
WORKERS = 2


@contextmanager
def busy_machine(programs: int) -> Iterator[None]:
    """Others want the processors, too."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE.read_text())
    source = Path(odradek.__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.laboratory
@pytest.mark.parametrize("runs", [2, 100])
@pytest.mark.timeout(4 * 3600)
def test_no_test_fails_by_chance(tmp_path: Path, runs: int) -> None:
    for number in range(runs):
        workers = 0 if number % 2 else WORKERS
        with busy_machine(WORKERS * (number // 2 % 2)):
            outcome = run(tmp_path, "-n", str(workers))
        assert outcome.returncode == 0, f"run {number + 1}:\n{outcome.stdout}{outcome.stderr}"


@pytest.mark.laboratory  # of Apache Kafka alone
def test_the_same_tests_on_apache_kafka(tmp_path: Path, shared_kafka: KafkaBroker) -> None:
    outcome = run(tmp_path, "-n", "0", "-rs", "--kafka-real", shared_kafka.bootstrap_servers)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "a broker of --kafka-real has no fault" in outcome.stdout
