"""What `odradek pipeline run` shows of a batch: on a terminal one line that moves, for programs a line of JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from odradek.cli.pipeline_report import JobReport
from odradek.offsets.store import Position
from odradek.spark.pipeline import BatchReport
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAMES = [TopicPartition("orders", number) for number in range(6)]
BATCH = BatchReport(
    7,
    [OffsetRange(NAMES[0], 0, 1000), OffsetRange(NAMES[1], 5, 1005)],
    {name: 2000 + number for number, name in enumerate(NAMES)},
    {name: Position(1000) for name in NAMES},
    0.5,
    3,
    [("parquet /out", 0.25), ("topic \x1bpaid", 0.125)],
)


def test_the_moving_line_tells_phase_speed_lags_and_sinks(capsys: pytest.CaptureFixture[str]) -> None:
    report = JobReport("orders", Console(), jsonl=False)
    report.step("batch 7: 2,000 offsets, parquet /out ...")
    assert report._line() == "orders: batch 7: 2,000 offsets, parquet /out ... 0 s"
    report.batch(BATCH)
    assert report._line() == (
        "orders: waiting for records ... 0 s | 4,000 offsets/s | lag orders-5 1,005, orders-4 1,004, orders-3 1,003, "
        "orders-2 1,002 and 2 more | parquet /out 0.2 s | topic \\x1bpaid 0.1 s"
    )
    told = "batch 7: 2,000 offsets of 2 partitions in 0.5 s, 4,000/s, 6,015 left, 3 records refused\n"
    assert capsys.readouterr().out == told


@pytest.mark.parametrize("width", [3, 20, 80])
def test_the_moving_line_is_one_line_on_a_narrow_terminal(width: int) -> None:
    report = JobReport("orders", Console(), jsonl=False)
    report.batch(BATCH)
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    (line,) = console.render_lines(report.moving())
    assert "".join(part.text for part in line).endswith("…")


def test_a_line_of_json_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    JobReport("orders", Console(), jsonl=True).batch(BATCH)
    told = json.loads(capsys.readouterr().out)
    assert told.pop("time_ms") > 1_600_000_000_000
    assert told == {
        "event": "batch",
        "job": "orders",
        "batch": 7,
        "offsets": 2000,
        "seconds": 0.5,
        "lag": 6015,
        "lags": {f"orders-{number}": 1000 + number for number in range(6)},
        "refused": 3,
        "sinks": [{"sink": "parquet /out", "seconds": 0.25}, {"sink": "topic \x1bpaid", "seconds": 0.125}],
        "ranges": [
            {"topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 1000},
            {"topic": "orders", "partition": 1, "start_offset": 5, "end_offset": 1005},
        ],
    }
