"""A log directory as a `pyarrow.dataset.Dataset`: DuckDB, Polars and DataFusion push columns and filters into it.

    filter -> partitions that may hold rows of it -> segments that may -> decode the columns asked for -> filter exactly

`pruning` says what may hold a row, `fragments` reads it, `counting` counts without reading it.
"""

from odradek.columnar.dataset.fragments import LogFragment
from odradek.columnar.dataset.log_dataset import LogDataset, dataset

__all__ = ["LogDataset", "LogFragment", "dataset"]
