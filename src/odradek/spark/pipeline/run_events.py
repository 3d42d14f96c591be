"""The runs of a job as OpenLineage's events: when one starts and how it ends, what it reads and writes.

    START               inputs  kafka://broker:9092 orders        outputs  s3://bucket paid/2026
    COMPLETE or FAIL    the same, with all topics that were read, and the error

A thread sends them, so a collector that is away delays no batch; an event that it has not taken after some attempts is
dropped.

Source: OpenLineage's specification, "Naming".
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any
from urllib.parse import urlsplit

from odradek.closing import Closing
from odradek.errors import JobError
from odradek.extras import missing_package
from odradek.offsets.store import Position
from odradek.printable import logger
from odradek.spark.pipeline.folder_uri import OBJECT_STORES, FolderUri
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.observer import Observer, OnceAMinute
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec, SinkSpec, SparkSinkSpec, TopicSinkSpec
from odradek.spark.ranges import Topics
from odradek.storage.names import TopicPartition

_PRODUCER = "urn:odradek"
_MOST_EVENTS = 1000
_WAITS_S = (0.0, 1.0, 5.0, 20.0)
"""How long a thread waits before each attempt to send an event."""
_PATIENCE_S = 5.0
"""How long the end of a job waits for events that are still to be sent."""
_logger = logger(__name__)
_logger.addFilter(OnceAMinute())


class RunEvents(Observer, Closing):
    """Sends the events of a job.

    Args:
        job: The job.
        config: The `namespace` of the job, and the `transport` of OpenLineage's client; by default the client's own
            configuration says how events are sent.

    Raises:
        JobError: The package is not installed, or there is no such transport.
    """

    def __init__(self, job: Job, config: Mapping[str, Any]) -> None:
        try:
            from openlineage.client import OpenLineageClient

            self._client: Any = OpenLineageClient(config=_client_config(config))
            if (session := getattr(self._client.transport, "session", None)) is not None:
                session.hooks["response"].append(_drop_body)
        except ModuleNotFoundError as error:
            raise JobError(missing_package(error), "openlineage") from error
        except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise JobError(f"this is no transport of OpenLineage's client: {error}", "openlineage.transport") from error
        self._job = job
        self._namespace = config.get("namespace", "default")
        options = job.source_options()
        self._topics = {*options.topics, *(name.topic for name in options.partitions or ())}
        self._run_id = ""
        self._events: Queue[Any] = Queue(_MOST_EVENTS)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="odradek-openlineage", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """Send that a run starts."""
        from openlineage.client.uuid import generate_new_uuid

        self._run_id = str(generate_new_uuid())
        self._add("START", {})

    def looked(
        self, topics: Topics, positions: Mapping[TopicPartition, Position], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Note the topics."""
        self._topics.update(name.topic for name in end_offsets)

    def ended(self, error: BaseException | None) -> None:
        """Send how the run has ended."""
        from openlineage.client.facet_v2 import error_message_run

        if error is None:
            self._add("COMPLETE", {})
        else:
            self._add("FAIL", {"errorMessage": error_message_run.ErrorMessageRunFacet(str(error), "PYTHON")})

    def close(self) -> None:
        """Wait for the events that are still to be sent, but not for long."""
        self._is_closing.set()
        self._end_queue()
        self._thread.join(_PATIENCE_S)

    def _end_queue(self) -> None:
        """Put the end behind the last event, instead of the oldest one if there is no room: the thread has to end."""
        while True:
            try:
                self._events.put_nowait(None)
            except Full:
                with suppress(Empty):
                    self._events.get_nowait()
            else:
                return

    def _add(self, state: str, run_facets: dict[str, Any]) -> None:
        from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.event_v2 import Job as LineageJob
        from openlineage.client.facet_v2 import job_type_job

        job = self._job
        kind = job_type_job.JobTypeJobFacet("BATCH" if job.trigger_interval_ms is None else "STREAMING", "ODRADEK")
        options = job.source_options()
        inputs = [_topic(options.path, options.kafka, topic) for topic in sorted(self._topics)]
        event: Any = RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            eventType=RunState[state],
            run=Run(self._run_id, facets=run_facets),
            job=LineageJob(self._namespace, job.name, facets={"jobType": kind}),
            inputs=[InputDataset(*dataset) for dataset in inputs],
            outputs=[OutputDataset(*dataset) for dataset in dict.fromkeys(_outputs(job))],
            producer=_PRODUCER,
        )
        try:
            self._events.put_nowait(event)
        except Full:
            _logger.warning("job %s: OpenLineage's collector takes no events: some are dropped", job.name)

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            for wait_s in _WAITS_S:
                if wait_s and self._is_closing.wait(wait_s):
                    break
                try:
                    self._client.emit(event)
                    break
                except Exception as error:
                    # Its text may have the address, and that a password.
                    status = getattr(getattr(error, "response", None), "status_code", "")
                    told = f"{type(error).__name__} {status}".strip()
                    _logger.warning("job %s: OpenLineage's collector has not taken an event: %s", self._job.name, told)
        with suppress(Exception):
            self._client.close(_PATIENCE_S)


