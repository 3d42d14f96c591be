"""`meta.properties`: which cluster, node and directory a log directory belongs to.

    #
    #Fri Nov 20 23:35:17 UTC 2026
    node.id=1                               version 0 (with ZooKeeper) has broker.id instead
    directory.id=gkm79SPRSZeHcXGd1WaD-g
    version=1
    cluster.id=T2RyYWRla0ZpeHR1cmVzQQ

Java's properties format: `#` and `!` begin a comment; the key ends at the first `=`, `:` or blank; a backslash escapes.
A key that occurs twice is damage: neither of two identities can be trusted.

Source in Kafka: `MetaProperties`, `PropertiesUtils`; in Java: `java.util.Properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from odradek.errors import CheckpointError
from odradek.messages.uuids import RESERVED_BELOW, format_uuid, parse_uuid
from odradek.storage.config_def import MAX_INT32
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.regular_files import read_file

META_PROPERTIES = "meta.properties"

_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {character: f"\\{name}" for name, character in _CONTROL.items()}
_INTEGER = re.compile(r"\+?[0-9]{1,10}", re.ASCII)
_MAX_BYTES = 1 << 20
_TO_ESCAPE = re.compile(r"[\t\n\r\f\\=:#!]|[^ -~]|^ ")


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)

    return _ESCAPE.sub(plain, text)


def _escape(text: str) -> str:
    def coded(match: re.Match[str]) -> str:
        character = match[0]
        if character in _CONTROL_NAMES:
            return _CONTROL_NAMES[character]
        return f"\\{character}" if " " <= character <= "~" else f"\\u{ord(character):04X}"

    return _TO_ESCAPE.sub(coded, text)


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of Java properties; of several values for a key the last one counts."""
    logical = ""
    for line in [*_LINE_END.split(text), ""]:
        stripped = line.lstrip(" \t\f")
        if not logical and (not stripped or stripped[0] in "#!"):
            continue
        logical += stripped
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            if stripped:
                continue
        match = _PROPERTY.fullmatch(logical)
        logical = ""
        if match is not None:
            yield _unescape(match[1]), _unescape(match[2])


def format_properties(properties: dict[str, str], comments: tuple[str, ...]) -> bytes:
    """Return Java properties, after comment lines."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key)}={_escape(value)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def timestamp_comment(now: datetime) -> str:
    """Return a date as `java.util.Date` writes it, in any locale."""
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    now = now.astimezone(UTC)
    return f"{days[now.weekday()]} {months[now.month - 1]} {now:%d %H:%M:%S} UTC {now:%Y}"


def _number(properties: dict[str, str], key: str, path: Path | None, default: str | None = None) -> int:
    text = properties.get(key, default)
    if text is None:
        raise CheckpointError(f"{key} is missing", path=path)
    if _INTEGER.fullmatch(text) is None or int(text) > MAX_INT32:
        raise CheckpointError(f"{key} is {text[:40]!r}, not a number from 0 to {MAX_INT32}", path=path)
    return int(text)


@dataclass(frozen=True)
class MetaProperties:
    """What `meta.properties` says.

    Attributes:
        cluster_id: The cluster's id, as text; version 0 may have none.
        node_id: The broker's number.
        directory_id: The directory's own id; None in version 0, and in version 1 before Kafka 3.7.
        version: 0 with ZooKeeper, 1 with KRaft.
        comments: The comment lines, without `#`.
    """

    cluster_id: str | None
    node_id: int
    directory_id: UUID | None = None
    version: int = 1
    comments: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def parse(cls, text: str, *, path: Path | None = None) -> MetaProperties:
        """Read the file's text.

        Raises:
            CheckpointError: A property is missing, occurs twice or has an invalid value.
        """
        comments = tuple(line[1:] for line in _LINE_END.split(text) if line.startswith("#"))
        properties: dict[str, str] = {}
        for key, value in parse_properties(text):
            if key in properties:
                raise CheckpointError(f"{key[:40]!r} occurs twice", path=path)
            properties[key] = value
        version = _number(properties, "version", path, default="0")
        if version not in {0, 1}:
            raise CheckpointError(f"version {version} is unknown", path=path)
        # In version 0 Kafka requires nothing; but every Kafka wrote the id of its broker.
        node_id = _number(properties, "node.id" if version else "broker.id", path)
        cluster_id = properties.get("cluster.id")
        if version and cluster_id is None:
            raise CheckpointError("cluster.id is missing", path=path)
        directory_id = None
        if "directory.id" in properties:
            try:
                directory_id = parse_uuid(properties["directory.id"])
            except ValueError as error:
                raise CheckpointError(f"directory.id: {error}", path=path) from error
            if directory_id.int < RESERVED_BELOW:
                raise CheckpointError(f"directory.id {format_uuid(directory_id)} is reserved by Kafka", path=path)
        return cls(cluster_id, node_id, directory_id, version, comments)

    @classmethod
    def read(cls, path: Path) -> MetaProperties | None:
        """Read the file; `None` if it is missing.

        Raises:
            FormatError: A property is missing, occurs twice or has an invalid value; or this is not a regular file.
        """
        try:
            return cls.parse(read_file(path, _MAX_BYTES).decode("latin-1"), path=path)
        except FileNotFoundError:
            return None

    def format(self) -> bytes:
        """Return the file's bytes, the properties in the order in which Java writes them."""
        properties = {"node.id" if self.version else "broker.id": str(self.node_id)}
        if self.directory_id is not None:
            properties["directory.id"] = format_uuid(self.directory_id)
        properties["version"] = str(self.version)
        if self.cluster_id is not None:
            properties["cluster.id"] = self.cluster_id
        return format_properties(properties, self.comments or ("", timestamp_comment(datetime.now(UTC))))

    def write(self, path: Path, files: FileSystem = FILES) -> None:
        """Write the file in one step."""
        write_atomically(path, self.format(), files)
