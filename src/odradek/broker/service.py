"""A broker as a service: it runs until a signal ends it.

    SIGTERM, SIGINT, SIGHUP   running requests are finished and answered, the log directory is closed
    a second one              ends at once: the next start recovers the logs

Source in Kafka: `Kafka.main`, `KafkaRaftServer`, `LoggingSignalHandler`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from odradek.broker.config import BrokerConfig, address_text
from odradek.broker.monitoring import Monitoring
from odradek.broker.running import serving
from odradek.broker.server import Server
from odradek.broker.systemd import inherited_sockets, notify
from odradek.printable import logger
from odradek.system import raise_descriptor_limit

_logger = logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def log_dirs(config: Mapping[str, str]) -> list[str]:
    """Return the folders that `log.dirs`, or else `log.dir`, names."""
    text = config.get("log.dirs") or config.get("log.dir") or ""
    return [folder.strip() for folder in text.split(",") if folder.strip()]


async def serve(
    paths: Sequence[str],
    config: Mapping[str, str],
    *,
    adopt: bool = False,
    strict: bool = False,
    unsecured_tokens: bool = False,
    metrics: tuple[str, int] | None = None,
    companion: Callable[[Server], AbstractContextManager[object]] | None = None,
    leave: Callable[[int], None] = os._exit,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP.

    Args:
        paths: The log directories.
        config: The broker's settings.
        adopt: Whether to make a log directory of a folder of partitions without metadata.
        strict: Whether a start that would lose records is refused.
        unsecured_tokens: Whether listeners may take tokens of OAUTHBEARER without a signature.
        metrics: Where `/metrics` and `/healthz` are.
        companion: Makes something that lives as long as the broker, before the first client comes.
        leave: Ends the process, at a second signal.

    Raises:
        OdradekError: A directory or a listener cannot be opened, or a setting is not valid.
    """
    begun = time.perf_counter()
    # As Java does. Beyond a sixteenth of it, logs are opened again for each append.
    raise_descriptor_limit()
    if metrics is not None:
        import prometheus_client  # noqa: F401 - a missing package is reported before anything is opened
    sockets = inherited_sockets(os.environ, BrokerConfig(config)["listeners"])
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    # `nohup` ignores SIGHUP: then it stays ignored.
    signals = _SIGNALS if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*_SIGNALS, signal.SIGHUP)

    def end(number: signal.Signals) -> None:
        if stop.is_set():
            _logger.warning("%s again: ends without closing the log directory", number.name)
            leave(128 + number)
            return
        _logger.info("%s: stopping", number.name)
        notify(os.environ, "STOPPING=1")
        stop.set()

    path = paths if len(paths) > 1 else paths[0]
    async with serving(
        path, config, adopt=adopt, strict=strict, unsecured_tokens=unsecured_tokens, sockets=sockets
    ) as server:
        # Before the loop continues, and so before the first client is served.
        with nullcontext() if companion is None else companion(server):
            for number in signals:
                loop.add_signal_handler(number, end, number)
            monitoring = None if metrics is None else Monitoring(server)
            try:
                if monitoring is not None and metrics is not None:
                    port = await monitoring.listen(*metrics)
                    _logger.info("metrics at http://%s/metrics", address_text(metrics[0], port))
                _tell_ready(server, paths, time.perf_counter() - begun)
                notify(os.environ, "READY=1")
                await stop.wait()
            finally:
                if monitoring is not None:
                    await monitoring.close()
    for number in signals:
        loop.remove_signal_handler(number)
    _logger.info("stopped")


def _tell_ready(server: Server, paths: Sequence[str], seconds: float) -> None:
    broker = server.broker
    endpoints = ", ".join(f"{one.name}://{one.address}" for one in broker.endpoints.values())
    _logger.info(
        "ready after %d ms: %s serves %s, %d topics (cluster %s, node %d)",
        round(seconds * 1000),
        endpoints,
        ", ".join(paths),
        len(broker.logs.metadata_image.topics),
        broker.cluster_id,
        broker.node_id,
    )
