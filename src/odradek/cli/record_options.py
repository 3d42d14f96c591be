"""Which records a command reads, and how it prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.arguments import is_broker
from odradek.cli.options import FILE, F, Name, Number, OffsetRangeType, Timestamp, bundled
from odradek.cli.progress import progress
from odradek.errors import LogError, OdradekError, OptionError, UnknownTopicOrPartitionError
from odradek.inspection.record_template import is_template, parse_template
from odradek.inspection.selection import DumpSelection
from odradek.places.opening import open_place
from odradek.places.place import Place
from odradek.storage.names import TopicPartition, is_topic_name, matches_topic

if TYPE_CHECKING:
    from odradek.inspection.decoding import ValueDecoder
    from odradek.inspection.record_json import Decode
    from odradek.records import Record


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

    def missing(self, owners: Iterable[TopicPartition], path: str) -> list[OdradekError]:
        """Return the errors for the topics that were named, and for the numbers, that none of some partitions has.

        Args:
            owners: The partitions that exist.
            path: Where they are.
        """
        there = set(owners)
        topics = {owner.topic for owner in there}
        found: list[OdradekError] = [
            UnknownTopicOrPartitionError(topic, path=path)
            if is_topic_name(topic)
            else LogError(f"{path}: no topic matches {topic!r}")
            for topic in self.topics
            if not any(matches_topic(topic, name) for name in topics)
        ]
        if not found:
            numbers = {owner.partition for owner in there if replace(self, partitions=()).takes(owner)}
            found += [
                LogError(f"{path}: no topic that is wanted has a partition {number}")
                for number in self.partitions
                if number not in numbers
            ]
        return found

    def check(self, owners: Iterable[TopicPartition], sources: Iterable[str]) -> None:
        """Check that each topic that was named, and each number, is there.

        Args:
            owners: The partitions that exist, or those of them that are wanted.
            sources: Where they are: paths and addresses.

        Raises:
            OdradekError: One is not.
        """
        for error in self.missing(owners, ", ".join(map(_without_password, sources))):
            raise error


def _without_password(source: str) -> str:
    from odradek.places.address import BrokerAddress

    return BrokerAddress.parse(source).text if is_broker(source) else source


@contextmanager
def opened(
    address: str, config: Mapping[str, str] | None, wanted: PartitionFilter
) -> Iterator[tuple[Place, list[TopicPartition]]]:
    """Open a source; yield it, and its partitions that are wanted.

    Raises:
        OdradekError: It does not answer, or has no topic or partition of that name.
    """
    with open_place(address, config) as source:
        with progress("connecting"):
            chosen = source.choose(wanted.topics or None, wanted.partitions or None)
            wanted.check(chosen, [address])
        yield source, chosen


partition_options = bundled(
    "wanted",
    PartitionFilter,
    click.option(
        "--topic",
        "topics",
        type=Name(),
        multiple=True,
        help="Only this topic, or those of a pattern ('events-*'); may be given many times.",
    ),
    click.option(
        "--partition",
        "partitions",
        type=Number(),
        multiple=True,
        help="Only this partition; may be given many times.",
    ),
)
"""`--topic` and `--partition`, as `wanted`."""


def _selection(offsets: tuple[int | None, int | None] | None, since: int | None, until: int | None) -> DumpSelection:
    if since is not None and until is not None and until < since:
        raise click.UsageError("--until is before --since")
    return DumpSelection(*(offsets or (None, None)), since, until)


SINCE = click.option(
    "--since", type=Timestamp(), help="Only timestamps from this one on: milliseconds, or ISO 8601 (UTC)."
)

range_options = bundled(
    "selection",
    _selection,
    click.option("--offsets", type=OffsetRangeType(), help="Only offsets from A to below B; either may be left out."),
    SINCE,
    click.option("--until", type=Timestamp(), help="Only timestamps below this one."),
)
"""`--offsets`, `--since` and `--until`, as `selection`."""


class RecordFormat(click.Choice[str]):
    """The name of a format, or a template such as `%k %s\\n`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it is given."""
        if not is_template(value):
            return str(super().convert(value, param, ctx))
        try:
            parse_template(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def record_format(*forms: str, what: str = "Text, or JSON lines") -> Callable[[F], F]:
    """Return the option `--format` of a command that prints records, which it gets as `form`."""
    told = f"{what}; or a template with the letters of kcat: '%k %s\\n'."
    return click.option("--format", "form", type=RecordFormat(forms), default="text", help=told)


KEY = click.option("--key", metavar="PATTERN", help="Only records with this key: * is any text, ? one character.")

READ_COMMITTED = click.option(
    "--read-committed",
    "isolation",
    is_flag=True,
    callback=lambda _context, _option, given: "read_committed" if given else "read_uncommitted",
    help="Leave out aborted and undecided transactions.",
)
FAR_TIMESTAMPS = click.option(
    "--far-timestamps",
    type=click.Choice(["error", "null"]),
    default="error",
    help="What is done about timestamps outside of the years 1 to 9999; those that are null are counted.",
)
BASE64 = click.option(
    "--bytes",
    "base64",
    type=click.Choice(["auto", "base64"]),
    default="auto",
    callback=lambda _context, _option, given: given == "base64",
    help="Byte strings as text where they are UTF-8, or always as base64.",
)

WHOLE_PARTS = ("key", "value", "headers")
"""The parts of a record that `--redact` leaves out as a whole."""


def _checked_parts(context: click.Context, option: click.Parameter, parts: tuple[str, ...]) -> tuple[str, ...]:
    for part in parts:
        root, *names = part.split(".")
        if root not in WHOLE_PARTS or (names and root == "headers") or not all(names):
            raise click.BadParameter(
                f"{part!r} is neither key, value nor headers, nor a path such as value.card.number"
            )
    return parts


REDACT = click.option(
    "--redact",
    multiple=True,
    metavar="PART",
    callback=_checked_parts,
    help="Leave out key, value, headers, or a part of a JSON value: value.card.number.",
)


def _value_decoder(values: str | None, schema: Path | None, message: str | None) -> ValueDecoder | None:
    if values is None:
        if schema is not None or message is not None:
            raise click.UsageError("--schema and --message need --values")
        return None
    from odradek.cli.value_schemas import value_decoder

    return value_decoder(values, schema, message)


value_options = bundled(
    "values",
    _value_decoder,
    click.option("--values", type=click.Choice(["json", "avro", "protobuf"]), help="Decode the values."),
    click.option("--schema", type=FILE, help="With --values: an Avro schema, or a FileDescriptorSet."),
    click.option("--message", type=Name(), help="With --values protobuf: the full name of the message."),
)
"""`--values`, `--schema` and `--message`, as `values`."""


def decode_values(
    values: ValueDecoder | None, owner: TopicPartition | None, note: Callable[[str], None]
) -> Decode | None:
    """Return what decodes the values of a partition; None if they are shown as they are.

    Args:
        values: As the command has it.
        owner: The partition.
        note: Is told of a value that cannot be decoded.
    """
    if values is None:
        return None
    from odradek.inspection.decoding import values_decode

    def cannot_decode(record: Record, error: ValueError) -> None:
        note(f"{owner or 'a record'}: offset {record.offset}: the value cannot be decoded: {error}")

    return values_decode(values, cannot_decode)
