"""The TLS and the logins that listeners require of their connections.

    PLAINTEXT          neither                   SASL_PLAINTEXT     a login
    SSL                TLS, with or without      SASL_SSL           TLS and a login
                       clients' certificates

Source in Kafka: `ChannelBuilders`, `SslChannelBuilder`, `SaslChannelBuilder`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.broker import Broker
from odradek.broker.channels import SocketChannel, TlsChannel
from odradek.broker.config import Listener
from odradek.broker.connection import SCRATCH_BYTES, Connection, RequestHandler
from odradek.broker.refusals import ClientRefusals
from odradek.broker.tls_files import TlsFiles
from odradek.printable import logger

if TYPE_CHECKING:
    from odradek.broker.principal_rules import PrincipalRules
    from odradek.broker.sasl import SaslConfig, SaslServer

_logger = logger(__name__)


class Listeners:
    """The TLS and the logins of a broker's listeners. It belongs to the event loop's thread.

    Args:
        broker: The broker.
        refusals: Logs refused logins.

    Attributes:
        tls: The TLS of the listeners.

    Raises:
        OdradekError: A setting is not valid, or a certificate cannot be read.
    """

    def __init__(self, broker: Broker, refusals: ClientRefusals) -> None:
        self.tls = TlsFiles(broker.config, broker.clock, broker.run)
        self._config = broker.config
        self._refusals = refusals
        self._loop = asyncio.get_running_loop()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._rules: dict[str, PrincipalRules] = {}
        self._sasl: dict[str, Callable[[Callable[[str, str, str], None]], SaslServer]] = {}
        self._sasl_configs: list[SaslConfig] = []
        for listener in broker.config["listeners"]:
            protocol = broker.config.protocol(listener.name)
            if protocol.endswith("SSL"):
                self.tls.add(listener.name)
                self._rules[listener.name] = broker.config.of_listener(listener.name, "ssl.principal.mapping.rules")
            if protocol.startswith("SASL"):
                self._add_sasl(broker, listener.name)

    def _add_sasl(self, broker: Broker, name: str) -> None:
        # Imported here: most brokers need no SASL, and start faster.
        from odradek.broker.sasl import SaslConfig, SaslServer

        logs = broker.logs
        config = SaslConfig(broker.config, name, lambda: logs.metadata_image, broker.tokens, broker.clock, broker.run)
        self._sasl_configs.append(config)
        self._sasl[name] = partial(SaslServer, config)

    def connection(self, handler: RequestHandler, listener: Listener, peer: str) -> Connection:
        """Return a new connection, whose client has to log in first if the listener requires it."""
        connection = Connection(handler, listener.name, peer, self._config["socket.request.max.bytes"])
        new_sasl = self._sasl.get(listener.name)
        if new_sasl is not None:
            connection.sasl = new_sasl(partial(self._refusals.login, peer))
            connection.max_request_bytes = connection.sasl.max_request_bytes
        return connection

    def open(self, connection: Connection, sock: socket.socket, server: RequestHandler) -> None:
        """Start to receive and send on a connection.

        Args:
            connection: The connection.
            sock: The socket, which is closed with the connection.
            server: Notified of received and sent bytes.
        """
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = self.tls.context(connection.listener)
            if context is not None:
                sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            # The client has disconnected already.
            _logger.debug("%s: %s", connection.peer, error)
            sock.close()
            connection.close()
            return
        if isinstance(sock, ssl.SSLSocket):
            TlsChannel(self._loop, connection, sock, self._scratch, server, self._rules[connection.listener])
        else:
            SocketChannel(self._loop, connection, sock, self._scratch, server)

    def close(self) -> None:
        """Stop fetching the keys of tokens."""
        for config in self._sasl_configs:
            config.close()
