"""Which of the source's columns the sinks of a job need: a batch reads no others.

Spark does not tell a source in Python which columns a query needs. They are found in the plans of what the sinks read,
after Spark's own rule `ColumnPruning` has put a `Project` wherever less is needed than there is:

    Aggregate [word#9], [word#9, count(1)]
      Project [word#9]
        Generate explode(split(cast(value#1 as string)))
          Project [value#1]
            odradek [key#0, value#1, topic#2, partition#3 ...]         value is needed

A column keeps its id on the way up, and is needed if any node refers to it, or if it comes out on top.

The plans are analysed, but not optimised. What the optimiser drops may be needed in a later batch: it knows the date of
today and which tables are empty, and so finds conditions that are always false now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.spark.pipeline.batch import views_over
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.lineage import items, kind_of
from odradek.spark.pipeline.shared_views import shared_views
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, PythonSinkSpec
from odradek.spark.pipeline.value_format import RECORDS_VIEW
from odradek.spark.spark_schema import source_schema

_PASSING_BY_ID = frozenset(
    {
        "Aggregate",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "PipeOperator",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "View",
        "Window",
        "WithCTE",
    }
)
"""The nodes that make a column only of those that they refer to, and pass others on with their ids. Others, such as a
`Union`, take the columns of their children by their places: of these each is needed."""
_CONSTANT = frozenset({"CTERelationRef", "LocalRelation", "OneRowRelation", "Range"})
"""The leaves that are the same in each batch. The columns of a table may change, and with them a query's meaning."""
_PLAIN_QUERY = re.compile(
    r"(?:[\s(]|--[^\n]*\n)*(?:SELECT|WITH|FROM|VALUES|TABLE)\b(?!.*\b(?:IDENTIFIER|INSERT|UPDATE|DELETE|MERGE)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""A query that does nothing when it is planned, and whose names are literals: `IDENTIFIER` computes them, each time."""
_TO_COUNT = frozenset({"offset"})


def needed_columns(spark: SparkSession, job: Job, sinks: Sequence[Sink]) -> frozenset[str]:
    """Return the names of the source's columns that the sinks of a job need; all of them where that is not certain.

    The job's views are afterwards views of nothing.

    Args:
        spark: The session.
        job: The job.
        sinks: Its sinks.

    Raises:
        JobError: A view cannot be made.
    """
    schema = source_schema(include_headers=job.source_options().include_headers)
    every = frozenset(schema.names)
    if _may_read_anything(job):
        return every
    needed: set[str] = set()
    for name, frame in views_over(_nothing(spark, schema), job):
        if _reads_tables(_plan(frame)):
            return every
        frame.createOrReplaceTempView(name)
    try:
        for frame in _frames(spark, job, sinks):
            found = _columns(spark, _plan(frame))
            if found is None:
                return every
            needed |= found
    except (Py4JError, PySparkException):
        # The sink that it belongs to will say what is wrong.
        return every
    return (frozenset(needed) & every) or _TO_COUNT


def _may_read_anything(job: Job) -> bool:
    """Whether a sink takes the records as they are, or the plans do not say all: a function may look at any view."""
    queries = [transform.sql for transform in job.transforms]
    for spec in job.sinks:
        if isinstance(spec, ConsoleSinkSpec):
            queries.append(spec.sql)
        elif isinstance(spec, PythonSinkSpec) or spec.view == RECORDS_VIEW:
            return True
        elif isinstance(spec, ParquetSinkSpec) and spec.merge is not None:
            queries.append(spec.merge)
    return not all(sql is not None and _PLAIN_QUERY.match(sql) for sql in queries)


def _nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame with the source's columns, and no rows: to make one of the source takes ten times as long."""
    java: Any = spark._jsparkSession
    return DataFrame(java.createDataFrame(spark._jvm.java.util.ArrayList(), java.parseDataType(schema.json())), spark)  # type: ignore[union-attr, unused-ignore]


def _frames(spark: SparkSession, job: Job, sinks: Sequence[Sink]) -> Iterator[DataFrame]:
    """Yield what the sinks read, and what is kept for several of them, which Spark computes with all of its columns."""
    for spec, sink in zip(job.sinks, sinks, strict=True):
        yield spark.sql(spec.sql) if isinstance(spec, ConsoleSinkSpec) else spark.table(spec.view)
        sink.define_views(spark)
        if isinstance(spec, ParquetSinkSpec) and spec.merge is not None:
            yield spark.sql(spec.merge)
    for view in shared_views(job) - {RECORDS_VIEW}:
        yield spark.table(view)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _reads_tables(plan: Any) -> bool:
    return any(kind_of(leaf) not in _CONSTANT for leaf in items(plan.collectLeaves()))


def _columns(spark: SparkSession, plan: Any) -> set[str] | None:
    """Return the names of the columns that a plan needs of its leaves; None if that is not certain."""
    if not plan.subqueriesAll().isEmpty():
        # A query within an expression has a plan of its own, which refers to columns of this one.
        return None
    leaves = [leaf for leaf in items(plan.collectLeaves()) if kind_of(leaf) == "LocalRelation"]
    if not leaves:
        return set()
    if _reads_tables(plan):
        return None
    top = spark._jvm.org.apache.spark.sql.catalyst.optimizer.ColumnPruning.apply(plan)  # type: ignore[union-attr, unused-ignore]
    needed = top.outputSet()
    nodes = [top]
    for node in nodes:
        children = items(node.children())
        passed = [] if kind_of(node) in _PASSING_BY_ID else [child.outputSet() for child in children]
        for attributes in (node.references(), *passed):
            needed = getattr(needed, "$plus$plus")(attributes)
        nodes += children
    return {column.name() for leaf in leaves for column in items(leaf.output()) if needed.contains(column)}
