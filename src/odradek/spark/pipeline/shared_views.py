"""Which views of a job are read more than once in a batch, and so are kept: each sink runs a query of its own.

    records -> words -> parquet sink              words is read twice, and kept; records once
                     -> counts -> topic sink

A view that is read once is not kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.spark.pipeline.value_format import RECORDS_VIEW


def shared_views(job: Job) -> frozenset[str]:
    """Return the views that several sinks, or other views that a sink needs, read.

    A column that only has the name of a view may add to it; then a view is kept that need not be.
    """
    views = [RECORDS_VIEW, *(transform.view for transform in job.transforms)]
    readers: Counter[str] = Counter()
    for sink in job.sinks:
        readers.update(_named(sink.sql, views) if isinstance(sink, ConsoleSinkSpec) else [sink.view])
    for transform in reversed(job.transforms):
        if readers[transform.view]:
            readers.update([transform.input] if transform.sql is None else _named(transform.sql, views))
    return frozenset(view for view, count in readers.items() if count > 1)


def _named(sql: str, views: Iterable[str]) -> Iterator[str]:
    # Spark's names are not case-sensitive.
    return (view for view in views if re.search(rf"\b{re.escape(view)}\b", sql, re.IGNORECASE))
