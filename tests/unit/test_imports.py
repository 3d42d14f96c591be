"""What `import odradek` takes with it: next to nothing; and the core: nothing that is slow or optional."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import odradek

OPTIONAL = {"duckdb", "kafka", "kazoo", "pandas", "polars", "pyarrow", "pyspark", "redis"}
SLOW = {
    "asyncio",
    "click",
    "concurrent",
    "email",
    "http",
    "importlib.metadata",
    "multiprocessing",
    "numpy",
    "rich",
    "shutil",
    "ssl",
    "tempfile",
    "typing_extensions",
}


def imported(statement: str) -> set[str]:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {statement}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_the_package_alone_imports_no_part_of_itself() -> None:
    found = imported("import odradek")
    assert "odradek" in found
    assert {name for name in found if name.startswith("odradek.")} == set()


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["odradek.open", "odradek.Record", "odradek.LogError", "odradek.consume"])
def test_the_core_imports_nothing_slow_or_optional(statement: str) -> None:
    found = imported(f"import odradek; {statement}")
    assert found & (OPTIONAL | SLOW) == set()


@pytest.mark.slow
def test_opening_a_folder_takes_no_consumer_and_no_offset_store() -> None:
    found = imported("import odradek; odradek.open")
    assert "odradek.storage.directory.writable_log_directory" in found
    assert not found & {"odradek.consumer", "odradek.offsets", "odradek.columnar", "odradek.inspection", "odradek.cli"}


@pytest.mark.slow
def test_opening_a_folder_imports_nothing_of_its_logs() -> None:
    found = imported("import odradek; odradek.open")
    assert not found & {
        "odradek.storage.log.log",
        "odradek.storage.segment.segment",
        "odradek.storage.cleaning.cleaner",
    }


SERVE = """
import socket, tempfile
from odradek.broker.protocol import encode_request
from odradek.broker.running import BrokerThread
with tempfile.TemporaryDirectory() as folder:
    with BrokerThread(folder, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as running:
        with socket.create_connection((running.endpoint().host, running.endpoint().port)) as client:
            for key in (18, 3):
                client.sendall(encode_request(key, 0, 1, None, {"topics": []}))
                assert client.recv(1 << 16)
"""


@pytest.mark.slow
def test_a_broker_imports_what_it_works_with_when_it_is_needed() -> None:
    found = imported(f"exec({SERVE!r})")
    assert {"odradek.broker.api.k18_api_versions", "odradek.broker.api.k03_metadata"} <= found
    assert not found & {
        "odradek.broker.api.k00_produce",
        "odradek.broker.groups.coordinator",
        "odradek.broker.newer_messages",
        "odradek.broker.partitions",
        "odradek.broker.sasl",
        "odradek.broker.transactions.coordinator",
        "odradek.storage.log.writable_log",
        "cryptography",
        "prometheus_client",
        "pyarrow",
    }


def test_the_program_of_a_broker_imports_no_hypothesis() -> None:
    # kio would, and it is installed here.
    found = imported("from odradek.cli.kio_import import import_kio; import_kio(); import kio.schema.errors")
    assert "hypothesis" not in found


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dump", "serve", "stat", "tail", "topics", "verify"])
def test_a_command_imports_nothing_slow_before_it_runs(command: str) -> None:
    found = imported(f"import odradek.cli.app; import odradek.cli.{command}")
    assert not found & (OPTIONAL | {"cryptography", "kio", "numpy", "prometheus_client", "pygments", "rich.console"})


@pytest.mark.slow
def test_a_pipeline_of_folders_needs_no_client_of_brokers() -> None:
    assert "kafka" not in imported("import odradek.spark.pipeline.driver, odradek.spark.pipeline.folder_topic")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", odradek.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(odradek, name)
    assert name in dir(odradek)


def test_a_name_is_looked_up_once() -> None:
    assert odradek.Record is vars(odradek)["Record"]


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        odradek.opne  # noqa: B018


@pytest.mark.slow
def test_a_kernel_that_is_not_compiled_is_told_in_one_line(tmp_path: Path) -> None:
    def without_one_kernel(_folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or (name.startswith("resync.") and name != "resync.py")]

    source = Path(odradek.__file__).parent
    shutil.copytree(source, tmp_path / "odradek", ignore=without_one_kernel)
    command = [sys.executable, "-c", "from odradek.cli.app import main; main()", "topics", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == "odradek: the kernels are not compiled: run make install\n"
