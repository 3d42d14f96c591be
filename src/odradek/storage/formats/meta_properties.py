"""`meta.properties`: which cluster, node and directory a log directory belongs to.

    #
    #Fri Nov 20 23:35:17 UTC 2026
    node.id=1                               version 0 (with ZooKeeper) has broker.id instead
    directory.id=gkm79SPRSZeHcXGd1WaD-g
    version=1
    cluster.id=T2RyYWRla0ZpeHR1cmVzQQ

Java's properties format: `#` and `!` begin a comment; the key ends at the first `=`, `:` or blank; a backslash escapes.
Its bytes are Latin-1; other characters are written as `\\u20ac`, those beyond 16 bits as two surrogates.
A key that occurs twice is damage: neither of two identities can be trusted.

Source in Kafka: `MetaProperties`, `PropertiesUtils`; in Java: `java.util.Properties`.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from uuid import UUID

from odradek.errors import CheckpointError, FormatError, LogError
from odradek.messages.uuids import RESERVED_BELOW, format_uuid, parse_uuid
from odradek.printable import logger
from odradek.storage.config_def import MAX_INT32
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.regular_files import read_file

_logger = logger(__name__)

META_PROPERTIES = "meta.properties"

_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MARK = codecs.BOM_UTF8.decode("latin-1")
_UNICODE = "utf-16-le", "surrogatepass"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {character: f"\\{name}" for name, character in _CONTROL.items()}
_INTEGER = re.compile(r"\+?[0-9]{1,10}", re.ASCII)
_MAX_BYTES = 1 << 20
_TO_ESCAPE = re.compile(r"[\t\n\r\f\\=:#!]|[^ -~]|^ ")


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if code == "u":
            raise ValueError("has a \\u that four hexadecimal digits do not follow; write \\\\ for a backslash")
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)

    # Two surrogates, each with an escape, are one character.
    return _ESCAPE.sub(plain, text).encode(*_UNICODE).decode(*_UNICODE)


def _escape(text: str) -> str:
    def coded(match: re.Match[str]) -> str:
        character = match[0]
        if character in _CONTROL_NAMES:
            return _CONTROL_NAMES[character]
        if " " <= character <= "~":
            return f"\\{character}"
        return "".join(f"\\u{unit:04X}" for (unit,) in struct.iter_unpack("<H", character.encode(*_UNICODE)))

    return _TO_ESCAPE.sub(coded, text)


_MOST_BYTES = 1 << 24
"""The longest file of settings, in bytes."""


def read_properties(path: Path, encoding: Literal["latin-1", "utf-8"] = "latin-1") -> dict[str, str]:
    """Return the settings in a file of Java properties.

    Args:
        path: The file.
        encoding: Latin-1, as in Kafka, or UTF-8 for the files of `FileConfigProvider`.

    Raises:
        OSError: It cannot be read.
        LogError: It is no regular file, is too large, has another encoding, has an incomplete escape, or its settings
            would be ignored.
    """
    try:
        data = read_file(path, _MOST_BYTES)
        properties = dict(parse_properties(data.decode(encoding)))
    except FormatError as error:
        raise LogError(str(error)) from error
    except UnicodeDecodeError as error:
        raise LogError(f"{path} is not UTF-8: {error.reason} at position {error.start}") from None
    except ValueError as error:
        raise LogError(f"{path}: {error}") from None
    if b"\0" in data:
        raise LogError(f"{path} has NUL characters, as UTF-16 has them; save it as text of one byte a letter")
    if encoding == "latin-1" and not data.isascii():
        marked = next(iter(properties), "").removeprefix(_MARK)
        if data.startswith(codecs.BOM_UTF8) and marked[:1] not in ("", "#", "!"):
            text = f"{path} begins with a byte order mark, which Apache Kafka takes for a part of the first name"
            raise LogError(f"{text}: {marked}; save it without the mark")
        _warn_of_utf8(path, data, properties)
    return properties


def _warn_of_utf8(path: Path, data: bytes, properties: Mapping[str, str]) -> None:
    """Log a warning of settings that were written in UTF-8: their owner means other values."""
    try:
        meant = dict(parse_properties(data.decode()))
    except UnicodeDecodeError:
        return
    changed = sorted(name for name, value in meant.items() if properties.get(name) != value)
    if changed:
        text = "%s: %s: read as Latin-1, as by Apache Kafka, and not as UTF-8; write \\u00e4 for \u00e4, and its like"
        _logger.warning(text, path, ", ".join(changed))


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of Java properties; of several values for a key the last one counts.

    Raises:
        ValueError: An escape is incomplete.
    """
    # Of one logical line; joined once, since it may have very many.
    parts: list[str] = []
    for line in [*_LINE_END.split(text), ""]:
        stripped = line.lstrip(" \t\f")
        if not parts and (not stripped or stripped[0] in "#!"):
            continue
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            if len(stripped) > 1:
                parts.append(stripped[:-1])
            continue
        match = _PROPERTY.fullmatch("".join((*parts, stripped)))
        parts.clear()
        if match is not None:
            key = _unescape(match[1])
            try:
                yield key, _unescape(match[2])
            except ValueError as error:
                raise ValueError(f"{key} {error}") from None


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
        try:
            found = list(parse_properties(text))
        except ValueError as error:
            raise CheckpointError(str(error), path=path) from None
        for key, value in found:
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
