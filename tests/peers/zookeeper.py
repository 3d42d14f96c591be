"""One standalone Apache ZooKeeper server, on a free loopback port, its data in a folder of the test."""

from __future__ import annotations

import socket
from pathlib import Path

from peers.jars import JAVA, classpath
from peers.java_properties import write_properties
from peers.process import Server, free_port


class ZooKeeperServer(Server):
    """A ZooKeeper server; every write is in its transaction log before it is answered."""

    name = "zookeeper"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "zookeeper.out")
        self.folder = folder
        self.port = free_port()
        self._classpath = classpath("zookeeper")

    @property
    def hosts(self) -> str:
        """`host:port`, as clients take it."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Writes the configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = {
            "dataDir": str(self.folder / "data"),
            "clientPortAddress": "127.0.0.1",
            "clientPort": str(self.port),
            "tickTime": "500",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
        }
        write_properties(self.folder / "zoo.cfg", options)

    def command(self) -> list[str]:
        """Returns the command line."""
        jvm = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true"]
        main = ["Attached", "org.apache.zookeeper.server.ZooKeeperServerMain", str(self.folder / "zoo.cfg")]
        return [*JAVA, *jvm, "-cp", self._classpath, *main]

    def ready(self) -> bool:
        """Asks `srvr`, which names a mode only once clients are served."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
                return b"Mode: standalone" in answer
        except OSError:
            return False
