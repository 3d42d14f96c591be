"""`/metrics` for Prometheus and `/healthz`, by HTTP.

    odradek_request_seconds_count{api="Fetch"} 12    odradek_partition_log_end_offset{topic="events",partition="0"} 345

The numbers are taken when they are asked for; counting costs the broker next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.metrics import LATENCY_BOUNDS_S
from odradek.broker.server import Server
from odradek.errors import LogError, OdradekError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_HEAD_BYTES = 8192
_TIMEOUT_S = 10.0
_TEXT = "text/plain; charset=utf-8"


class _Collector:
    """Collects the numbers of a broker. Any thread may call it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield the families of metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        metrics, broker = self._server.metrics, self._server.broker
        received, sent = metrics.received_bytes, metrics.sent_bytes
        yield CounterMetricFamily("odradek_received_bytes", "What clients sent.", received)
        yield CounterMetricFamily("odradek_sent_bytes", "What clients were sent.", sent)
        yield CounterMetricFamily("odradek_accepted_connections", "Connections accepted.", metrics.connections)
        yield GaugeMetricFamily("odradek_connections", "Open connections.", len(self._server.connections))
        seconds = HistogramMetricFamily(
            "odradek_request_seconds", "How long answers took; of a Fetch, waiting included.", labels=["api"]
        )
        errors = CounterMetricFamily("odradek_errors", "Errors that were answered.", labels=["api", "error"])
        for api, found in list(metrics.apis.items()):
            bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
            counts = list(zip(bounds, accumulate(found.counts), strict=True))
            seconds.add_metric([api], counts, sum_value=found.seconds)
            for code, count in list(found.errors.items()):
                errors.add_metric([api, _name(code)], count)
        yield seconds
        yield errors
        yield GaugeMetricFamily("odradek_topics", "Topics.", len(broker.logs.metadata_image.topics))
        partitions = broker.logs.topic_partitions()
        yield GaugeMetricFamily("odradek_partitions", "Partitions.", len(partitions))
        yield GaugeMetricFamily("odradek_groups", "Consumer groups.", broker.groups.count)
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("odradek_partition_log_start_offset", "The first offset.", labels=labels)
        end = GaugeMetricFamily("odradek_partition_log_end_offset", "The offset after the last one.", labels=labels)
        size = GaugeMetricFamily("odradek_partition_log_size_bytes", "The size of the segments.", labels=labels)
        for log in broker.logs.open_logs:
            name = [log.topic_partition.topic, str(log.topic_partition.partition)]
            with suppress(OdradekError, OSError):
                # It may have been deleted meanwhile.
                values = log.log_start_offset, log.log_end_offset, log.size_bytes
                for family, value in zip((start, end, size), values, strict=True):
                    family.add_metric(name, value)
        yield start
        yield end
        yield size


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)


class Monitoring:
    """A listener for HTTP. It belongs to the event loop's thread.

    Args:
        server: The broker's network.
    """

    def __init__(self, server: Server) -> None:
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
        from prometheus_client.registry import CollectorRegistry

        self._server = server
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(server))
        self._generate = generate_latest
        self._content_type = CONTENT_TYPE_PLAIN_0_0_4
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Open the listener; return its port.

        Raises:
            LogError: The address is in use, or not one of this machine.
        """
        try:
            self._listening = await asyncio.start_server(self._answer, host or None, port, limit=_HEAD_BYTES)
        except OSError as error:
            raise LogError(f"the metrics' {host}:{port} cannot be opened: {error.strerror}") from error
        return int(self._listening.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close the listener."""
        if self._listening is not None:
            self._listening.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, content_type, body = await self._response(head)
                lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
                writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
                if not head.startswith(b"HEAD "):
                    writer.write(body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Who asked is gone, too slow, or no client of HTTP.
            pass
        finally:
            writer.close()

    async def _response(self, head: bytes) -> tuple[str, str, bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return "405 Method Not Allowed", _TEXT, b"only GET\n"
        if path == b"/metrics":
            # With thousands of partitions it takes some time.
            text = await self._server.broker.run(lambda: self._generate(self._registry))
            return "200 OK", self._content_type, text
        if path == b"/healthz":
            offline = [log for log in self._server.broker.logs.open_logs if log.is_offline]
            if offline:
                return "503 Service Unavailable", _TEXT, f"offline: {offline[0].path}\n".encode()
            return "200 OK", _TEXT, b"ok\n"
        return "404 Not Found", _TEXT, b"/metrics or /healthz\n"
