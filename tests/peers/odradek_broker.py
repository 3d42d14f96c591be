"""Our own broker as a program, in the place of Apache Kafka: `odradek serve` on a folder of the test."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from peers.java_properties import write_properties
from peers.process import Server, free_port


class OdradekBroker(Server):
    """A broker. `config` may be changed between a stop and the next start.

    Args:
        log_dir: the log directory, made if absent.
        config: settings that replace those of `default_config`, or add to them.
    """

    name = "odradek"

    def __init__(self, log_dir: Path, config: Mapping[str, str] | None = None) -> None:
        self.side = log_dir.with_name(f"{log_dir.name}.odradek")
        super().__init__(self.side / "server.out")
        self.log_dir = log_dir
        self.port = free_port()
        self.config = self.default_config() | dict(config or {})

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def default_config(self) -> dict[str, str]:
        """The same as those of `KafkaBroker`, as far as they concern us."""
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.retention.ms": "-1",
            "offsets.retention.minutes": "5256000",
        }

    def command(self) -> list[str]:
        """Returns the command line."""
        self.side.mkdir(parents=True, exist_ok=True)
        properties = write_properties(self.side / "server.properties", self.config)
        return [sys.executable, "-m", "odradek", "serve", str(self.log_dir), "--config", str(properties)]

    def ready(self) -> bool:
        """Asks which APIs there are."""
        from odradek.errors import OdradekError
        from odradek.testing.wire import WireClient

        try:
            with WireClient("127.0.0.1", self.port, timeout_s=5) as client:
                return bool(client.call(18, 0, {}).api_keys)
        except (OSError, OdradekError):
            return False
