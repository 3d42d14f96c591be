"""A Redis server of the machine's own package, on a free loopback port, its data in a folder of the test."""

from __future__ import annotations

import socket
from pathlib import Path

from peers.jars import require
from peers.process import Server, free_port


class RedisServer(Server):
    """A Redis server that writes every command to disk before it answers, so that `kill` loses nothing answered."""

    name = "redis-server"
    start_timeout_s = 20

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        require("redis-server")
        super().__init__(folder / "redis.out")
        self.folder = folder
        self.port = port or free_port()

    @property
    def url(self) -> str:
        """The address of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        """Makes the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        """Returns the command line."""
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "daemonize": "no",
        }
        return ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]

    def ready(self) -> bool:
        """Sends PING; a server that still loads its file answers with an error."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
