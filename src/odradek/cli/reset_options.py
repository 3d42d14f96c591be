"""The options of commands that set positions, and how they show what they have done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from odradek.cli.app import report
from odradek.cli.listing import show_rows
from odradek.cli.options import COUNT, Integer, Timestamp, bundled
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.places.resets import Reset, ResetTarget


def _targets(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: int | None, shift: int | None
) -> list[ResetTarget]:
    from odradek.places import resets

    found: list[ResetTarget] = [
        *([resets.ToEarliest()] if to_earliest else []),
        *([resets.ToLatest()] if to_latest else []),
    ]
    for value, make in ((to_offset, resets.ToOffset), (to_time, resets.ToTime), (shift, resets.Shift)):
        if value is not None:
            found.append(make(value))
    return found


TARGETS = bundled(
    "targets",
    _targets,
    click.option("--to-earliest", is_flag=True, help="To the log start offset."),
    click.option("--to-latest", is_flag=True, help="To the log end offset."),
    click.option("--to-offset", type=COUNT, help="To this offset."),
    click.option("--to-time", type=Timestamp(), help="To the first record at or after a time, or to the end."),
    click.option("--shift", type=Integer(), help="By N offsets: forwards, or back if it is negative."),
)


def report_edges(planned: Mapping[TopicPartition, Reset]) -> None:
    """Report the positions that were wanted outside of the log, and are set to its start or its end."""
    for name, reset in planned.items():
        if reset.wanted != reset.after:
            edge = "before the log start" if reset.wanted < reset.after else "beyond the log end"
            report(f"{name}: {reset.wanted} is {edge} offset, {reset.after}")


def print_resets(planned: Mapping[TopicPartition, Reset], form: str) -> None:
    """Print each position before and after."""
    rows = [
        {"topic": name.topic, "partition": name.partition, "before": reset.before, "after": reset.after}
        for name, reset in planned.items()
    ]
    bounds = iter([reset.bounds for reset in planned.values()])
    headings = ("TOPIC", "PARTITION", "BEFORE", "AFTER", "LOG_START", "LOG_END")
    show_rows(form, rows, headings, lambda row: (*row.values(), *next(bounds)[:2]))
