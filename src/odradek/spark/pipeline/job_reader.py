"""Reads a job from the tables of its file: from keys and values of TOML to a `Job`."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.arguments import checked_path
from odradek.errors import JobError, OptionError
from odradek.spark.options import nearest, parse_duration_ms
from odradek.spark.pipeline.folder_uri import SCHEME, FolderUri, folder_or_uri
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.job import (
    DEFAULT_NAME,
    RECORDS_VIEW,
    ConsoleSinkSpec,
    Job,
    ParquetSinkSpec,
    SinkSpec,
    TopicSinkSpec,
    Transform,
    Udf,
)
from odradek.spark.pipeline.job_table import Table
from odradek.spark.pipeline.sink_specs import SPARK_SINKS, read_python_sink, read_spark_sink
from odradek.spark.pipeline.state_spec import read_state
from odradek.spark.pipeline.value_format import value_format

_MAX_PORT = 65535


def read_table(root: Table, folder: Path) -> Job:
    """Read a job.

    Args:
        root: What its file holds.
        folder: What its paths are relative to.

    Raises:
        JobError: A key is unknown, missing or wrong, or the job cannot run.
    """
    source_table = root.table("source")
    value = value_format(source_table.table("value"), folder)
    source = source_table.texts()
    if "path" in source:
        source["path"] = str(folder / _checked(source["path"], "source.path"))
    offsets = root.table("offsets")
    store = offsets.need("store", str)
    if store.startswith("file:") and not store.startswith("file:/"):
        store = (folder / _checked(store.removeprefix("file:"), "offsets.store")).resolve().as_uri()
    reset = offsets.take("reset", object, "earliest")
    trigger = root.table("trigger")
    spark = root.table("spark")
    metrics = root.table("metrics")
    state = None
    if root.has("state"):
        entry = root.table("state")
        state = read_state(entry, _local_path(entry, folder), RECORDS_VIEW)
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
    job = Job(
        name=root.take("name", str, DEFAULT_NAME),
        source=source,
        offset_store=store,
        offset_store_options=offsets.take("options", dict, {}),
        reset=reset,
        transforms=tuple(transforms),
        sinks=tuple(_sink(entry, folder) for entry in root.tables("sink")),
        trigger_interval_ms=_interval_ms(trigger.take("interval", str)),
        max_offsets_per_batch=trigger.take("max_offsets_per_batch", int),
        spark_master=spark.take("master", str),
        spark_conf=spark.table("conf").texts(),
        metrics=_host_port(metrics.take("listen", str), metrics.key("listen")),
        udfs=tuple(udfs),
        value=value,
        state=state,
    )
    for table in (offsets, trigger, spark, metrics, root):
        table.end()
    return job


def _function(entry: Table, name: str, folder: Path) -> FunctionName | None:
    text = entry.take(name, str)
    return None if text is None else FunctionName.parse(text, entry.key(name), folder)


def _interval_ms(text: str | None) -> int | None:
    if text is None:
        return None
    interval_ms = parse_duration_ms(text)
    if interval_ms is None:
        raise JobError(f"a time such as 500ms, 5s or 1m, not {text!r}", "trigger.interval")
    return interval_ms


def _host_port(text: str | None, key: str) -> tuple[str, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s]*):(\d{1,5})", text)
    if match is None or int(match[2]) > _MAX_PORT:
        raise JobError(f"an address such as 127.0.0.1:9404, not {text!r}", key)
    return match[1].strip("[]"), int(match[2])


def _local_path(entry: Table, folder: Path) -> Path:
    text: str = entry.need("path", str)
    if SCHEME.match(text) is not None:
        raise JobError(f"a folder of this machine's file system, not {text!r}", entry.key("path"))
    return (folder / _checked(text, entry.key("path"))).resolve()


def _folder(entry: Table, folder: Path) -> Path | FolderUri:
    try:
        return folder_or_uri(entry.need("path", str), folder)
    except OptionError as error:
        raise JobError(str(error), entry.key("path")) from error


def _checked(path: str, key: str) -> Path:
    try:
        return checked_path("the path", path)
    except OptionError as error:
        raise JobError(str(error), key) from error


def _sink(entry: Table, folder: Path) -> SinkSpec:
    kind = entry.need("type", str)
    spec: SinkSpec
    if kind == "parquet":
        spec = ParquetSinkSpec(
            path=_folder(entry, folder),
            view=entry.take("view", str, RECORDS_VIEW),
            name=entry.take("name", str),
            merge=entry.take("merge", str),
            partition_by=tuple(entry.take("partition_by", list, [])),
            compression=entry.take("compression", str, "zstd"),
            on_held=entry.take("on_held", str, "error"),
        )
    elif kind == "console":
        view = entry.take("view", str, RECORDS_VIEW)
        spec = ConsoleSinkSpec(
            sql=entry.take("sql", str, f"SELECT * FROM {view}"),  # noqa: S608 - the user's own SQL
            rows=entry.take("rows", int, 20),
            title=entry.take("title", str),
        )
    elif kind == "topic":
        topic, kafka = entry.take("topic", str), entry.table("kafka").texts()
        path = _local_path(entry, folder) if entry.has("path") else None
        if (path is None) is not ("bootstrap.servers" in kafka):
            raise JobError("give either path (a log directory) or kafka.bootstrap.servers", entry.key("kafka"))
        if path is not None and kafka:
            raise JobError("this is for a broker, and path is a folder: leave it out", entry.key(f"kafka.{min(kafka)}"))
        # Of no use beside a fixed topic.
        routing = {name: entry.take(name, str) for name in ("topic_column", "position_topic") if topic is None}
        spec = TopicSinkSpec(
            topic=topic,
            kafka=kafka,
            path=path,
            view=entry.take("view", str, RECORDS_VIEW),
            partition_by=entry.take("partition_by", str, "source"),
            compression=entry.take("compression", str, "none"),
            transactional_id=entry.take("transactional_id", str),
            on_held=entry.take("on_held", str, "error"),
            on_invalid=entry.take("on_invalid", str, "error"),
            dead_letter_topic=entry.take("dead_letter_topic", str),
            partition_column=entry.take("partition_column", str),
            **{name: value for name, value in routing.items() if value is not None},
        )
    elif kind == "python":
        spec = read_python_sink(entry, folder, RECORDS_VIEW)
    elif kind in SPARK_SINKS:
        spec = read_spark_sink(entry, kind, folder, RECORDS_VIEW)
    else:
        known = ("parquet", "topic", "console", "python", *SPARK_SINKS)
        raise JobError(f"one of {', '.join(known)}, not {kind!r}{nearest(kind, known)}", entry.key("type"))
    entry.end()
    return spec
