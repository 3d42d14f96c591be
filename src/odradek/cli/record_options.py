"""Which partitions a command reads, and how it prints records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from odradek.cli.options import NonEmptyPath
from odradek.sources.source import Source, is_broker
from odradek.storage.names import TopicPartition, is_topic_name, matches_topic

F = TypeVar("F", bound=Callable[..., Any])


class SourceType(NonEmptyPath):
    """A path, or the address of a broker."""

    name = "SOURCE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; whether there is such a thing shows when it is read."""
        return value if is_broker(value) else str(super().convert(value, param, ctx))


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
        click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition."),
        click.option("--topic", "topics", multiple=True, help="Only this topic, or those of a pattern: 'events-*'."),
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
