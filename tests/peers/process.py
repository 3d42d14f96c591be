"""A server program under test's control: started, waited for, ended in order or killed."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")
TAIL_LINES = 40
PATIENCE = 5
"""How many times longer than on a quiet machine the tests wait for what must come.

Whoever waits by `wait_for` gives the time of a quiet machine: it is multiplied there.
"""


def free_port() -> int:
    """Returns a loopback port that is the caller's as long as this process lives, also while its server is down.

    A socket that is bound but does not listen keeps it: nobody else is given the port, but a server that sets
    `SO_REUSEADDR`, as all of ours do, may listen on it.

    It lies below the ports that the kernel gives to outgoing connections: a client that keeps connecting to one of
    those while its server is down ends up connected to itself one day, and the server cannot have its port back.
    """
    while True:
        port = random.randint(15_000, 30_000)
        keeper = socket.socket()
        try:
            keeper.bind(("127.0.0.1", port))
        except OSError:
            keeper.close()
            continue
        # Only now: set before, it would let two processes keep one port.
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.detach()
        return port


def wait_for(condition: Callable[[], T | None], timeout_s: float, what: str, interval_s: float = 0.05) -> T:
    """Asks `condition` until it gives something true, and returns that.

    Args:
        condition: What is asked.
        timeout_s: How long it may take on a quiet machine; it is given `PATIENCE` times as long.
        what: What it is that is waited for.
        interval_s: How long it rests after each question.

    Raises:
        TimeoutError: That time passed; the text says for `what`.
    """
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        if answer := condition():
            return answer
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_s * PATIENCE} s for {what}")
        time.sleep(interval_s)


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


class ServerEndedError(RuntimeError):
    """A server ended by itself. Such a test has no second chance."""


class Server(ABC):
    """One server program. A context manager: starts on entry, ends in order on exit.

    It can be started again after `stop` or `kill`, on the same port and the same folder.
    """

    name: str
    port: int
    start_timeout_s: float = 180
    stop_timeout_s: float = 60

    def __init__(self, output: Path) -> None:
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Returns the command line to run."""

    @abstractmethod
    def ready(self) -> bool:
        """Says whether the server answers a real request."""

    def prepare(self) -> None:  # noqa: B027
        """Lays out what the server needs before it starts."""

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Returns the last lines that the server printed."""
        if not self.output.exists():
            return ""
        return "\n".join(self.output.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def start(self) -> Self:
        """Starts the server and waits until it answers.

        Raises:
            RuntimeError: it ended, or did not answer in time; the text holds what it printed last.
        """
        if self.running:
            raise RuntimeError(f"{self.name} is already running")
        if _listens(self.port):
            # Whoever sits there would answer in the place of ours, which is about to fail.
            raise RuntimeError(f"{self.name} did not start: port {self.port} is in use")
        self.prepare()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            # A session of its own: Ctrl-C in a terminal must reach pytest alone, which ends its servers in order.
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        try:
            wait_for(self._ready_or_ended, self.start_timeout_s, f"{self.name} to answer")
        except BaseException as error:
            self.kill()
            raise RuntimeError(f"{self.name} did not start: {error}\n{self.tail()}") from error
        return self

    def _ready_or_ended(self) -> bool:
        if not self.running:
            raise RuntimeError("it ended by itself")
        return self.ready()

    def stop(self) -> None:
        """Ends the server in order (SIGTERM) and waits for it; killed and an error if it does not obey.

        Raises:
            RuntimeError: it did not end in time.
            ServerEndedError: it had ended before.
        """
        if self._process is None:
            return
        ended_before = self._process.poll()
        if ended_before is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(self.stop_timeout_s * PATIENCE)
            except subprocess.TimeoutExpired as error:
                self.kill()
                raise RuntimeError(
                    f"{self.name} did not stop in {self.stop_timeout_s * PATIENCE} s\n{self.tail()}"
                ) from error
        self._forget()
        if ended_before is not None:
            raise ServerEndedError(f"{self.name} had ended by itself ({ended_before})\n{self.tail()}")

    def kill(self) -> None:
        """Ends the server at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self) -> Self:
        """Stops in order and starts again."""
        self.stop()
        return self.start()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()
