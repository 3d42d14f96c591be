"""The address of a folder that is not on this machine: a URI of a file system that Arrow knows.

    s3://bucket/orders?region=eu-central-1&endpoint_override=minio.local:9000      keys from the environment
    hdfs://namenode:8020/orders

Arrow reads such a URI (`pyarrow.fs.FileSystem.from_uri`), its query and what it leaves to the environment. Without
asking anyone, this module says whether there may be such a folder, and what of its address may be shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from odradek.arguments import checked_path, split_address
from odradek.errors import OptionError, SinkError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
_RENAMING = ("hdfs", "viewfs")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
"""What a URI begins with."""
_NOT_IN_URI = re.compile(r"[^!-~]|[\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
_SAME = {"gcs": "gs", "abfss": "abfs"}
"""Schemes that are synonyms of others."""


@dataclass(frozen=True)
class FolderUri:
    """A folder of another file system.

    Attributes:
        text: The URI as it was given; it may hold secrets.
        scheme: Which kind of file system.
        parts: Where the folder is: the file system without secrets, then the names of the folders.
    """

    text: str = field(repr=False)
    scheme: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> FolderUri:
        """Take a URI apart.

        Raises:
            OptionError: It is none of a file system that Arrow knows. The text shows no secrets.
        """
        try:
            address = split_address(text)
            _ = address.port
        except ValueError as error:
            reason = str(error) if "%23" in str(error) else "not a URI: its host or its port is none"
            raise OptionError(reason) from None
        scheme = address.scheme
        if scheme not in (*OBJECT_STORES, *_RENAMING):
            meant = ", that is s3://" if scheme in ("s3a", "s3n") else ""
            known = ", ".join(f"{name}://" for name in (*OBJECT_STORES, *_RENAMING))
            raise OptionError(f"a folder of this machine, or a URI that begins with {known}; not {scheme}://{meant}")
        if found := _NOT_IN_URI.search(text):
            raise OptionError(f"in a URI write %{found[0].encode()[0]:02X} for {found[0]!r}")
        user, at, host = address.netloc.rpartition("@")
        # Azure's container may come before the key; S3's access key is not part of the place.
        user = "" if scheme == "s3" else user.partition(":")[0]
        if not host and scheme in OBJECT_STORES:
            raise OptionError(f"{scheme}:// and the name of a bucket")
        endpoint = "".join(f" at {host}" for host in parse_qs(address.query).get("endpoint_override", []))
        try:
            names = [unquote(name, errors="strict") for name in address.path.strip("/").split("/")]
        except UnicodeDecodeError:
            raise OptionError("a path whose % stand for UTF-8") from None
        if any("\0" in name for name in names):
            raise OptionError("a path without %00")
        if names == [""]:
            raise OptionError("a folder, not all of a bucket or a file system")
        if any(name in ("", ".", "..") or "/" in name for name in names):
            raise OptionError("a URI without . and .. among its folders, and with one / between them")
        return cls(text, scheme, (f"{_SAME.get(scheme, scheme)}://{user}{at if user else ''}{host}{endpoint}", *names))

    def __str__(self) -> str:
        """Return the URI as errors show it: without keys, and without its query."""
        return "/".join((self.parts[0].partition(" at ")[0], *self.parts[1:]))

    def open(self) -> tuple[FileSystem, str]:
        """Return the file system, and the folder's path in it.

        Raises:
            SinkError: It cannot be opened.
        """
        import pyarrow as pa
        from pyarrow.fs import FileSystem

        try:
            files, path = FileSystem.from_uri(self.text)
        except (OSError, pa.ArrowException) as error:
            # Without its cause, which may show the keys.
            reason = str(error).replace(self.text, str(self))
            user, _, password = split_address(self.text).netloc.rpartition("@")[0].partition(":")
            for secret in filter(None, (user if self.scheme == "s3" else "", password)):
                reason = reason.replace(secret, "***").replace(unquote(secret), "***")
            raise SinkError(f"{self}: {reason}") from None
        return files, path

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Name the folder in errors of the file system.

        Raises:
            SinkError: One was raised.
        """
        import pyarrow as pa

        try:
            yield
        except pa.ArrowInvalid:
            # An error about the content of a file.
            raise
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self}: {error}") from error


def folder_or_uri(text: str, folder: Path) -> Path | FolderUri:
    """Read the path of a folder, which may be a URI.

    Args:
        text: The path.
        folder: What a path without a scheme is relative to.

    Raises:
        OptionError: There can be no such folder.
    """
    found = SCHEME.match(text)
    if found is None:
        scheme, colon, _ = text.partition(":")
        if colon and scheme.lower() in ("file", *OBJECT_STORES, *_RENAMING):
            raise OptionError(f"{scheme}:// with two slashes, or for a folder of this machine ./{scheme}:")
        return (folder / checked_path("the path", text)).resolve()
    if found[1].lower() != "file":
        return FolderUri.parse(text)
    path = unquote(text[len(found[0]) :])
    if not path.startswith("/"):
        raise OptionError("file:/// and the folder's path")
    return checked_path("the path", path).resolve()


def overlap(path: Path | FolderUri, other: Path | FolderUri) -> bool:
    """Whether two folders are the same, or one lies in the other."""
    return all(name == twin for name, twin in zip(path.parts, other.parts, strict=False))
