"""Copies the files beside the segments that can be read; the others are left out, and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind, dangling, unreadable
from odradek.storage.files import FileSystem, write_atomically
from odradek.storage.regular_files import read_file

_MAX_BYTES = 1 << 30


def copy_files(
    source: Path, target: Path, readers: Mapping[str, Callable[[Path], object]], files: FileSystem
) -> list[Finding]:
    """Copy files from one folder to another.

    Args:
        source: The folder that they are in; missing files are skipped.
        target: The folder to copy them into.
        readers: The files by name, each with a function that reads it, and raises if it cannot be read.
        files: The file system to write through.

    Returns:
        The findings for the files that were left out.
    """
    left_out = []
    for name, read in readers.items():
        path = source / name
        try:
            content = read_file(path, _MAX_BYTES)
            read(path)
        except FileNotFoundError:
            left_out += dangling(path)
        except FormatError as error:
            left_out.append(Finding(path, error.position, FindingKind.FILE, error.reason))
        except OSError as error:
            left_out.append(unreadable(path, error))
        else:
            write_atomically(target / name, content, files)
    return left_out
