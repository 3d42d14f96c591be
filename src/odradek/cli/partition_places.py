"""Partitions, and places in them, as options and arguments give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from odradek.errors import OptionError
from odradek.records.timestamps import typed_bound_ms
from odradek.storage.config_def import MAX_INT32
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

if TYPE_CHECKING:
    from odradek.spark.pipeline.backfill import Bound

_LEAST_TIME_DIGITS = 12
"""Numbers with this many digits look like a time in ms, from 1973 on."""


class PartitionName(click.ParamType[Any]):
    """A partition, or with `has_offset` a partition and an offset."""

    name = "TOPIC-PARTITION"

    def __init__(self, *, has_offset: bool = False) -> None:
        self._has_offset = has_offset

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a partition, and the offset."""
        match = re.fullmatch(r"(.+)-(0|[1-9][0-9]{0,9})(?:=([0-9]{1,18}))?", value, re.ASCII)
        if match is None or (match[3] is not None) != self._has_offset:
            self.fail(f"{value!r} must have the form events-0{'=1200' if self._has_offset else ''}", param, ctx)
        partition = TopicPartition(match[1], int(match[2]))
        wrong = invalid_topic_name_reason(partition.topic)
        if wrong is None and partition.partition > MAX_INT32:
            wrong = f"{partition.partition} is beyond {MAX_INT32}, where partitions end"
        if wrong is not None:
            self.fail(wrong, param, ctx)
        return (partition, int(match[3])) if self._has_offset else partition


class Place(click.ParamType[Any]):
    """An offset, one of a partition, a time, or `earliest`."""

    name = "PLACE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the offset, the partition and its offset, the word, or a time as `{"timestamp": ms}`."""
        if value == "earliest" or not isinstance(value, str):
            return value
        if "=" in value:
            return PartitionName(has_offset=True).convert(value, param, ctx)
        if not re.fullmatch("[0-9]+", value):
            try:
                return {"timestamp": typed_bound_ms(value)}
            except OptionError:
                told = (
                    f"{value!r} is neither earliest, an offset (orders-0=1200), nor a time such as 2026-11-01T12:00:00"
                )
                self.fail(told, param, ctx)
        if len(value) >= _LEAST_TIME_DIGITS:
            self.fail(f"{value!r} looks like a time in ms: write a time such as 2026-11-01T12:00:00", param, ctx)
        with suppress(ValueError):
            # As in other options for times; an offset of a partition is no date.
            day = date.fromisoformat(value)
            self.fail(f"{value!r} may be an offset or {day}: write orders-0={value} or {day}", param, ctx)
        return int(value)


def one_bound(option: str, places: Sequence[Any]) -> Bound:
    """Return what an option says that may be given for each of several partitions.

    Args:
        option: Its name, for errors.
        places: What `Place` returned; at least one.
    """
    from odradek.spark.options import EARLIEST, OffsetSpec

    offsets: dict[TopicPartition, int] = dict(place for place in places if isinstance(place, tuple))
    if offsets:
        if len(offsets) < len(places):
            told = "a partition is named twice, or a place for all partitions is among them"
            raise click.UsageError(f"{option}: {told}")
        return OffsetSpec(offsets=offsets)
    if len(places) > 1:
        raise click.UsageError(f"{option}: only places of partitions, such as orders-0=1200, are given many times")
    (place,) = places
    if isinstance(place, dict):
        return OffsetSpec(timestamp=place["timestamp"])
    return OffsetSpec(EARLIEST) if place == "earliest" else int(place)