def _client_config(config: Mapping[str, Any]) -> dict[str, Any] | None:
    if "transport" not in config:
        return None
    transport = dict(config["transport"])
    if transport.get("type") == "http":
        # It is tried again here: the client would log each attempt, and read all that comes with a status.
        transport.setdefault("retry", {"total": 0, "status_forcelist": ()})
    return {"transport": transport}


def _drop_body(response: Any, **_: object) -> None:
    """Keep requests from reading an answer, which may not end; only the status counts."""
    response.raw.close()


def _topic(path: object, kafka: Mapping[str, str], topic: str) -> tuple[str, str]:
    """Return the namespace and the name of a topic of a folder or a broker."""
    if path is not None:
        return "file", str(Path(str(path).removeprefix("file:")).resolve() / topic)
    server = kafka["bootstrap.servers"].split(",")[0].strip()
    return f"kafka://{server}", topic


def _outputs(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and names of what a job writes, where its file says them."""
    for sink in (*job.sinks, *((job.dead_letters,) if job.dead_letters else ())):
        found = _output(sink)
        if found is not None:
            yield found


def _output(sink: SinkSpec) -> tuple[str, str] | None:
    match sink:
        case TopicSinkSpec(topic=str(topic)):
            return _topic(sink.path, sink.kafka, topic)
        case ParquetSinkSpec(path=FolderUri(scheme=scheme, parts=(place, *names))):
            root = "" if scheme in OBJECT_STORES else "/"
            return place.partition(" at ")[0], root + "/".join(names)
        case ParquetSinkSpec(path=path):
            return "file", str(path)
        case SparkSinkSpec(format="jdbc", table=table, options=options):
            url = urlsplit(options["url"].removeprefix("jdbc:"))
            database = "postgres" if url.scheme == "postgresql" else url.scheme
            # Without the user and the password. After a ; or a ( some databases have settings, maybe a password, and
            # what has no host may hold them anywhere.
            host = re.split("[;(]", url.netloc.rpartition("@")[2])[0]
            path = url.path.partition(";")[0].strip("/")
            return (f"{database}://{host}", ".".join(filter(None, (path, str(table))))) if host else None
        case SparkSinkSpec(path=str(path)):
            url = urlsplit(path)
            user, at, host = url.netloc.rpartition("@")
            # Azure's container comes before the @, S3's keys do.
            place = f"{user}{at}{host}" if ":" not in user else host
            # A ? or a # in the name of a folder of this machine begins nothing.
            local = re.sub("^file:(//)?", "", path)
            return (f"{url.scheme}://{place}", url.path.lstrip("/")) if url.netloc else ("file", local)
    return None
