"""Lets Spark analyse a job's queries, over no rows: unknown functions, aggregates, types, and what its sinks need.

    records    the source's columns, of no splits; a stream of them for a job with state
    views      analysed by Spark, and made by the job's Python functions
    sinks      the checks that they make before they write

No record is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odradek.errors import JobError, OdradekError
from odradek.spark.pipeline.batch import source_frame, transformed, views_over
from odradek.spark.pipeline.forwarding import forwarded
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.parquet import merged
from odradek.spark.pipeline.parquet_columns import check_columns, with_dates
from odradek.spark.pipeline.preparing import prepare
from odradek.spark.pipeline.python_sink import PythonSink
from odradek.spark.pipeline.session import SPARK_FAILURES, explain, silence_error_log
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec, ParquetSinkSpec, PythonSinkSpec, SinkSpec, TopicSinkSpec
from odradek.spark.pipeline.stateful import streaming_frame
from odradek.spark.pipeline.told_function import refused_call
from odradek.spark.spark_session import activated

_SUBQUERIES = {"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"}
"""The expressions that hold a plan of their own."""


def analyse(spark: SparkSession, job: Job) -> Iterator[JobError]:
    """Yield what Spark finds wrong with a job, by the keys of its file: the first error of the views, or of each sink.

    Args:
        spark: A session; the job's views and functions are defined in a new one beside it.
        job: The job.
    """
    silence_error_log()
    beside = spark.newSession()
    for name, value in job.spark_conf.items():
        try:
            if beside.conf.isModifiable(name):
                beside.conf.set(name, value)
        except SPARK_FAILURES as error:
            yield explain(error, "spark.conf")
            return
    try:
        yield from _analyse(beside, job)
    finally:
        # Frames of its own make the new session the active one, for Java and for Python.
        SparkSession._activeSession = activated(spark)


def _analyse(beside: SparkSession, job: Job) -> Iterator[JobError]:
    try:
        prepare(beside, job)
        if job.state is None:
            keys = ("", *(f"transform[{number}].{each.kind}" for number, each in enumerate(job.transforms)))
            for key, (name, frame) in zip(keys, views_over(source_frame(beside, job, []), job), strict=True):
                _check_calls(frame, job, key)
                frame.createOrReplaceTempView(name)
        else:
            _analyse_state(beside, job)
    except (OdradekError, *SPARK_FAILURES) as error:
        yield _told(error, "state" if job.state is not None else "transform")
        return
    for number, sink in enumerate(job.sinks):
        try:
            _analyse_sink(beside, job, sink, f"sink[{number}]")
        except (OdradekError, *SPARK_FAILURES) as error:
            yield _told(error, f"sink[{number}]")


def _analyse_state(spark: SparkSession, job: Job) -> None:
    """Define the views of a job with state: those of the stream, and those of each batch."""
    assert job.state is not None
    reader = spark.readStream.format("odradek").options(**job.source)
    frame = streaming_frame(job, reader.load())
    jvm: Any = spark._jvm
    mode = jvm.org.apache.spark.sql.catalyst.streaming.InternalOutputModes.apply(job.state.output_mode)
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    streaming, later = job.stateful_transforms()
    _check_calls(frame, job, "transform")
    _without_rows(spark, frame).createOrReplaceTempView(streaming[-1].view)
    for number, transform in enumerate(later, len(streaming)):
        transformed(spark, transform, f"transform[{number}]").createOrReplaceTempView(transform.view)


def _check_calls(frame: DataFrame, job: Job, key: str) -> None:
    """Check how many arguments a query gives to the job's functions.

    Args:
        frame: What it gives.
        job: The job.
        key: The key of the query.

    Raises:
        JobError: A function takes others.
    """
    functions = {udf.name.lower(): (number, udf) for number, udf in enumerate(job.udfs)}
    plans = [frame._jdf.queryExecution().analyzed()] if functions else []
    while plans:
        plan = plans.pop()
        # What is in a view was looked at when it was made.
        if plan.nodeName() != "View":
            plans += _each(plan.children())
        expressions = _each(plan.expressions())
        while expressions:
            expression = expressions.pop()
            if expression.nodeName() in _SUBQUERIES:
                plans.append(expression.plan())
            given = _each(expression.children())
            expressions += given
            if expression.nodeName() == "PythonUDF" and expression.name().lower() in functions:
                number, udf = functions[expression.name().lower()]
                names = [each.key() for each in given if each.nodeName() == "NamedArgumentExpression"]
                function = udf.function.load(f"udf[{number}].function")
                if (wrong := refused_call(function, given[len(names) :], dict.fromkeys(names))) is not None:
                    raise JobError(f"{udf.name} is called with other arguments than it takes: {wrong}", key)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _without_rows(spark: SparkSession, frame: DataFrame) -> DataFrame:
    return spark.createDataFrame([], frame.schema)


def _analyse_sink(spark: SparkSession, job: Job, sink: SinkSpec, key: str) -> None:
    match sink:
        case ConsoleSinkSpec():
            _of_key(f"{key}.sql", lambda: _check_calls(spark.sql(sink.sql), job, f"{key}.sql"))
        case TopicSinkSpec():
            target = f"topic {sink.topic}" if sink.topic is not None else f"topics by {sink.topic_column}"
            _of_key(f"{key}.view", lambda: forwarded(spark, sink, target, is_by_record=False))
        case ParquetSinkSpec():
            frame = spark.table(sink.view)
            _of_key(f"{key}.view", lambda: check_columns(frame.schema, sink))
            if sink.name is not None:
                with_dates(frame, sink).createOrReplaceTempView(sink.name)
            if sink.merge is not None:
                _of_key(f"{key}.merge", lambda: merged(frame, sink))
        case PythonSinkSpec():
            PythonSink(sink, key)


def _of_key(key: str, ask: Callable[[], object]) -> None:
    """Name the key in the errors of what asks Spark."""
    try:
        ask()
    except (OdradekError, *SPARK_FAILURES) as error:
        raise _told(error, key) from error


def _told(error: Exception, key: str) -> JobError:
    if isinstance(error, JobError):
        return error if error.key is not None else JobError(error.reason, key)
    return JobError(str(error), key) if isinstance(error, OdradekError) else explain(error, key)
