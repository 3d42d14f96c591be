"""The interface to systemd: it passes sockets that listen already, and receives "ready" and "stopping".

    LISTEN_FDS=2 LISTEN_FDNAMES=plaintext:ssl     descriptors 3 and 4
    NOTIFY_SOCKET=/run/systemd/notify             READY=1

Source: `sd_listen_fds(3)`, `sd_notify(3)`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence

from odradek.broker.config import Listener
from odradek.errors import LogError

_FIRST_DESCRIPTOR = 3


def inherited_sockets(environment: MutableMapping[str, str], listeners: Sequence[Listener]) -> dict[str, socket.socket]:
    """Return the sockets that systemd opened, by the name of the listener.

    A socket is for the listener that it is named after (`FileDescriptorName=`), or else for the next one in order. The
    variables are removed, so that child processes do not take them for theirs.

    Raises:
        LogError: There are more sockets than listeners, or what was inherited is no socket.
    """
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if process != str(os.getpid()) or not count.isdigit():
        return {}
    found: dict[str, socket.socket] = {}
    unnamed = []
    known = {listener.name for listener in listeners}
    for number in range(int(count)):
        try:
            sock = socket.socket(fileno=_FIRST_DESCRIPTOR + number)
        except OSError as error:
            raise LogError(f"descriptor {_FIRST_DESCRIPTOR + number} of LISTEN_FDS is no socket") from error
        os.set_inheritable(sock.fileno(), False)
        name = names[number].upper() if number < len(names) else ""
        if name in known and name not in found:
            found[name] = sock
        else:
            unnamed.append(sock)
    left = [listener.name for listener in listeners if listener.name not in found]
    if len(unnamed) > len(left):
        raise LogError(f"systemd gave {int(count)} sockets for {len(listeners)} listeners")
    return found | dict(zip(left, unnamed, strict=False))


def notify(environment: MutableMapping[str, str], state: str) -> None:
    """Tell systemd `READY=1` or `STOPPING=1`, if it wants to know."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        sock.sendall(state.encode())
