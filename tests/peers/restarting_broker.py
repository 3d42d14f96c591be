"""Our broker in this process, at a port that it keeps: its time can be moved, and it can be restarted, or crash."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from odradek.broker.running import BrokerThread
from odradek.storage.config_def import ConfigValue
from odradek.testing.broker import QUICK_CONFIG
from odradek.testing.broker_control import BrokerControl
from odradek.testing.conformance.means import Means
from peers.process import free_port


class RestartingBroker:
    """A broker; a context manager that stops it.

    Args:
        path: the log directory.
        config: settings that replace those of `odradek.testing.Broker`, or add to them.
    """

    def __init__(self, path: Path, config: Mapping[str, ConfigValue] | None = None) -> None:
        self.path = path
        self.port = free_port()
        self.config = {**QUICK_CONFIG, "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **(config or {})}
        self._start()

    @property
    def means(self) -> Means:
        """What checks of conformance may do with it."""
        return Means(advance=self.advance, restart=self.restart)

    def _start(self) -> None:
        self.running = BrokerThread(self.path, self.config, sync="off", background=False)
        self._control = BrokerControl(self.running.server, self.running.call)

    def advance(self, seconds: float) -> None:
        """Moves its time forward."""
        self._control.clock.advance(seconds)

    def restart(self) -> None:
        """Stops it, and starts it again."""
        self.running.stop()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.running.stop()
