"""The second run, the end and the last words of `.ci/run`; needs nothing but Python.

python -m gate again FOLDER -- COMMAND...     after a run that failed: runs COMMAND with the tests that may pass now
python -m gate sweep FOLDER                   ends the processes whose TMPDIR is FOLDER
python -m gate seconds FOLDER                 says which files took longest in the runs below FOLDER
python -m gate found FOLDER                   says what a run of the laboratory has found
python -m gate end FOLDER STAGE CODE [RUN...]
                                              says what failed in the runs below FOLDER; ends with the verdict's code,
                                              never 0 if one of these runs is missing
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gate.outcomes import have_passed, read_outcomes, used_chances, why_not_again

SECOND = "-again"
"""The end of the name of the folder that the second run of another one is told in."""
STARTED = "stat"
"""The name of the copy of `/proc/stat` that `.ci/run` makes as it starts."""
STEAL = 7
MOST_LINES = 60
MOST_FILES = 12
MOST_SWEEPS = 20
MOST_CHARACTERS = 200


def again(folder: Path, command: Sequence[str]) -> int:
    """Run the tests that failed once more, if they may; return 0 if all of them pass."""
    first = read_outcomes(folder)
    why_not = why_not_again(first, used_chances())
    if why_not is not None:
        print(f"no second run: {why_not}")
        return 1
    asked = first.failed
    second_folder = folder.with_name(folder.name + SECOND)
    second_folder.mkdir(parents=True)
    # A file: hundreds of tests may have failed by one set-up.
    names = second_folder / "asked"
    names.write_text("".join(f"{name}\n" for name in asked), encoding="utf-8")
    print(f"a second run, of {len(asked)} tests that failed", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run([*command, f"--told={second_folder}", f"@{names}"], env=environment, check=False).returncode
    if code:
        # Also if pytest died after it had said how it ended.
        with (second_folder / "events.jsonl").open("a", encoding="utf-8") as events:
            events.write(json.dumps({"exit": code}) + "\n")
    return 0 if have_passed(read_outcomes(second_folder), asked) else 1


def sweep(folder: str) -> None:
    """End the processes that have their temporary files in this folder, but not those that this one is a child of."""
    spared, parent = {os.getpid()}, os.getppid()
    while parent > 1:
        spared.add(parent)
        # After the name, which may hold anything: the state, then the parent.
        parent = int(_of_process(parent, "stat").rpartition(b")")[2].split()[1])
    # One that is ended may have started another meanwhile.
    for _ in range(MOST_SWEEPS):
        left = [pid for pid in _processes() - spared if _is_within(pid, folder.encode())]
        for pid in left:
            words = _of_process(pid, "cmdline").split(b"\0")
            print(f"left running, and ended now: {b' '.join(words)[:MOST_CHARACTERS].decode(errors='replace')}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return


def _processes() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _is_within(pid: int, folder: bytes) -> bool:
    """Return whether a process has its temporary files in a folder, and is not one that has ended already."""
    if _of_process(pid, "stat").rpartition(b")")[2].split()[0] == b"Z":
        return False
    marks = (b"TMPDIR=" + folder, b"TMPDIR=" + folder + b"/")
    return any(word == marks[0] or word.startswith(marks[1]) for word in _of_process(pid, "environ").split(b"\0"))


def _of_process(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        # It has ended, or is another user's.
        return b") ? 0"


def seconds(folder: Path) -> None:
    """Print which files have taken most of each run's time: they are to be split, or begun first."""
    for told in sorted(path for path in folder.glob("*") if path.is_dir()):
        files: defaultdict[str, float] = defaultdict(float)
        for name, took in read_outcomes(told).seconds.items():
            files[name.partition("::")[0]] += took
        print(f"{told.name}: {sum(files.values()):.0f} s of all workers together")
        for name, took in sorted(files.items(), key=lambda file: -file[1])[:MOST_FILES]:
            print(f"{took:8.1f} {name}")


def found(folder: Path) -> None:
    """Print what failed in a run that may have been ended before it was over, and how many tests passed."""
    outcomes = read_outcomes(folder)
    for failure in outcomes.failures:
        print(f"FOUND {failure.id}: {failure.message}")
    if outcomes.failures:
        # A case that is asked for alone would be the first of its test, and so the gate's.
        print('run one of them again: .venv/bin/pytest -n 0 -m "" ID, with the seed above')
    print(f"laboratory: {len(outcomes.passed)} passed, {len(outcomes.failed)} failed")


def end(folder: Path, stage: str, code: int, runs: Sequence[str] = ()) -> int:
    """Print what failed, one line a test, then one line of counts; return the code of the verdict.

    Args:
        folder: Where the runs are told.
        stage: What was done last.
        code: How it ended.
        runs: The runs without which nothing is green.
    """
    red: dict[str, str] = {}
    flaky: dict[str, str] = {}
    passed: set[str] = set()
    skipped: set[str] = set()
    for told in sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.endswith(SECOND)):
        first, second = read_outcomes(told), read_outcomes(told.with_name(told.name + SECOND))
        is_mended = first.exit == 1 and have_passed(second, first.failed)
        messages = {failure.id: failure.message for failure in reversed(first.failures)}
        (flaky if is_mended else red).update({name: messages[name] for name in first.failed})
        red.update(dict.fromkeys(sorted(first.running - set(first.failed)), "was running as the run ended"))
        if first.reported < first.collected:
            red[told.name] = f"only {first.reported} of {first.collected} tests were reported"
        elif first.exit != 0 and not first.failures:
            red[told.name] = f"pytest ended with {first.exit}"
        passed |= first.passed | (second.passed if is_mended else set())
        skipped |= first.skipped
    if code and not red:
        red[stage] = f"ended with {code}"
    if not code:
        red.update({run: "was not run" for run in runs if not read_outcomes(folder / run).passed})
    for word, tests in (("RED", red), ("FLAKY", flaky)):
        for name, message in list(tests.items())[:MOST_LINES]:
            print(f"{word} {name}: {message}")
        if len(tests) > MOST_LINES:
            print(f"{word} and {len(tests) - MOST_LINES} others")
    for name in sorted(skipped)[:MOST_LINES]:
        print(f"SKIPPED {name}")
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"load {load}; {_stolen(folder / STARTED)} of the processors' time was stolen")
    by_second = f" ({len(flaky)} of them by a second run)" if flaky else ""
    print(f"{'red' if red else 'green'}: {len(passed)} passed{by_second}, {len(red)} failed, {len(skipped)} skipped")
    return code or (1 if red else 0)


def _stolen(started: Path) -> str:
    """Return which part of the processors' time other machines had, since `started` was copied from `/proc/stat`."""
    before, now = ([int(field) for field in _first_line(path).split()[1:9]] for path in (started, Path("/proc/stat")))
    passed = [new - old for new, old in zip(now, before or [0] * len(now), strict=True)]
    return f"{passed[STEAL] / max(1, sum(passed)):.1%}"


def _first_line(path: Path) -> str:
    return path.read_text(encoding="ascii").splitlines()[0] if path.exists() else ""


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands."""
    match list(arguments):
        case ["again", folder, "--", *command] if command:
            return again(Path(folder), command)
        case ["sweep", folder]:
            sweep(folder)
            return 0
        case ["seconds", folder]:
            seconds(Path(folder))
            return 0
        case ["found", folder]:
            found(Path(folder))
            return 0
        case ["end", folder, stage, code, *runs]:
            return end(Path(folder), stage, int(code), runs)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
