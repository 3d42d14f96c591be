"""An operation that an exception out of a signal handler ends early has happened or has not, and the log goes on.

A case that fails prints its numbers, which go into `FOUND_BEFORE` once it is understood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from crash.checks import Wrong
from crash.interrupter import EXCEPTIONS, count, interrupted
from crash.interrupts import Interrupt, case_of, kind_of, run_case
from odradek.records import Record
from odradek.records.builder import build_batch

# Who is interrupted may leave a file open that nobody has a name for.
pytestmark = [pytest.mark.usefixtures("real_locks"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

BLOCKS = 20
CASES = 5

FOUND_BEFORE = [
    # A batch was written and not published: the next one got its offset again.
    Interrupt(145547, 16, "append", 1225, 1252442356),
    Interrupt(1031359, 9, "append_durable", 1244, 1554556540),
    Interrupt(128992, 7, "append", 1299, 1029669723),
    # The producers knew of a batch, or of a marker, that was taken back.
    Interrupt(775019, 6, "append_as_producer", 4843, 3742919294),
    Interrupt(1002518, 6, "end_transaction", 2022, 424509939),
    Interrupt(501983, 9, "end_transaction", 3147, 1552092882),
    # A part of what was to be appended was there.
    Interrupt(206233, 13, "append_several_segments", 9440, 2537562400),
    # A roll was half done: records were missing, or lost by the next crash.
    Interrupt(905705, 8, "roll", 2029, 1507904919),
    Interrupt(158179, 16, "roll", 2063, 4151278752),
    Interrupt(421935, 2, "append_as_producer", 4833, 3545514233),
    # The files of a roll that was taken back were there again after a power cut.
    Interrupt(373520, 8, "append_several_segments", 8389, 698223079),
    # A `TimeoutError` was taken for a failed disk.
    Interrupt(455451, 2, "flush", 771, 4060357076),
    Interrupt(133079, 7, "flush", 373, 3103545921),
    Interrupt(565630, 5, "append", 2495, 609657711),
    # The cleaner kept it to itself, and did not clean that log any more.
    Interrupt(133682, 13, "maintain", 3993, 1365479713),
    # A lock was left behind.
    Interrupt(761346, 9, "maintain", 50013, 1979850004),
    # A topic was half deleted.
    Interrupt(771915, 11, "delete_topic", 5849, 1321046852),
    Interrupt(706548, 3, "delete_topic", 7436, 1513775400),
    Interrupt(927648, 13, "delete_topic", 7013, 4237552449),
    # The second `close` did nothing, and what the first had not flushed was lost.
    Interrupt(601735, 4, "close", 8133, 390158112),
    # The folder stayed locked.
    Interrupt(943539, 2, "open", 110673, 3309419300),
    # A `TimeoutError` was taken for a file that is not there.
    Interrupt(68042, 11, "grow_topic", 6245, 1622206420),
]
"""Interrupts that did harm, as the log was written then; at which bytecode what happens has changed since."""


def interrupt(folder: Path, seeds: Iterable[int]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Run many cases; return how they ended, what went wrong how often, and one error of each kind."""
    ended: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    errors: list[str] = []
    for seed in seeds:
        try:
            found = run_case(case_of(seed), folder)
            ended[found.state if found.outcome.raised else "not interrupted"] += 1
        except Wrong as error:
            kind = kind_of(error)
            kinds[kind] += 1
            if kinds[kind] == 1:
                errors.append(f"seed {seed}: {error}")
    return ended, kinds, errors


def check(folder: Path, seeds: range) -> None:
    ended, kinds, errors = interrupt(folder, seeds)
    told = [f"{number:6} {kind}" for kind, number in kinds.most_common()]
    print(f"{len(seeds)} interrupts: {dict(ended)}, {sum(kinds.values())} went wrong", *told, sep="\n")
    assert not kinds, "\n".join([f"{sum(kinds.values())} of {len(seeds)} went wrong:", *told, *(_short(errors))])
    assert ended["not interrupted"] < len(seeds) / 4


def _short(errors: list[str]) -> Iterator[str]:
    for error in errors:
        yield "\n".join(line[:400] for line in error.splitlines()[:3])
    if errors:
        yield errors[0]


@pytest.mark.slow
def test_an_exception_arrives_from_every_bytecode() -> None:
    records = [Record(b"key", b"value", [("header", None)], 1_700_000_000_000)]
    bytecodes = count(lambda: build_batch(records))
    assert bytecodes == count(lambda: build_batch(records)) > 100
    for bytecode in range(1, bytecodes, 7):
        for kind in EXCEPTIONS:
            outcome = interrupted(lambda: build_batch(records), bytecode, [kind])
            assert (outcome.arrived, outcome.raised, outcome.kind) == (True, 1, kind)
    assert not interrupted(lambda: build_batch(records), bytecodes + 1).error


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_interrupts(memory_folder: Path, block: int) -> None:
    check(memory_folder, range(block * CASES, (block + 1) * CASES))


@pytest.mark.laboratory
@pytest.mark.parametrize("block", range(2))
def test_a_hundred_and_fifty_interrupts(memory_folder: Path, block: int) -> None:
    check(memory_folder, range(1_000_000 + block * 75, 1_000_000 + (block + 1) * 75))


@pytest.mark.laboratory
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_ten_thousand_interrupts(memory_folder: Path, block: int, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--interrupts") // BLOCKS
    check(memory_folder, range(2_000_000 + block * count, 2_000_000 + (block + 1) * count))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "found" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--interrupt")
        metafunc.parametrize("found", [Interrupt.parse(asked)] if asked else FOUND_BEFORE, ids=str)


@pytest.mark.sampled
def test_found_before(memory_folder: Path, found: Interrupt) -> None:
    run_case(found, memory_folder)
