"""Which records a command reads, and how it prints them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from odradek.cli.options import OffsetRangeType, Timestamp
from odradek.sources.source import Source
from odradek.storage.names import TopicPartition, is_topic_name, matches_topic

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PartitionFilter:
    """Which partitions are wanted.

    Attributes:
        topics: Names or patterns of topics; empty for all.
        partitions: Numbers; empty for all.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def takes(self, owner: TopicPartition) -> bool:
        """Whether a partition is wanted."""
        return (not self.topics or any(matches_topic(topic, owner.topic) for topic in self.topics)) and (
            not self.partitions or owner.partition in self.partitions
        )

    def missing(self, owners: set[TopicPartition]) -> list[str]:
        """Return the topics that were named, and that none of some partitions belongs to."""
        there = {owner.topic for owner in owners}
        return [topic for topic in self.topics if is_topic_name(topic) and topic not in there]

    def choose(self, source: Source) -> list[TopicPartition]:
        """Return the partitions of a source that are wanted, sorted.

        Raises:
            UnknownTopicOrPartitionError: One that was named does not exist.
        """
        return source.choose(self.topics or None, self.partitions or None)


def partition_options(function: F) -> F:
    """Add `--topic` and `--partition`."""
    for option in (
        click.option(
            "--partition",
            "partitions",
            type=click.IntRange(0),
            metavar="N",
            multiple=True,
            help="Only this partition; may be given many times.",
        ),
        click.option(
            "--topic",
            "topics",
            metavar="NAME",
            multiple=True,
            help="Only this topic, or those of a pattern ('events-*'); may be given many times.",
        ),
    ):
        function = option(function)
    return function


def range_options(function: F) -> F:
    """Add `--offsets`, `--since` and `--until`."""
    for option in (
        click.option("--until", type=Timestamp(), help="Only timestamps below this one."),
        click.option(
            "--since", type=Timestamp(), help="Only timestamps from this one on: milliseconds, or ISO 8601 (UTC)."
        ),
        click.option(
            "--offsets", type=OffsetRangeType(), help="Only offsets from A to below B; either may be left out."
        ),
    ):
        function = option(function)
    return function


def output_options(function: F) -> F:
    """Add `--format` and `--bytes`."""
    for option in (
        click.option(
            "--bytes",
            "byte_strings",
            type=click.Choice(["auto", "base64"]),
            default="auto",
            help="Byte strings as text where they are UTF-8, or always as base64.",
        ),
        click.option(
            "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="Text, or JSON lines."
        ),
    ):
        function = option(function)
    return function
