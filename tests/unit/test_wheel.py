"""What `pip install odradek` gives: a whole wheel, which works with nothing but the core's dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE")
PROGRAM = """
import odradek
with odradek.open("log-dir") as logs:
    logs.create_topic("events", config={"compression.type": "zstd"})
    logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
with odradek.open("log-dir", mode="r") as logs:
    print([(record.offset, record.key, record.value) for record in logs["events", 0].read()])
odradek.scan("log-dir", topics="events")
"""


def _run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_core_installs_alone(tmp_path: Path) -> None:
    """Built from a copy, since pip builds where the sources are."""
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "*.c", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    built = _run(*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source), folder=tmp_path)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    # Spark looks for data sources in modules of that name.
    assert {"pyspark_odradek.py", "odradek/py.typed"} <= names
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    kernels = {path.stem for path in (ROOT / "src/odradek/records/kernels").glob("[!_]*.py")}
    assert {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")} == kernels
    assert not [name for name in names if name.endswith(".c")]

    python = str(tmp_path / "venv/bin/python")
    _run(sys.executable, "-m", "venv", str(tmp_path / "venv"), folder=tmp_path)
    installed = _run(python, *pip[1:], "install", "-c", str(ROOT / "constraints.txt"), str(wheel), folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    result = _run(python, "-c", PROGRAM, folder=tmp_path)
    assert result.stdout == "[(0, b'tech', b'for good')]\n"
    assert result.stderr.endswith('odradek.scan needs pyarrow: pip install "odradek[arrow]"\n')
    assert _run(str(tmp_path / "venv/bin/odradek"), "verify", "log-dir", folder=tmp_path).returncode == 0
