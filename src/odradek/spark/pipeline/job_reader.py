"""Reads a job from the tables of its file: from keys and values of TOML to the fields of a `Job`."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from odradek.arguments import checked_path, split_host_port
from odradek.errors import JobError, OptionError
from odradek.spark.options import local_folder, nearest, parse_duration_ms
from odradek.spark.pipeline.folder_uri import SCHEME, FolderUri, folder_or_uri
from odradek.spark.pipeline.functions import FunctionName, Transform, Udf
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.restarts import Restart
from odradek.spark.pipeline.sink_specs import (
    LETTERS_VIEW,
    SPARK_SINKS,
    ConsoleSinkSpec,
    ParquetSinkSpec,
    SinkSpec,
    TopicSinkSpec,
    read_python_sink,
    read_spark_sink,
)
from odradek.spark.pipeline.state_spec import read_state
from odradek.spark.pipeline.value_format import RECORDS_VIEW, value_format

DEFAULT_NAME = "odradek"


def read_fields(root: Table, folder: Path) -> dict[str, Any]:
    """Return what a job's keys say, by the names of the fields of `Job`.

    Args:
        root: What its file holds.
        folder: What its paths are relative to.

    Raises:
        JobError: A key is unknown, missing or wrong.
    """
    source_table = root.table("source")
    value = value_format(source_table.table("value"), folder)
    source = source_table.texts()
    # The names of its options are not case-sensitive.
    for option in [name for name in source if name.lower() == "path"]:
        source[option] = str(folder / _checked(source[option], f"source.{option}"))
    offsets = root.table("offsets")
    store = offsets.need("store", str)
    if store.startswith("file:") and not store.startswith("file:/"):
        store = (folder / _checked(store.removeprefix("file:"), "offsets.store")).resolve().as_uri()
    reset = offsets.take("reset", object, "earliest")
    trigger = root.table("trigger")
    spark = root.table("spark")
    metrics = root.table("metrics")
    history = metrics.take("history", str)
    has_traces, traces = root.has("opentelemetry"), root.table("opentelemetry")
    state = None
    if root.has("state"):
        entry = root.table("state")
        state = read_state(entry, _local_path(entry, folder))
    # After `state`, which would be taken for a misspelt `restart`.
    restart = root.table("restart")
    backoff_ms = _duration_ms(restart.take("backoff", str), restart.key("backoff"))
    transforms = []
    for entry in root.tables("transform"):
        view, sql, python = entry.need("view", str), entry.take("sql", str), _function(entry, "python", folder)
        given = {} if python is None else {"input": entry.take("input", str, RECORDS_VIEW)}
        transforms.append(Transform(view, sql, python, **given))
        entry.end()
    udfs = []
    for entry in root.tables("udf"):
        function = FunctionName.parse(entry.need("function", str), entry.key("function"), folder)
        udfs.append(Udf(entry.need("name", str), function, entry.take("returns", str)))
        entry.end()
    name = root.take("name", str, DEFAULT_NAME)
    found = {
        "name": name,
        "source": source,
        "offset_store": store,
        "offset_store_options": offsets.take("options", dict, {}),
        "reset": reset,
        "transforms": tuple(transforms),
        "sinks": tuple(_sink(entry, folder) for entry in root.tables("sink")),
        "trigger_interval_ms": _duration_ms(trigger.take("interval", str), trigger.key("interval")),
        "max_offsets_per_batch": trigger.take("max_offsets_per_batch", int),
        "spark_master": spark.take("master", str),
        "spark_conf": spark.table("conf").texts(),
        "metrics": _host_port(metrics.take("listen", str), metrics.key("listen")),
        "history": None if history is None else (folder / _checked(history, metrics.key("history"))).resolve(),
        "openlineage": _openlineage(root),
        "traces": traces.take("endpoint", str, "") if has_traces else None,
        "udfs": tuple(udfs),
        "value": value,
        "state": state,
        "restart": Restart(restart.take("attempts", int, 0), Restart.backoff_ms if backoff_ms is None else backoff_ms),
        "on_invalid": root.take("on_invalid", str, "error"),
        "dead_letters": _dead_letters(root.table("dead_letters"), name, folder),
    }
    for table in (offsets, trigger, restart, spark, metrics, traces, root):
        table.end()
    return found


def _dead_letters(entry: Table, name: str, folder: Path) -> TopicSinkSpec | None:
    """Read where records go for which a view fails; None if there is no such table."""
    if entry.is_empty:
        return None
    topic = entry.need("topic", str)
    kafka, path = _broker_or_folder(entry, folder)
    entry.end()
    return TopicSinkSpec(topic, kafka, LETTERS_VIEW, transactional_id=f"{name}-dead-letters", on_held="skip", path=path)


def _broker_or_folder(entry: Table, folder: Path) -> tuple[dict[str, str], Path | None]:
    """Take the settings of a broker, or the path of a log directory."""
    kafka = entry.table("kafka").texts()
    path = _local_path(entry, folder) if entry.has("path") else None
    if (path is None) is not ("bootstrap.servers" in kafka):
        raise JobError("give either path (a log directory) or kafka.bootstrap.servers", entry.key("kafka"))
    if path is not None and kafka:
        raise JobError("this is for a broker, and path is a folder: leave it out", entry.key(f"kafka.{min(kafka)}"))
    return kafka, path


def _function(entry: Table, name: str, folder: Path) -> FunctionName | None:
    text = entry.take(name, str)
    return None if text is None else FunctionName.parse(text, entry.key(name), folder)


def _duration_ms(text: str | None, key: str) -> int | None:
    if text is None:
        return None
    duration_ms = parse_duration_ms(text)
    if duration_ms is None:
        raise JobError(f"a time such as 500ms, 5s or 1m, not {text!r}", key)
    return duration_ms


def _host_port(text: str | None, key: str) -> tuple[str, int] | None:
    if text is None:
        return None
    found = split_host_port(text)
    if found is None:
        raise JobError(f"an address such as 127.0.0.1:9404, not {text!r}", key)
    return found


def _openlineage(root: Table) -> dict[str, Any] | None:
    """Read how OpenLineage's events are sent; None if there is no such table."""
    is_there, entry = root.has("openlineage"), root.table("openlineage")
    given = {"namespace": entry.take("namespace", str), "transport": entry.take("transport", dict)}
    entry.end()
    return {name: value for name, value in given.items() if value is not None} if is_there else None


