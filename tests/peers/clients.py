"""Clients of Kafka in other languages, built and installed once, and the same commands for all of them.

Source: `go/main.go` says what the commands do; `node/main.js` does the same. `inspector` is a client of our tools for
agents.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from peers.jars import cache_root, digest, into, locked, require
from peers.process import PATIENCE

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BUILD_TIMEOUT_S = 900
TIMEOUT_S = 60 * PATIENCE


class Consumed(NamedTuple):
    """A record as a client printed it."""

    partition: int
    offset: int
    key: str
    value: str


class Client:
    """A client, as a program that takes the commands of `go/main.go`.

    Attributes:
        name: Its name.
        codecs: The codecs that it has.
        has_transactions: Whether it has transactions.
    """

    def __init__(
        self, name: str, command: list[str], codecs: tuple[str, ...] = CODECS, *, has_transactions: bool = True
    ) -> None:
        self.name = name
        self.codecs = codecs
        self.has_transactions = has_transactions
        self._command = command

    def run(self, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
        """Runs a command; returns what it printed.

        Raises:
            RuntimeError: It failed; the text holds what it said.
        """
        result = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if result.returncode != 0:
            raise RuntimeError(f"{self.name} {arguments[0]}: {result.stdout[-2000:]}\n{result.stderr[-4000:]}")
        return result.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command, for two at a time."""
        return subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def consumed(printed: str) -> list[Consumed]:
    """Parses what `consume` printed."""
    rows = (line.split(" ", 3) for line in printed.splitlines())
    return [Consumed(int(row[0]), int(row[1]), row[2], row[3]) for row in rows]


def go_client(library: str, *, has_transactions: bool = True) -> Client:
    """Returns a client for Go, which is built if it is not yet.

    Raises:
        PeerMissingError: There is no Go here.
        RuntimeError: It cannot be built.
    """
    require("go")
    sources = sorted((HERE / "go").iterdir())
    folder = cache_root() / f"go-{digest(sources)}"
    with locked(cache_root() / "go.lock"):
        if not folder.exists():
            into(folder, lambda target: _build_go(sources, target))
    return Client(library, [str(folder / "clients"), library], has_transactions=has_transactions)


def _build_go(sources: list[Path], target: Path) -> None:
    for source in sources:
        shutil.copy(source, target)
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "clients", "."]):
        _run(command, target)


def kafkajs() -> Client:
    """Returns kafkajs, which is installed if it is not yet.

    Raises:
        PeerMissingError: There is no Node here.
        RuntimeError: It cannot be installed.
    """
    return Client("kafkajs", ["node", str(_node_packages("node") / "main.js")], ("none", "gzip"))


def inspector() -> list[str]:
    """Returns the command of the inspector of the Model Context Protocol, installed if it is not yet, with its Node.

    Raises:
        PeerMissingError: There is no Node here.
        RuntimeError: It cannot be installed.
    """
    packages = _node_packages("inspector") / "node_modules"
    program = packages / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return [str(packages / ".bin/node"), str(program), "--cli"]


def _node_packages(name: str) -> Path:
    """Returns the folder of a program for Node, with its packages, which are installed if they are not yet."""
    require("node", "npm")
    sources = sorted((HERE / name).iterdir())
    folder = cache_root() / f"node-{digest(sources)}"
    with locked(cache_root() / "node.lock"):
        if not folder.exists():
            into(folder, lambda target: _install_node(sources, target))
    return folder


def _install_node(sources: list[Path], target: Path) -> None:
    for source in sources:
        shutil.copy(source, target)
    _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], target)


def _run(command: list[str], folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({result.returncode}):\n{result.stdout}\n{result.stderr}")
