"""`/metrics` for Prometheus and `/healthz`, by HTTP.

    odradek_request_seconds_count{api="Fetch"} 12    odradek_partition_log_end_offset{topic="events",partition="0"} 345

Numbers are collected for each scrape; counting costs the broker next to nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email import message_from_bytes
from http import HTTPStatus
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.metrics import LATENCY_BOUNDS_S
from odradek.broker.server import Server
from odradek.coordination.lag import total_lag
from odradek.coordination.shares.record_states import AcknowledgeType
from odradek.cross_site import RefusedRequestError, check_site
from odradek.errors import FormatError, LogError, OdradekError
from odradek.printable import printable
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from odradek.broker.broker import Broker
    from odradek.storage.log.writable_log import WritableLog
    from odradek.storage.segment.segment import Segment

_HEAD_BYTES = 8192
_MOST_CLIENTS = 64
_TIMEOUT_S = 10.0
_TEXT = "text/plain; charset=utf-8"
_MOST_OFFSETS = 100_000
"""How many committed offsets are examined, which takes a tenth of a second in another thread."""
_MOST_PROBLEMS = 10
_MOST_LAGS = 1000
"""How many lags are shown, the largest ones: each is a time series. So it is with records in flight."""
_ACK_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


def _damage(broker: Broker, log: WritableLog) -> FormatError | None:
    """Return the damage that was found in a log since it was opened, if it is still there."""
    failure = log.cleaning.failure
    if isinstance(failure, FormatError):
        return failure
    damage = broker.damage.get(log.path)
    if damage is None or log.is_closed:
        return None
    segment = next((one for one in log.segments if str(one.path) == damage.path), None)
    return None if segment is None or _is_repaired(segment, damage.position) else damage


def _is_repaired(segment: Segment, position: int | None) -> bool:
    """Whether a batch begins at a position where damage was met: the file may have been restored."""
    if position is None:
        return False
    try:
        return next(iter(segment.scan(position, check_crc=True)), None) is not None
    except (OdradekError, OSError):
        return False


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
        yield from self._throttling()
        yield GaugeMetricFamily("odradek_topics", "Topics.", len(broker.logs.metadata_image.topics))
        partitions = broker.logs.topic_partitions()
        yield GaugeMetricFamily("odradek_partitions", "Partitions.", len(partitions))
        yield GaugeMetricFamily("odradek_groups", "Groups.", broker.groups.count)
        yield from self._groups()
        yield from self._shares()
        yield from self._state()
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("odradek_partition_log_start_offset", "The first offset.", labels=labels)
        end = GaugeMetricFamily("odradek_partition_log_end_offset", "The offset after the last one.", labels=labels)
        size = GaugeMetricFamily("odradek_partition_log_size_bytes", "The size of the segments.", labels=labels)
        ends: dict[TopicPartition, int] = {}
        for log in broker.logs.open_logs:
            name = [log.topic_partition.topic, str(log.topic_partition.partition)]
            with suppress(OdradekError, OSError):
                # It may have been deleted meanwhile.
                values = log.log_start_offset, log.log_end_offset, log.size_bytes
                for family, value in zip((start, end, size), values, strict=True):
                    family.add_metric(name, value)
                ends[log.topic_partition] = values[1]
        yield start
        yield end
        yield size
        yield from self._lags(ends)

    def _throttling(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        throttling = self._server.broker.throttling
        answers = CounterMetricFamily("odradek_throttled_answers", "Answers with a throttle time.", labels=["quota"])
        seconds = CounterMetricFamily("odradek_throttle_seconds", "Throttle times together.", labels=["quota"])
        clients = GaugeMetricFamily("odradek_quota_clients", "Clients whose use counts.", labels=["quota"])
        for quota, count in list(throttling.throttles.items()):
            answers.add_metric([quota], count)
            seconds.add_metric([quota], throttling.throttled_ms[quota] / 1000)
        for quota, count in throttling.quotas.clients():
            clients.add_metric([quota], count)
        yield answers
        yield seconds
        yield clients
        yield GaugeMetricFamily("odradek_muted_connections", "Connections that wait.", throttling.muted_connections)

    def _state(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        logs = self._server.broker.logs
        offline = sum(log.is_offline for log in logs.open_logs)
        damaged = sum(_damage(self._server.broker, log) is not None for log in logs.open_logs)
        lost = [action for action in list(logs.report.actions) if action.loses]
        about = "What was cut off, removed or set aside when logs were opened"
        yield GaugeMetricFamily("odradek_recovery_losses", f"{about}.", len(lost))
        size_bytes = sum(action.size_bytes for action in lost)
        yield GaugeMetricFamily("odradek_recovery_lost_bytes", f"{about}, in bytes.", size_bytes)
        sound = sum(action.sound.count for action in lost if action.sound is not None)
        yield GaugeMetricFamily("odradek_recovery_lost_records", f"{about}, in records that could be read.", sound)
        yield GaugeMetricFamily("odradek_offline_partitions", "Partitions whose disk failed.", offline)
        yield GaugeMetricFamily("odradek_damaged_partitions", "Partitions with damage that was found.", damaged)
        free = GaugeMetricFamily("odradek_log_dir_free_bytes", "What is free for the broker.", labels=["path"])
        total = GaugeMetricFamily("odradek_log_dir_total_bytes", "The size of the file system.", labels=["path"])
        for path in logs.places():
            with suppress(OSError):
                usage = shutil.disk_usage(path)
                free.add_metric([str(path)], usage.free)
                total.add_metric([str(path)], usage.total)
        yield free
        yield total

    def _groups(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily("odradek_group_count", "Groups by type and state.", labels=["type", "state"])
        for labels, count in Counter(self._server.broker.groups.kinds()).items():
            family.add_metric(labels, count)
        yield family

    def _shares(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        broker = self._server.broker
        in_flight: Counter[tuple[str, str]] = Counter()
        for group, topic, count in broker.in_flight():
            in_flight[group, topic] += count
        records = GaugeMetricFamily(
            "odradek_share_in_flight_messages", "Records of share groups in flight.", labels=["group", "topic"]
        )
        for labels, count in in_flight.most_common(_MOST_LAGS):
            records.add_metric(labels, count)
        yield records
        acknowledged = CounterMetricFamily(
            "odradek_share_record_acknowledgements", "Records that were acknowledged.", labels=["ack_type"]
        )
        for kind in _ACK_TYPES:
            acknowledged.add_metric([kind.name.capitalize()], broker.metrics.acknowledged[kind])
        yield acknowledged
        about = "Records that members had for too long."
        yield CounterMetricFamily("odradek_share_acquisition_lock_timeouts", about, broker.metrics.lock_timeouts)

    def _lags(self, ends: Mapping[TopicPartition, int]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        each: dict[tuple[str, str], list[int]] = {}
        for group, partition, offset in islice(self._server.broker.groups.committed(), _MOST_OFFSETS):
            if partition in ends:
                each.setdefault((group, partition.topic), []).append(ends[partition] - offset)
        lags = Counter({name: total_lag(found) for name, found in each.items()})
        family = GaugeMetricFamily(
            "odradek_group_lag", "Offsets from the committed ones to the ends.", labels=["group", "topic"]
        )
        for name, lag in lags.most_common(_MOST_LAGS):
            family.add_metric(name, lag)
        yield family


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
        self._names: set[str] = set()
        self._clients = 0
        self._collecting = asyncio.Lock()

    async def listen(self, host: str, port: int) -> int:
        """Open the listener; return its port.

        Raises:
            LogError: The address is in use, or not one of this machine.
        """
        config = self._server.broker.config
        known = [one.host for setting in ("listeners", "advertised.listeners") for one in config[setting]]
        self._names = {name.lower() for name in (host, socket.gethostname(), *known) if name}
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
        self._clients += 1
        try:
            if self._clients <= _MOST_CLIENTS:
                async with asyncio.timeout(_TIMEOUT_S):
                    await self._serve(reader, writer)
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client disconnected, is too slow, or does not speak HTTP.
            pass
        finally:
            self._clients -= 1
            # Not `close`, which would wait for a client that does not receive its answer.
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status, content_type, body = await self._response(head)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {content_type}"]
        lines += [f"Content-Length: {len(body)}", "X-Content-Type-Options: nosniff", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        if not head.startswith(b"HEAD "):
            writer.write(body)
        await writer.drain()

    async def _response(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        request, _, headers = head.partition(b"\r\n")
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        try:
            check_site(message_from_bytes(headers).items(), self._names)
        except RefusedRequestError as error:
            return error.status, _TEXT, f"{error}\n".encode()
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET\n"
        if path == b"/metrics":
            # With thousands of partitions it takes some time; the other threads are the clients'.
            async with self._collecting:
                text = await self._server.broker.run(lambda: self._generate(self._registry))
            return HTTPStatus.OK, self._content_type, text
        if path == b"/healthz":
            # It reads what was damaged from the disk.
            async with self._collecting:
                problems = await self._server.broker.run(self._problems)
            status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
            return status, _TEXT, "".join(f"{line}\n" for line in problems or ["ok"]).encode()
        return HTTPStatus.NOT_FOUND, _TEXT, b"/metrics or /healthz\n"

    def _problems(self) -> list[str]:
        """Return a line for each of the first partitions that cannot be served as they should be."""
        broker = self._server.broker
        not_loaded = (f"not loaded: {CONSUMER_OFFSETS_TOPIC}-{number}" for number in broker.groups.not_loaded())
        found = (
            f"offline: {log.path}" if log.is_offline else f"damaged: {printable(str(damage))}"
            for log in broker.logs.open_logs
            if (damage := _damage(broker, log)) is not None or log.is_offline
        )
        return list(islice(chain(not_loaded, found), _MOST_PROBLEMS))
