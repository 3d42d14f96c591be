"""Answers whose times are read as numbers: kio reads none before 1970, and in Kafka's answers -1 is no time.

Source in Kafka: `CreateDelegationTokenResponse.json`, `RenewDelegationTokenResponse.json`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any

_TIME = "datetime_i64"
_OF_CLASS = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


def with_times_in_ms(kind: type[Any]) -> type[Any]:
    """Return a class like one of kio's, whose times of day are numbers of ms and are called so: `max_timestamp_ms`."""
    if not any(one.metadata.get("kafka_type") == _TIME for one in fields(kind)):
        return kind
    made = [_field(one) for one in fields(kind)]
    of_class = {name: getattr(kind, name) for name in _OF_CLASS}
    return make_dataclass(kind.__name__, made, namespace=of_class, frozen=True, slots=True, kw_only=True)


def _field(one: Field[Any]) -> tuple[str, Any, Any]:
    if one.metadata.get("kafka_type") == _TIME:
        return f"{one.name}_ms", int, field(metadata={**one.metadata, "kafka_type": "int64"})
    default = {} if one.default is MISSING else {"default": one.default}
    return one.name, one.type, field(metadata=one.metadata, **default)
