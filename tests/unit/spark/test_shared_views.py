from __future__ import annotations

from pathlib import Path

import pytest

from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.shared_views import shared_views
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec

WORDS = Transform("words", "SELECT explode(split(value, ' ')) AS word FROM Records")
COUNTS = Transform("counts", "SELECT word, count(*) FROM words GROUP BY word")
UNUSED = Transform("unused", "SELECT * FROM words JOIN records")


def parquet(view: str) -> ParquetSinkSpec:
    return ParquetSinkSpec(Path("/out") / view, view)


@pytest.mark.parametrize(
    ("transforms", "sinks", "shared"),
    [
        ((), (parquet("records"),), set()),
        ((), (parquet("records"), ConsoleSinkSpec("SELECT count(*) FROM records")), {"records"}),
        ((WORDS, COUNTS), (parquet("counts"),), set()),
        ((WORDS, COUNTS), (parquet("words"), parquet("counts")), {"words"}),
        ((WORDS, COUNTS), (parquet("records"), parquet("counts")), {"records"}),
        ((WORDS, COUNTS, UNUSED), (parquet("counts"), ConsoleSinkSpec("SELECT 1 FROM words_so_far")), set()),
    ],
)
def test_views_with_several_readers(
    transforms: tuple[Transform, ...], sinks: tuple[ParquetSinkSpec | ConsoleSinkSpec, ...], shared: set[str]
) -> None:
    job = Job({"path": "/data", "subscribe": "t"}, "file:///o", sinks, transforms=transforms)
    assert shared_views(job) == shared
