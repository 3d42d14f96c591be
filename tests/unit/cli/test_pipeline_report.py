from __future__ import annotations

import logging

import pytest

from odradek.cli.pipeline_report import RunReport, show_status
from odradek.spark.pipeline.run_note import LastBatch, RunNote
from odradek.spark.pipeline.status import JobStatus


def test_warnings_of_the_library_are_shown_while_a_job_runs(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("odradek.spark.open_transactions")
    with RunReport(["job"], jsonl=True):
        logger.warning("%s waits", "t-0")
        logger.info("not this")
    logger.warning("nor this")
    assert capsys.readouterr() == ("", "t-0 waits\n")


def test_a_batch_that_only_closed_windows_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    for offsets, told in (
        (1200, "1,200 offsets in 0.5 s"),
        (0, "windows that were over, and no new offsets, in 0.5 s"),
    ):
        note = RunNote(LastBatch(1_790_000_000_000, offsets, 0.5))
        show_status(JobStatus("j", "file:///o.json", (), note, None), jsonl=False)
        assert told in capsys.readouterr().out
