"""The table `[state]` of a job whose views keep state from batch to batch, in Spark.

    [state]
    path = "state"                      Spark's checkpoint: one folder for each job
    view = "counts"                     the last view that Spark keeps state for; by default the last transform's
    output_mode = "append"              or "update", "complete"
    watermark = "10 minutes"            of the column timestamp of records; or { view, column, delay }
    partitions = 4                      of the state, and so tasks; by default spark.sql.shuffle.partitions (200)

Only `path` is required.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import JobError
from odradek.spark.options import nearest
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.value_format import RECORDS_VIEW

OUTPUT_MODES = ("append", "update", "complete")
_DELAY = re.compile(r"(?i)\d{1,9} (microsecond|millisecond|second|minute|hour|day|week)s?")


@dataclass(frozen=True)
class Watermark:
    """How late rows may be.

    Attributes:
        delay: How long after the latest time that was seen, as Spark writes it: `10 minutes`.
        view: The view that has the column.
        column: The column of times.
    """

    delay: str
    view: str = RECORDS_VIEW
    column: str = "timestamp"


@dataclass(frozen=True)
class StateSpec:
    """The state that Spark keeps for a job.

    Attributes:
        path: The folder of Spark's checkpoint.
        view: The view at which it ends: the transforms up to it are one streaming query, and those after it are
            queries over its rows in each batch. None for the last transform's.
        output_mode: Which rows the view has in each batch: `append`, those that will not change any more; `update`,
            those that changed; `complete`, all.
        watermark: How late rows may be; None if they may always come.
        partitions: How many partitions the state has, from its beginning on; None for `spark.sql.shuffle.partitions`.
    """

    path: Path
    view: str | None = None
    output_mode: str = "append"
    watermark: Watermark | None = None
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.output_mode not in OUTPUT_MODES:
            known = ", ".join(OUTPUT_MODES)
            reason = f"one of {known}, not {self.output_mode!r}{nearest(self.output_mode, OUTPUT_MODES)}"
            raise JobError(reason, "state.output_mode")
        if self.partitions is not None and self.partitions < 1:
            raise JobError(f"at least 1, not {self.partitions}", "state.partitions")
        if self.watermark is not None and not _DELAY.fullmatch(self.watermark.delay):
            raise JobError(f'a time such as "10 minutes" or "30 seconds", not {self.watermark.delay!r}', WATERMARK_KEY)


WATERMARK_KEY = "state.watermark"


def read_state(entry: Table, path: Path) -> StateSpec:
    """Read the table.

    Args:
        entry: The table, without its path.
        path: The folder.

    Raises:
        JobError: A key is wrong.
    """
    given = entry.take("watermark", object)
    watermark = None
    if isinstance(given, str):
        watermark = Watermark(given)
    elif isinstance(given, dict):
        table = entry.nested("watermark", given)
        watermark = table.fill(Watermark)
        table.end()
    elif given is not None:
        raise JobError(f'a time such as "10 minutes", or a table with delay, not {given!r:.100}', WATERMARK_KEY)
    spec = entry.fill(StateSpec, path=path, watermark=watermark)
    entry.end()
    return spec
