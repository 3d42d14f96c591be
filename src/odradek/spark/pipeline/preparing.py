"""What a session needs before the views of a job are defined: its functions, and values that can be decoded."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.spark.pipeline.functions import is_built_in
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.session import explained
from odradek.spark.pipeline.told_function import ToldFunction
from odradek.spark.pipeline.values import check_options


def prepare(spark: SparkSession, job: Job) -> None:
    """Let SQL use the Python functions of a job, and check how values are decoded.

    Raises:
        JobError: A function is not there, or cannot be used; Spark refuses an option of the values.
    """
    for number, udf in enumerate(job.udfs):
        key = f"udf[{number}]"
        function: Any = udf.function.load(f"{key}.function")
        if hasattr(function, "asNondeterministic"):
            # A function that is decorated knows what it returns. It is registered by what it decorates.
            if not isinstance(function.func, ToldFunction):
                function.func = ToldFunction(function.func)
        else:
            function = ToldFunction(function)
        with explained(f"{key}.returns" if udf.returns else key):
            spark.udf.register(udf.name, function, udf.returns)
            # Spark looks for its own functions first (`spark.sql.functionResolution.sessionOrder`), and says nothing.
            is_hidden = ".catalyst." in (spark.catalog.getFunction(udf.name).className or "")
        if is_hidden:
            raise JobError(is_built_in(udf.name), f"{key}.name")
    if job.value is not None:
        check_options(spark, job.value)
