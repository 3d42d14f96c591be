"""Programs of Python whose packages are not ours: each in a virtual environment, made once a machine beside the jars.

environments/airflow.txt                    what is installed, to the last package
~/.cache/odradek-tests/airflow-1f0c.../     the environment; its name holds a digest of the list, and of this Python
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from peers.jars import cache_root, digest, into, locked

LISTS = Path(__file__).parent / "environments"
INSTALL_TIMEOUT_S = 600


def environment(name: str) -> str:
    """Returns the `python` of an environment, installed if that was not done before.

    Programs are started with `-m`: the scripts of an environment name the folder in which it was made.
    """
    requirements = LISTS / f"{name}.txt"
    python = hashlib.sha256(sys.version.encode()).hexdigest()[:6]
    folder = cache_root() / f"{name}-{digest([requirements])}-{python}"
    with locked(cache_root() / f"{name}.lock"):
        if not folder.exists():
            into(folder, lambda target: _install(requirements, target))
    return str(folder / "bin" / "python")


def _install(requirements: Path, target: Path) -> None:
    venv.create(target, symlinks=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(target / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
    ]
    installed = subprocess.run(
        [*command, "--no-compile", "-r", str(requirements)],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip(f"cannot install {requirements.name}: {installed.stderr.strip()[-300:]}")
