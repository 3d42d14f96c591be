"""The connections to a cluster that all clients here share: kafka-python's, opened on first use.

    settings in text -> client_config -> Cluster -> bootstrap, then requests to one node or any

kafka-python finds the brokers, speaks TLS and SASL, and knows every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector


def client_config(options: Mapping[str, str]) -> dict[str, Any]:
    """Turn settings with Kafka's names, as text, into kafka-python's settings of a connection.

    Raises:
        ValueError: A setting does not exist, or its value has the wrong type.
    """
    config: dict[str, Any] = {}
    for name, text in options.items():
        setting = name.replace(".", "_")
        if setting not in KafkaConnectionManager.DEFAULT_CONFIG or setting == "bootstrap_servers":
            raise ValueError(f"unknown option {name}")
        default = KafkaConnectionManager.DEFAULT_CONFIG[setting]
        if isinstance(default, bool):
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{name} must be true or false, not {text!r}")
            config[setting] = text.lower() == "true"
        elif isinstance(default, int):
            config[setting] = int(text)
        else:
            config[setting] = text
    return config


def check(error_code: int, what: str) -> None:
    """Raise kafka-python's error for Kafka's error code; do nothing for 0."""
    if error_code:
        raise errors.for_code(error_code)(what)


class Cluster:
    """The connections to a cluster. Its methods raise kafka-python's errors, and OSError.

    Args:
        bootstrap_servers: Its addresses.
        client_id: What the client calls itself.
        config: kafka-python's settings, of `client_config`.
        max_response_bytes: The longest response, unless the settings say otherwise.
    """

    def __init__(
        self, bootstrap_servers: Sequence[str], client_id: str, config: Mapping[str, Any], *, max_response_bytes: int
    ) -> None:
        self._client_id = client_id
        self._config = {
            "client_id": client_id,
            "reconnect_backoff_max_ms": 1000,
            "receive_message_max_bytes": max_response_bytes,
            **config,
            "bootstrap_servers": list(bootstrap_servers),
        }
        self._net: Any = None
        self._manager: Any = None

    @property
    def is_open(self) -> bool:
        """Whether connections were made that `close` has not closed."""
        return self._manager is not None

    def connected(self, timeout_ms: float) -> Any:
        """Return kafka-python's manager of connections, once it knows the cluster's nodes."""
        if self._manager is None:
            self._net = NetworkSelector(client_id=self._client_id)
            self._manager = KafkaConnectionManager(self._net, **self._config)
        if not self._manager.bootstrapped:
            self._manager.bootstrap(timeout_ms=timeout_ms)
        return self._manager

    def ask(self, request: Any, node_id: Any = None, *, timeout_ms: float | None = None) -> Any:
        """Send one request to a node, or to any, once, and return the answer; `connected` was called before."""
        manager = self._manager

        async def send() -> Any:
            return await manager.send(request, node_id=node_id, request_timeout_ms=timeout_ms)

        return manager.run(send)

    def close(self) -> None:
        """Close the connections; the next request makes them again."""
        if self._manager is not None:
            self._manager.close()
            self._net.close()
            self._manager = self._net = None
