"""Ways of breaking files, and what may lie in the place of one."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def flip_bit_of_number(path: Path, position: int, width: int, bit: int) -> None:
    """Flip one bit of a big-endian number."""
    flip_bit(path, position + width - 1 - bit // 8, bit % 8)


def cut(path: Path, size: int) -> None:
    """Keep only the first bytes of a file."""
    path.write_bytes(path.read_bytes()[:size])


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    # The address of a socket is short; its name is not in it.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{folder}/s")
        (path.parent / "s").rename(path)
    finally:
        os.close(folder)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _link_that_leads_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _directory(path: Path) -> None:
    path.mkdir()


THINGS: dict[str, Callable[[Path], None]] = {
    "a FIFO": _fifo,
    "a socket": _socket,
    "a link to itself": _link_to_itself,
    "a link that leads nowhere": _link_that_leads_nowhere,
    "a device": _device,
    "a directory": _directory,
}
"""What may lie where a file should, by name; each is made at a path where nothing is."""
