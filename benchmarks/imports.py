"""Measures how long the package takes to import, beside the start of Python.

    python benchmarks/imports.py [--rounds 20]

Each round starts a new process for each line, one after the other; the best of each counts. The figures are processor
time, which other programs disturb least, beyond that of a bare start of the same Python in the same run; the ratio is
to that start.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

BARE = "pass"
STATEMENTS = {
    "import odradek": "import odradek",
    "odradek.Record": "import odradek; odradek.Record",
    "odradek.open": "import odradek; odradek.open",
    "odradek.consume": "import odradek; odradek.consume",
    "odradek.cli": "import odradek.cli.app",
    "json, logging, dataclasses, uuid: for comparison": "import json, logging, dataclasses, uuid",
}


def seconds(statement: str) -> float:
    """Return the processor time of a process that runs a statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    statements = {"bare Python": BARE, **STATEMENTS}
    best = dict.fromkeys(statements, float("inf"))
    for name, statement in statements.items():
        # Not counted: the first run writes the bytecode.
        seconds(statement)
        best[name] = seconds(statement)
    for _ in range(rounds - 1):
        for name, statement in statements.items():
            best[name] = min(best[name], seconds(statement))
    bare = best.pop("bare Python")
    print(f"Python starts in {bare * 1e3:.0f} ms\n")
    print("| | ms beyond that | ratio to it |\n| --- | ---: | ---: |")
    for name, taken in best.items():
        print(f"| `{name}` | {(taken - bare) * 1e3:.0f} | {(taken - bare) / bare:.1f} |")


if __name__ == "__main__":
    main()
