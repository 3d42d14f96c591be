"""The columns of a write: those of Spark's own Kafka sink, by name and type.

    key string or binary | value string or binary | topic string | partition int |
    headers array<struct<key: string, value: binary>>

Only `value` must be there, and `topic` if no option says it. Other columns are left out. The messages are those of
Spark's `KafkaWriter`.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from odradek.errors import OptionError

_TEXT_OR_BYTES = ("string", "binary")
_TYPES = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows that are to be written.

    Args:
        schema: The columns.
        topic: The topic of every row; then a column of that name is left out.

    Raises:
        OptionError: A column is missing, or has another type.
    """
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if topic is None and "topic" not in found:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in found:
        raise OptionError("Required attribute 'value' not found")
    for name, kinds in _TYPES.items():
        if name == "topic" and topic is not None:
            continue
        if name in found and found[name] not in kinds:
            raise OptionError(
                f"{name} attribute unsupported type {found[name]}. {name} must be a(n) {' or '.join(kinds)}"
            )
