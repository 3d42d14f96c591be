"""Reads the outcomes that `gate.events` wrote, and says whether the failed tests may be tried again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MOST_CAUSES = 5
"""With more the machine, or the change, is not fit for a verdict by a second run."""
USED = Path(__file__).parents[1] / "second_chance_used"
"""The tests that have had their second chance: it is over until their mend removes the line."""
CRASHED = "???"
"""When a test fails whose worker died, in the words of xdist."""
PASSED, TESTS_FAILED = 0, 1


@dataclass(frozen=True)
class Failure:
    """A test that failed: where in its life, and of what.

    Attributes:
        id: The test.
        when: `setup`, `call`, `teardown`, `collect`, or `CRASHED`.
        message: What it failed of, in one line.
        is_final: Whether no second run excuses it: records were lost, doubled, torn or in another's place, or a server
            ended by itself.
        is_outside: Whether it is a test of the outside world.
    """

    id: str
    when: str
    message: str
    is_final: bool = False
    is_outside: bool = False

    @property
    def cause(self) -> tuple[str, str]:
        """What several failures have in common that are one: a set-up that failed for all tests of a file."""
        return (self.id.partition("::")[0], self.message) if self.when == "setup" else (self.id, "")


@dataclass
class Outcomes:
    """The outcomes of one run of pytest.

    Attributes:
        collected: How many tests were to run; -1 if that was never said.
        exit: How pytest ended; None if it was killed.
        passed: The tests that passed, from their set-up to their tear-down.
        skipped: Those that were skipped.
        failures: Those that failed; one may fail twice.
        running: Those that were never finished.
        seconds: How long each took that was.
    """

    collected: int = -1
    exit: int | None = None
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def reported(self) -> int:
        """How many tests have an outcome."""
        return len(self.passed | self.skipped | set(self.failed))

    @property
    def failed(self) -> list[str]:
        """The ids of the tests that failed, in their order, each once."""
        return list(dict.fromkeys(failure.id for failure in self.failures))


def read_outcomes(folder: Path) -> Outcomes:
    """Read the outcomes of a run; those of one that never began if there is no file.

    A line that was cut short, by a kill or a full disk, ends it: the run has no end then.
    """
    found = Outcomes()
    try:
        text = (folder / "events.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return found
    for line in text.splitlines(keepends=True):
        try:
            event = json.loads(line)
        except ValueError:
            found.exit = None
            break
        if "collected" in event:
            found.collected = max(found.collected, event["collected"])
        elif "exit" in event:
            found.exit = event["exit"]
        elif "started" in event:
            found.running.add(event["id"])
        elif "finished" in event:
            found.running.discard(event["id"])
            found.seconds[event["id"]] = event.get("seconds", 0.0)
        elif event["outcome"] == "failed":
            named = ("id", "when", "message", "is_final", "is_outside")
            found.failures.append(Failure(**{name: event[name] for name in named if name in event}))
        elif event["outcome"] == "passed":
            found.passed.add(event["id"])
        else:
            found.skipped.add(event["id"])
    # What never came to its end has no outcome yet.
    found.passed -= found.running | set(found.failed)
    found.skipped -= found.passed | set(found.failed)
    return found


def used_chances(path: Path = USED) -> set[str]:
    """Read which tests have had their second chance."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def why_not_again(first: Outcomes, used: Iterable[str]) -> str | None:
    """Return why the failed tests of a run may not be tried again; None if they may."""
    if first.exit != TESTS_FAILED:
        return f"pytest ended with {first.exit}" if first.exit is not None else "pytest was killed"
    if not first.failures:
        return "no test is known to have failed"
    if any(failure.when == CRASHED for failure in first.failures):
        return "a worker died"
    if first.running or first.reported < first.collected:
        return f"only {first.reported} of {first.collected} tests were reported"
    if any(failure.is_final for failure in first.failures):
        return "records are lost, doubled, torn or in another's place, or a server ended by itself"
    inside = [failure.id for failure in first.failures if not failure.is_outside]
    if inside:
        return f"{inside[0]} is no test of the outside world"
    again = sorted(set(first.failed) & set(used))
    if again:
        return f"{again[0]} has had its second chance (tests/second_chance_used)"
    causes = {failure.cause for failure in first.failures}
    if len(causes) > MOST_CAUSES:
        return f"there are {len(causes)} causes, more than {MOST_CAUSES}"
    return None


def have_passed(second: Outcomes, asked: Iterable[str]) -> bool:
    """Say whether all tests that were asked for have passed, and nothing else happened."""
    wanted = set(asked)
    is_whole = second.exit == PASSED and not (second.failures or second.skipped or second.running)
    return is_whole and second.passed == wanted and second.collected == len(wanted)
