"""Fuzzes the readers of every format for a given time: `python fuzz/run.py --seconds 60 --seed 1 batches lz4`.

Each target runs in a process of its own, one after the other. An input that kills the process, hangs, takes too much
memory or breaks an invariant is written to the folder of finds, and makes the exit code 1. See docs/fuzzing.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from pathlib import Path

import sanitized

HANG_SECONDS = 30.0
_ROOT = Path(__file__).parent.parent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all if none is named")
    parser.add_argument("--seconds", type=float, default=60, help="how long, divided among the targets (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--finds", type=Path, default=_ROOT / "build" / "fuzz-finds", help="where finds are written")
    parser.add_argument("--sanitize", type=Path, metavar="FOLDER", help="build with ASan and UBSan in FOLDER, use that")
    parser.add_argument("--vectors", action="store_true", help="only compare tests/vectors/corrupt with what they say")
    parser.add_argument(
        "--replay", type=Path, action="append", metavar="FILE", help="try this input of one target only"
    )
    return parser.parse_args()


def _fuzz(name: str, seconds: float, seed: int, finds: Path) -> bool:
    """Fuzz one target; return whether nothing was found."""
    from targets import all_targets
    from worker import State, find_path, start

    target = all_targets()[name]
    deadline = time.monotonic() + seconds
    executions = crashes = 0
    code = 0
    began = time.monotonic()
    while True:
        state = State()
        child = start(target, seed, max(0.0, deadline - time.monotonic()), state, finds)
        hung = False
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            started = state.read()[1]
            if started and time.monotonic() - started > HANG_SECONDS:
                hung = True
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        done, _, kept, data = state.read()
        executions += done
        if os.WIFEXITED(status):
            code = max(code, os.WEXITSTATUS(status))
            break
        crashes += 1
        kind = "hang" if hung else "crash"
        path = find_path(finds, name, kind, data)
        print(f"{name}: {kind}: signal {os.WTERMSIG(status)} -> {path}", flush=True)
        seed += 1000
        if time.monotonic() >= deadline or crashes >= 10:
            break
    taken = time.monotonic() - began
    rate = executions / taken if taken else 0
    print(f"{name}: {executions} executions in {taken:.0f} s ({rate:.0f}/s), {kept} kept, {crashes} crashes or hangs")
    return not code and not crashes


def _compare_vectors() -> int:
    """Check each folder of `tests/vectors/corrupt` against the error that its README expects."""
    from seeds import CORRUPT
    from targets import all_targets

    wrong = 0
    targets = all_targets()
    for target in targets.values():
        target.begin()
    try:
        folders = sorted(CORRUPT.iterdir())
        for folder in folders:
            fields = dict(re.findall(r"(?m)^(Target|Expected): (.*)$", (folder / "README.md").read_text("utf-8")))
            data = (folder / "data.bin").read_bytes()
            target = targets[fields["Target"]]
            target.check(data)
            found = target.words(data)
            if found != fields["Expected"]:
                wrong += 1
                print(f"{folder.name}: {found!r} instead of {fields['Expected']!r}")
    finally:
        for target in targets.values():
            target.end()
    print(f"{len(folders)} vectors, {wrong} differ")
    return 1 if wrong else 0


def main() -> int:
    """Run the command."""
    options = _arguments()
    if options.sanitize is not None:
        sanitized.restart(options.sanitize)
    from seeds import broker_files
    from targets import all_targets

    broker_files()  # unpacked once, for all processes
    known = all_targets()
    names = options.targets or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no target {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if options.vectors:
        return _compare_vectors()
    if options.replay:
        target = known[names[0]]
        target.begin()
        try:
            for path in options.replay:
                print(f"{path}: {target.check(path.read_bytes())}")
        finally:
            target.end()
        return 0
    clean = [_fuzz(name, options.seconds / len(names), options.seed, options.finds) for name in names]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
