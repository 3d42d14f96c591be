from __future__ import annotations

import logging

import pytest

from odradek.cli.pipeline_report import RunReport


def test_warnings_of_the_library_are_shown_while_a_job_runs(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("odradek.spark.open_transactions")
    with RunReport(["job"], jsonl=True):
        logger.warning("%s waits", "t-0")
        logger.info("not this")
    logger.warning("nor this")
    assert capsys.readouterr() == ("", "t-0 waits\n")
