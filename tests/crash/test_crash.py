"""Logs that were cut off anywhere are recovered: what was acknowledged is there, and nothing else.

A case that fails prints its numbers, which go into `FOUND_BEFORE` once it is understood, and the history of the disk.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from crash.case import Case, Judge
from crash.checks import Wrong
from crash.store import unrecorded
from crash.workload import Workload
from odradek.testing.disk import Kind

STEPS = 60
CUTS = 25
BLOCKS = 46
WORKLOADS_A_BLOCK = 10

FOUND_BEFORE = [
    # A segment lost its end and the next one was there: a hole.
    Case(19, 60, 523, "power", 3581173236),
    Case(13, 60, 333, "power", 1527879415),
    Case(8, 60, 379, "power", 462692163),
    # Records of an open transaction were deleted, and the last stable offset lay below the log start.
    Case(2, 60, 441, "kill", 759006542),
    Case(6, 60, 293, "power", 1441313771),
    # A log without records was found otherwise than it was left.
    Case(0, 60, 41, "power", 1418186270),
    # A deleted head came back, or left a hole.
    Case(17, 60, 513, "power", 1609878352),
    Case(9, 60, 567, "power", 3820700083),
    # The snapshot at the log start was deleted, and recovering twice gave another state of the producers.
    Case(26, 60, 514, "power", 3639307402),
    # The leaders' terms began behind the end of the log, and hid those of its batches.
    Case(9, 60, 627, "power", 3914344192),
    # The names of segments that a crashed process had made were never brought to the disk.
    Case(46, 60, 600, "power", 4246981464),
    # What was left of a deleted head had a hole, and a snapshot from before it was replayed from.
    Case(211, 60, 527, "power", 118407822),
    # What was cut took the snapshot of the new end with it: recovering twice gave another state of the producers.
    Case(3000212, 60, 458, "power", 3303151863),
    # A segment was sealed below the recovery point, and the cut of its preallocated end lost.
    Case(3000295, 60, 853, "power", 2733131219),
    # The flush of a rolled segment whose log had been deleted kept others from theirs.
    Case(367, 60, 300, "power", 1),
    # Of a batch the base offset alone, which no checksum covers, did not reach the disk.
    Case(5000027, 60, 132, "power", 2772172226),
    # Of a compacted segment without records the `.log` alone took its place: beside it stood the old indexes.
    Case(32, 60, 206, "power", 4240256878),
]
"""Crashes that lost or invented something, as the log was written then; what it does at each step has changed since."""

FAULTS: list[tuple[Kind, str]] = [
    ("write", ""),
    ("sync", ""),
    ("sync", ".log"),
    ("sync_directory", ""),
    ("rename", ""),
    ("truncate", ""),
    ("create", ""),
    ("unlink", ""),
]
"""Which operation fails, and what its path contains."""


def crash(folder: Path, seed: int, cuts: int) -> int:
    """Do the work of a seed, crash it at so many moments, and return how many there were."""
    work = Workload(folder / "live", seed)
    work.run(STEPS)
    assert not work.offline
    return judge(folder, work, cuts, 0)


def crash_after_fault(folder: Path, seed: int, cuts: int, fault: tuple[Kind, str], *, go_on: bool) -> int:
    """Do the work of a seed until a fault ends it, or go on after it, and crash it then."""
    kind, path_part = fault
    work = Workload(folder / "live", seed)
    rng = random.Random(seed)
    if kind == "write" and rng.random() < 0.5:
        work.files.space_bytes = rng.randint(1000, 9000)
    else:
        work.files.fail(kind, rng.randint(0, 15 if path_part else 60), at=path_part)
    work.run(STEPS)
    since = 0
    if go_on:
        work.go_on()
        since = work.moment
        work.run(STEPS // 2)
    return judge(folder, work, cuts, since)


def judge(folder: Path, work: Workload, cuts: int, since: int) -> int:
    work.store.abandon()
    if unrecorded(work.files):
        raise Wrong(f"workload {work.seed} wrote past the file system: {unrecorded(work.files)}")
    rng = random.Random(work.seed)
    points = sorted((rng.randint(since, work.moment) for _ in range(cuts)), reverse=True)
    judged = Judge(work, folder / "after")
    for operations, disk in work.files.replays():
        while points and points[-1] == operations:
            points.pop()
            case = Case(work.seed, STEPS, operations, "kill" if rng.random() < 0.3 else "power", rng.getrandbits(32))
            judged.judge(case, disk)
            if rng.random() < 0.1:
                judged.judge_flips(case, disk)
    shutil.rmtree(folder / "live")
    return cuts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_crashes(memory_folder: Path, seed: int) -> None:
    assert crash(memory_folder, seed, 10) == 10


@pytest.mark.sampled
@pytest.mark.parametrize("go_on", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_crashes_after_a_fault(memory_folder: Path, fault: tuple[Kind, str], go_on: bool) -> None:
    assert crash_after_fault(memory_folder, 1_000_000, 3, fault, go_on=go_on) == 3


@pytest.mark.laboratory
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_two_hundred_and_fifty_crashes(memory_folder: Path, block: int) -> None:
    seeds = range(block * WORKLOADS_A_BLOCK, (block + 1) * WORKLOADS_A_BLOCK)
    assert sum(crash(memory_folder, seed, CUTS) for seed in seeds) == len(seeds) * CUTS


@pytest.mark.laboratory
@pytest.mark.timeout(900)
@pytest.mark.parametrize("go_on", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_many_crashes_after_a_fault(memory_folder: Path, fault: tuple[Kind, str], go_on: bool) -> None:
    for seed in range(2_000_000, 2_000_010):
        crash_after_fault(memory_folder, seed, 8, fault, go_on=go_on)


@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND_BEFORE, ids=str)
def test_found_before(memory_folder: Path, case: Case) -> None:
    work = Workload(memory_folder / "live", case.workload)
    work.run(case.steps)
    work.store.abandon()
    judged = Judge(work, memory_folder / "after")
    for operations in range(case.operations - 2, min(case.operations + 3, work.moment + 1)):
        judged.judge(replace(case, operations=operations), work.files.replay(operations))
