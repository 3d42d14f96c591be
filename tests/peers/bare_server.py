"""A process that moves bytes and does nothing else: the limit of what a broker's processor time can be.

    receive    frames into memory that is used again, and from there to the end of a file, by one write each
    checksum   the same, and the CRC-32C of each frame
    send       for each frame that comes, the next part of a file by `sendfile`, after its size

It answers as a broker does whose clients look at sizes and error codes only.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import crc32c

PART_BYTES = 1_000_000
_MOST_BYTES = 1 << 22
_ANSWER_BYTES = 60
_SIZE = struct.Struct(">i")


@contextmanager
def bare_server(what: str, path: Path) -> Iterator[tuple[int, int]]:
    """Run such a process, for one connection after the other; its process id and its port."""
    with Popen([sys.executable, __file__, what, str(path)], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def _fill(sock: socket.socket, buffer: memoryview) -> bool:
    filled = 0
    while filled < len(buffer):
        count = sock.recv_into(buffer[filled:])
        if not count:
            return False
        filled += count
    return True


def _serve(sock: socket.socket, what: str, descriptor: int, memory: memoryview) -> None:
    head, position = memoryview(bytearray(_SIZE.size)), 0
    while _fill(sock, head):
        frame = memory[: _SIZE.unpack(head)[0]]
        if not _fill(sock, frame):
            return
        if what == "send":
            _send_part(sock, descriptor, position)
            position += PART_BYTES
            continue
        if what == "checksum":
            crc32c.crc32c(frame)
        os.write(descriptor, frame)
        sock.sendall(_SIZE.pack(_ANSWER_BYTES) + bytes(_ANSWER_BYTES))


def _send_part(sock: socket.socket, descriptor: int, position: int) -> None:
    sock.sendall(_SIZE.pack(PART_BYTES), socket.MSG_MORE)
    sent = 0
    while sent < PART_BYTES:
        count = os.sendfile(sock.fileno(), descriptor, position + sent, PART_BYTES - sent)
        assert count, "the file is too short"
        sent += count


def main() -> None:
    what, path = sys.argv[1:]
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    memory = memoryview(bytearray(_MOST_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            with sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _serve(sock, what, descriptor, memory)


if __name__ == "__main__":
    main()