def _local_path(entry: Table, folder: Path) -> Path:
    text: str = entry.need("path", str)
    if SCHEME.match(text) is not None and not text.lower().startswith("file:"):
        raise JobError(f"a folder of this machine's file system, not {text!r}", entry.key("path"))
    return (folder / _checked(text, entry.key("path"))).resolve()


def _folder(entry: Table, folder: Path) -> Path | FolderUri:
    try:
        return folder_or_uri(entry.need("path", str), folder)
    except OptionError as error:
        raise JobError(str(error), entry.key("path")) from error


def _checked(path: str, key: str) -> Path:
    try:
        return Path(local_folder(os.fspath(checked_path("the path", path)), "path"))
    except OptionError as error:
        raise JobError(str(error), key) from error


def _sink(entry: Table, folder: Path) -> SinkSpec:
    kind = entry.need("type", str)
    spec: SinkSpec
    if kind == "parquet":
        spec = entry.fill(ParquetSinkSpec, path=_folder(entry, folder))
    elif kind == "console":
        view = entry.take("view", str, RECORDS_VIEW)
        sql = entry.take("sql", str, f"SELECT * FROM {view}")  # noqa: S608 - the user's own SQL
        spec = entry.fill(ConsoleSinkSpec, sql=sql)
    elif kind == "topic":
        topic = entry.take("topic", str)
        kafka, path = _broker_or_folder(entry, folder)
        # Of no use beside a fixed topic.
        unused = () if topic is None else ("topic_column", "position_topic")
        routing = {field.name: field.default for field in fields(TopicSinkSpec) if field.name in unused}
        spec = entry.fill(TopicSinkSpec, topic=topic, kafka=kafka, path=path, **routing)
    elif kind == "python":
        spec = read_python_sink(entry, folder)
    elif kind in SPARK_SINKS:
        spec = read_spark_sink(entry, kind, folder)
    else:
        known = ("parquet", "topic", "console", "python", *SPARK_SINKS)
        raise JobError(f"one of {', '.join(known)}, not {kind!r}{nearest(kind, known)}", entry.key("type"))
    entry.end()
    return spec
