"""Programs of Kafka in a JVM of their own, such as its verifiable clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.jars import JAVA, KeptClasses
from peers.process import PATIENCE

TIMEOUT_S = 90 * PATIENCE


@contextmanager
def java(jars: str, output: Path, main: str, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program of Java until the block ends."""
    kept = KeptClasses(jars).options_to_use()
    command = [*JAVA, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *kept, "-cp", jars, "Attached", main]
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def events(jars: str, output: Path, main: str, *arguments: str) -> list[dict[str, Any]]:
    """Runs a verifiable client to its end; returns what it told, line by line."""
    with java(jars, output, main, *arguments) as process:
        process.wait(TIMEOUT_S)
    return told(output)


def told(output: Path) -> list[dict[str, Any]]:
    """Returns what a verifiable client has told so far."""
    lines = output.read_text("utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
