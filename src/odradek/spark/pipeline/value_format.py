"""The format of a source's values, for a column of typed values in the view `records`.

    [source.value]
    format = "json"                # or "avro", "protobuf"
    schema = "order.ddl"           # columns as SQL writes them, or Spark's JSON; Avro's JSON; a compiled descriptor set

For Protobuf `message` names the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from odradek.errors import FormatError, JobError
from odradek.spark.options import nearest
from odradek.spark.pipeline.job_table import Table
from odradek.storage.regular_files import read_file

_FORMATS = ("json", "avro", "protobuf")
_MODES = ("PERMISSIVE", "FAILFAST")
_LIMIT_BYTES = 16 << 20
RECORDS_VIEW = "records"
RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of the view `records`, which has `headers` too if the source includes them."""


@dataclass(frozen=True)
class ValueFormat:
    """What the source's values are.

    Attributes:
        format: `json`, `avro` or `protobuf`.
        schema: The content of the schema's file.
        message: The name of the Protobuf message.
        column: The name of the column that holds the typed values.
        skip_bytes: How many bytes come before each value, such as the five of a schema registry.
        options: Options of Spark's `from_json`; of the others only `mode`, `PERMISSIVE` or `FAILFAST`.
    """

    format: str
    schema: bytes
    message: str | None = None
    column: str = "data"
    skip_bytes: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


def value_format(entry: Table, folder: Path) -> ValueFormat | None:
    """Read the table `source.value`, or None.

    Raises:
        JobError: A key is wrong, or the schema cannot be read.
    """
    if entry.is_empty:
        return None
    kind = entry.need("format", str)
    if kind not in _FORMATS:
        raise JobError(f"{', '.join(_FORMATS)}, not {kind!r}{nearest(kind, _FORMATS)}", entry.key("format"))
    path = folder / entry.need("schema", str)
    try:
        schema = read_file(path, _LIMIT_BYTES)
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}", entry.key("schema")) from error
    except FormatError as error:
        raise JobError(str(error), entry.key("schema")) from error
    message = entry.take("message", str)
    if (message is None) is (kind == "protobuf"):
        raise JobError('the name of a message for format = "protobuf", and for nothing else', entry.key("message"))
    skip_bytes = entry.take("skip_bytes", int, 0)
    if skip_bytes < 0:
        raise JobError(f"not below 0: {skip_bytes}", entry.key("skip_bytes"))
    if kind != "protobuf":
        _check_text(schema, kind, path, entry.key("schema"))
    column = entry.take("column", str, "data")
    if not column or column.lower() in {name.lower() for name in (*RECORD_COLUMNS, "headers")}:
        # Spark would replace that column.
        raise JobError(f"{column!r} is not a new name of a column", entry.key("column"))
    options = entry.table("options").texts()
    for name, text in options.items():
        # Spark takes a mode that it does not know for PERMISSIVE.
        if (name.lower() == "mode" and text.upper() not in _MODES) or (kind != "json" and name != "mode"):
            there_is = "the modes of json are" if kind == "json" else f"of {kind} there is only mode ="
            raise JobError(f'{there_is} "PERMISSIVE" or "FAILFAST"', entry.key("options"))
    found = ValueFormat(kind, schema, message, column, skip_bytes, options)
    entry.end()
    return found


def _check_text(schema: bytes, kind: str, path: Path, key: str) -> None:
    try:
        text = schema.decode().strip()
        if kind == "avro" or text.startswith("{"):
            content = json.loads(text)
            if kind == "json" and not (isinstance(content, dict) and content.get("type") == "struct"):
                raise JobError(
                    f'{path}: neither columns such as "id BIGINT, paid DOUBLE" nor a schema as Spark writes it '
                    "(df.schema.json()); a JSON Schema cannot be used",
                    key,
                )
    except (ValueError, RecursionError) as error:
        raise JobError(f"{path}: no schema: {error}", key) from error
