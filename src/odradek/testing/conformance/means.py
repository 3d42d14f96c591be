"""What a check may do with a broker besides sending requests: let its time pass, and restart it.

    control    POST http://HOST:PORT/advance moves the time of a broker of ours (`odradek.testing.control_server`)
    restart    a command that ends the broker and starts it again; it returns when the broker has been started
    waits      time passes by itself, however long that takes

A check that needs what there is none of is skipped.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import NamedTuple

from odradek.errors import OdradekError

_TIMEOUT_S = 120.0


class Means(NamedTuple):
    """What can be done with a broker.

    Attributes:
        advance: Moves its time forward by a number of seconds; None if that cannot be done.
        restart: Ends it and starts it again; None likewise.
        waits: Whether checks may wait, for minutes.
    """

    advance: Callable[[float], None] | None = None
    restart: Callable[[], None] | None = None
    waits: bool = False

    @property
    def lets_time_pass(self) -> bool:
        """Whether time passes at all, as far as a check can wait for it."""
        return self.advance is not None or self.waits

    def pass_time(self, seconds: float) -> None:
        """Let time pass, if that is possible."""
        if self.advance is not None:
            self.advance(seconds)
        elif self.waits:
            time.sleep(seconds)


def advance_by(host: str, port: int, token: str) -> Callable[[float], None]:
    """Return what moves the time of a broker by its control.

    Args:
        host: The host of the control.
        port: Its port.
        token: What it asks for.
    """

    def advance(seconds: float) -> None:
        connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", "/advance", json.dumps({"seconds": seconds}), headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if answer.status != 200:
            raise OdradekError(f"the control at {host}:{port} answers {answer.status}: {text}")

    return advance


def restart_by(command: str) -> Callable[[], None]:
    """Return what restarts a broker by a command of the shell."""

    def restart() -> None:
        # The user's own command, as the user gave it.
        done = subprocess.run(command, shell=True, check=False, timeout=_TIMEOUT_S)  # noqa: S602
        if done.returncode:
            raise OdradekError(f"the command of --restart ended with {done.returncode}: {command}")

    return restart
