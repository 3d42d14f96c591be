"""What `pip install odradek` gives: a whole wheel, which works with nothing but the core's dependencies."""

from __future__ import annotations

import email.parser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from sysconfig import get_platform

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE")
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
LARGEST_BYTES = 1 << 22
"""With the symbols of its kernels it would have four times as many as it has."""
MOST_INSTALLED_BYTES = 30 << 20
"""With all that it needs, and the bytecode."""
PROGRAM = """
import odradek
with odradek.open("log-dir") as logs:
    logs.create_topic("events", config={"compression.type": "zstd"})
    logs["events", 0].append([odradek.Record(key=b"tech", value=b"for good")])
with odradek.open("log-dir", mode="r") as logs:
    print([(record.offset, record.key, record.value) for record in logs["events", 0].read()])
odradek.scan("log-dir", topics="events")
"""

pytestmark = [pytest.mark.laboratory, pytest.mark.timeout(1800)]


def _run(*command: str, folder: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # No PYTHONPATH: what is imported is what was installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {} if path is None else {"PATH": path}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since pip builds where the sources are; what is compiled already is not compiled again."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "*.egg-info"))
        else:
            shutil.copy2(ROOT / name, source / name)
    compiled = source / f"build/lib.{get_platform()}-{sys.implementation.cache_tag}"
    for library in (ROOT / "src").rglob("*.so"):
        copied = compiled / library.relative_to(ROOT / "src")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, copied)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    built = _run(sys.executable, *PIP, "wheel", *options, str(source), folder=folder)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_the_modules_the_kernels_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    # Spark looks for data sources in modules of that name.
    assert {"pyspark_odradek.py", "odradek/py.typed", "odradek/spark/log4j2.properties"} <= names
    assert "odradek/storage/directory/broker_configs.tsv" in names
    assert {"odradek/console/templates/base.html", "odradek/console/static/console.css"} <= names
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    kernels = {"_shared", *(path.stem for path in (ROOT / "src/odradek/records/kernels").glob("[!_]*.py"))}
    assert {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")} == kernels
    kinds = {Path(name).suffix for name in names if ".dist-info/" not in name and not name.endswith("/")}
    assert kinds == {".py", ".pyi", ".pxd", ".so", ".typed", ".properties", ".tsv", ".html", ".css", ".js", ".svg"}
    assert wheel.stat().st_size < LARGEST_BYTES


def test_it_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = email.parser.Parser().parsestr(archive.read(metadata).decode())
        license_text = archive.read(metadata.replace("METADATA", "licenses/LICENSE")).decode()
    assert license_text == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (said["Name"], said["License-Expression"]) == ("odradek", "Apache-2.0")
    assert said["Description-Content-Type"] == "text/markdown"
    assert str(said.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= set(said.get_all("Classifier", []))
    # The core installs without any of them.
    needed = [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [
        line for line in needed if re.match("pyarrow|pyspark|pandas|kafka|redis|kazoo|lz4|rich|zstandard", line)
    ]


def test_it_runs_on_any_common_linux(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("auditwheel")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path), str(wheel))
    repaired = _run(*command, folder=tmp_path, path=path)
    assert repaired.returncode == 0, repaired.stderr
    (found,) = tmp_path.glob("*.whl")
    version = re.search(r"manylinux_2_(\d+)_", found.name)
    assert version is not None, found.name
    # glibc 2.28 is that of the oldest systems that Python 3.11 is packaged for.
    assert int(version[1]) <= 28


def test_the_core_installs_alone_and_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    binaries = tmp_path / "venv" / "bin"
    python = str(binaries / "python")
    _run(sys.executable, "-m", "venv", str(binaries.parent), folder=tmp_path)
    # Nothing but the environment's own programs is found.
    alone = str(binaries)
    assert shutil.which("cc", path=alone) is None
    install = (python, *PIP, "install", "-c", str(ROOT / "constraints.txt"), str(wheel))
    installed = _run(*install, folder=tmp_path, path=alone)
    assert installed.returncode == 0, installed.stderr
    (packages,) = binaries.parent.glob("lib/python*/site-packages")
    own = [
        path
        for path in packages.rglob("*")
        if path.is_file() and not re.match("pip|setuptools", str(path.relative_to(packages)))
    ]
    assert sum(path.stat().st_size for path in own) < MOST_INSTALLED_BYTES
    each_codec = _run(python, str(ROOT / "tests/peers/first_record.py"), folder=tmp_path, path=alone)
    assert (each_codec.returncode, each_codec.stderr) == (0, "")
    result = _run(python, "-c", PROGRAM, folder=tmp_path, path=alone)
    assert result.stdout == "[(0, b'tech', b'for good')]\n"
    assert result.stderr.endswith('odradek.scan needs pyarrow: pip install "odradek[arrow]"\n')
    assert _run(str(binaries / "odradek"), "verify", "log-dir", folder=tmp_path, path=alone).returncode == 0
