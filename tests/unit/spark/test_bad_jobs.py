"""`pipeline check` without Spark finds what is wrong with two hundred job files, with its line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

# pytest, which rewrites these, cannot do so in a thread.
import odradek.offsets.kafka
import odradek.offsets.redis
import odradek.offsets.zookeeper  # noqa: F401
from jobs.bad_jobs import FOUND, KEYS, NAMES, SOUND, SYNTAX, BadJob
from odradek.spark.pipeline.check import check_job
from peers.cpu import standard_s

pytestmark = pytest.mark.needs("java")  # Spark's parser


def test_there_are_two_hundred() -> None:
    assert len({bad.text for bad in FOUND}) >= 200


@pytest.mark.slow
def test_the_job_without_a_mistake_has_no_findings(job: Path) -> None:
    job.write_text(SOUND, encoding="utf-8")
    assert check_job(job) == []


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [SYNTAX, NAMES, KEYS], ids=["syntax", "names", "keys"])
def test_each_mistake_is_found_with_its_line(job: Path, jobs: list[BadJob]) -> None:
    missed, longest_s = [], 0.0
    for bad in jobs:
        job.write_text(bad.text, encoding="utf-8")
        begun = time.process_time()
        findings = check_job(job)
        longest_s = max(longest_s, time.process_time() - begun)
        if not any(found.line == bad.line and bad.hint in found.reason for found in findings):
            missed.append((bad.line, bad.hint, bad.text, [str(found) for found in findings]))
    assert missed == []
    assert longest_s / standard_s() < 250
