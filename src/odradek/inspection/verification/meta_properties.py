"""Holds `meta.properties` against what Kafka writes: a version, and the properties that go with it.

Source in Kafka: `MetaProperties`, which itself takes a file without a version for one of version 0 that says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.errors import CheckpointError
from odradek.inspection.entry_listing import entries_of
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.log_files import LogFile
from odradek.storage.directory.meta_properties import parse_properties

_KNOWN = {"0": ("broker.id", "cluster.id"), "1": ("node.id", "cluster.id", "directory.id")}
_NEEDED = {"0": ("broker.id",), "1": ("node.id", "cluster.id")}


def check_meta_properties(file: LogFile) -> Iterator[Finding]:
    """Give what is wrong with the identity of a log directory.

    Raises:
        FormatError: It cannot be read as properties, or a value is not what it should be.
        OSError: It cannot be read.
    """
    for _ in entries_of(file):
        pass
    properties = parse_properties(file.path.read_bytes().decode("latin-1"))
    version = properties.pop("version", None)
    if version is None:
        raise CheckpointError("it names no version", path=file.path)
    missing = [name for name in _NEEDED[version] if name not in properties]
    if missing:
        raise CheckpointError(f"{missing[0]} is missing", path=file.path)
    # What is written wrongly is missing under its name; a property that nobody knows is nothing wrong in itself.
    missing = [name for name in _KNOWN[version] if name not in properties]
    unknown = [name for name in properties if name not in _KNOWN[version]]
    if missing and unknown:
        reason = f"{unknown[0][:40]!r} is no property of it, and {missing[0]} is missing"
        yield Finding(file.path, None, FindingKind.FILE, reason)
