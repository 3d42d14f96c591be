"""Spark's own grammar, without Spark: a small JVM in which only the parser of the installed PySpark is loaded.

    SELECT key,, value FROM records      ->  Syntax error at or near ','
    CAST(offset AS BIGNT)                ->  Unsupported data type "BIGNT"

The JVM takes about two seconds to start, once for each process, and ends with it. If a Spark session runs already, its
JVM is used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_OPTIONS = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xms128m", "-Xmx256m", "-Xss4m"),
    # Spark's own classes: to verify their code is a fifth of the time.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
_FIRST_JARS = (
    "spark-catalyst",
    "spark-sql",
    "spark-co",
    "scala-library",
    "antlr4",
    "log4j",
    "slf4j",
    "jackson",
    "json4s",
)
"""The jars with most of the classes. Before a class is found, the JVM opens all jars that come before its own."""
_LINE = re.compile(r"\(line (\d+), pos")
_NAME = re.compile(r"\[[A-Z0-9_.]+\] ")
_END = re.compile(r"\.? (?:SQLSTATE: |\(line |== SQL)")


class SqlFinding(NamedTuple):
    """Something wrong in a query, or in another text that Spark parses.

    Attributes:
        reason: What is wrong.
        line: The line in the text, from 1.
    """

    reason: str
    line: int


class ParsedQuery(NamedTuple):
    """A statement as Spark parses it.

    Attributes:
        problem: What is wrong with its syntax, or None.
        reads_relations: Whether Spark sees tables or views that it reads.
    """

    problem: SqlFinding | None
    reads_relations: bool


class SparkGrammar:
    """Parses texts as Spark does. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jvm: Any = None
        self._parser: Any = None

    def start(self) -> None:
        """Start the JVM, unless it runs.

        Raises:
            SparkStartError: Java is missing or too old, or a part of PySpark is missing.
        """
        with self._lock:
            if self._parser is None:
                self._jvm = _jvm()
                self._parser = self._jvm.org.apache.spark.sql.execution.SparkSqlParser()
                # The first query loads the classes.
                self._parser.parsePlan("SELECT 1")

    def query(self, sql: str) -> ParsedQuery:
        """Parse a statement."""
        plan = ""

        def parse(text: str) -> None:
            nonlocal plan
            plan = str(self._parser.parsePlan(text).toString())

        problem = self._finding(sql, lambda: parse)
        return ParsedQuery(problem, "UnresolvedRelation" in plan)

    def columns(self, ddl: str) -> SqlFinding | None:
        """Return what is wrong with columns such as `id BIGINT, paid DOUBLE`, or None."""
        return self._finding(ddl, lambda: self._parser.parseTableSchema)

    def data_type(self, name: str) -> SqlFinding | None:
        """Return what is wrong with a type such as `array<int>`, or None."""
        return self._finding(name, lambda: self._parser.parseDataType)

    def has_function(self, name: str) -> bool:
        """Whether a function of this name is built into Spark's SQL."""
        self.start()
        registry = self._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        return bool(registry.functionExists(self._parser.parseFunctionIdentifier(f"`{name}`")))

    def _finding(self, text: str, parse: Callable[[], Callable[[str], Any]]) -> SqlFinding | None:
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        self.start()
        try:
            parse()(text)
        except (Py4JError, PySparkException) as error:
            # A session that started later has PySpark look up this JVM's exceptions in its own: what it makes of them,
            # or its failure, has the real one as its context.
            raised: BaseException | None = error
            while raised is not None and not isinstance(raised, Py4JJavaError):
                raised = raised.__context__
            if raised is None:
                raise
            whole = str(raised.java_exception.getMessage())
            # The name of the error, what is wrong, the line, and the text with a mark below it.
            told = " ".join(whole.split())
            line = _LINE.search(told)
            return SqlFinding(_NAME.sub("", _END.split(told)[0], count=1), int(line[1]) if line else 1)
        return None


GRAMMAR = SparkGrammar()
"""The grammar of this process."""


def _jvm() -> Any:
    """Return the JVM of the running session, or start one with Spark's classes and nothing else."""
    from odradek.spark.spark_session import SparkStartError, check_java, find_java

    try:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from pyspark import SparkContext
    except ImportError as error:
        # The package pyspark-client has a part of pyspark.
        raise SparkStartError('the whole of pyspark is needed: pip install "odradek[spark]"') from error
    if SparkContext._gateway is not None:
        return SparkContext._gateway.jvm
    # Without it, py4j would leave a file open.
    find_java()
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.origin).parent) / "jars"
    first = [str(jar) for name in _FIRST_JARS for jar in sorted(jars.glob(f"{name}*.jar"))]
    try:
        port, token = launch_gateway(
            jarpath=str(next(jars.glob("py4j*.jar"))),
            classpath=os.pathsep.join([*first, f"{jars}/*"]),
            javaopts=list(_OPTIONS),
            # The JVM ends when the pipe to its stdin breaks. Other users of the machine lack the token.
            die_on_exit=True,
            enable_auth=True,
            java_path=None,
            # Ctrl-C is for this process.
            create_new_process_group=True,
        )
    except (OSError, ValueError, StopIteration) as error:
        check_java()
        raise SparkStartError(f"the JVM that parses SQL does not start from {jars}: {error}") from error
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)).jvm
