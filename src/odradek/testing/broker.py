"""A broker in this process, for tests: Kafka's clients connect to it, and the test looks at its files.

with odradek.testing.Broker() as broker:
producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
...
assert [record.value for record in broker.logs["events", 0].read()] == [b"a"]
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.broker.running import BrokerThread, check_is_parent
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.file_lock import FileLock
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.testing.broker_control import BrokerClock, BrokerControl
from odradek.testing.control_server import ControlServer
from odradek.testing.request_tap import Fault, Lost, ReceivedRequest

QUICK_CONFIG: Mapping[str, ConfigValue] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    # Internal topics are made when they are first needed: few partitions, so quickly.
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # A test that moves the time does not mean to lose its connections.
    "connections.max.idle.ms": -1,
    # What is deleted is gone when the time is moved, or at the end.
    "log.cleaner.dedupe.buffer.size": 1 << 20,
}
"""Where the broker of a test differs from Kafka's defaults."""


_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it has a name of its own
_MEMORY_BYTES = 1 << 30
_PREFIX = "odradek-broker-"
_ENDED_WITHIN_S = 10.0
_LEFT_AFTER_S = 60.0
"""A broker has locked its log directory long before."""

_folders: dict[Path, threading.Event] = {}
"""The temporary folders of this process, each with what is set when its broker has ended."""

os.register_at_fork(after_in_child=_folders.clear)


def _temporary_folder() -> Path:
    """Return a new folder: in memory where there is room, since topics come and go faster there."""
    in_memory = (
        "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES
    )
    parent = _MEMORY if in_memory else Path(tempfile.gettempdir())
    _remove_left_ones(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    _folders[folder] = threading.Event()
    return folder


@cache
def _remove_left_ones(parent: Path) -> None:
    """Remove what killed programs have left: it would fill the memory one day. A process looks once."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock_file = folder / "data" / LOCK_FILE_NAME
            if time.time() - lock_file.stat().st_mtime < _LEFT_AFTER_S:
                continue
            lock = FileLock(lock_file)
            if lock.acquire():
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        ended = _folders.pop(folder, None)
        if ended is not None:
            ended.set()


class Broker:
    """A broker in a thread of this process; a context manager that stops it. Any thread may use it.

    It serves in milliseconds, on a free port. Nothing waits for the disk (`sync="off"`), and groups do not wait for
    members before their first rebalance. Retention and compaction are done by `clock.advance` and by `logs.maintain()`.

    Args:
        path: The log directory; if None a temporary one, which is removed at the end: in `$TMPDIR`, or else in
            `/dev/shm` if that has a GB of room, or else where temporary files are.
        config: Settings of the broker, by their names in Kafka's `server.properties`.

    Attributes:
        path: The log directory.
        clock: The broker's time: `clock.advance(seconds)`.

    Raises:
        OdradekError: The directory or a listener cannot be opened, or a setting is not valid.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, config: Mapping[str, ConfigValue] | None = None
    ) -> None:
        self._process = os.getpid()
        temporary = _temporary_folder() if path is None else None
        self.path = Path(path) if path is not None else (temporary or Path()) / "data"
        try:
            self._running = BrokerThread(
                self.path,
                {**QUICK_CONFIG, **(config or {})},
                sync="off",
                background=False,
                # Also of a broker that nobody stopped.
                ended=partial(_remove, temporary),
            )
        except BaseException:
            # Ctrl-C may have come before there was a thread.
            _remove(temporary)
            raise
        _brokers.add(self)
        self._own_control = BrokerControl(self._running.server, self._running.call)
        self.clock: BrokerClock = self._own_control.clock

    @property
    def _control(self) -> BrokerControl:
        check_is_parent(self._process)
        return self._own_control

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: `127.0.0.1:PORT`; the first of several listeners."""
        return self._running.endpoint().address

    @property
    def logs(self) -> WritableLogDirectory:
        """The log directory, open in this process: `broker.logs["events", 0].read()`."""
        return self._running.broker.logs

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicImage:
        """Create a topic; see `odradek.open(...).create_topic`.

        Raises:
            BrokerError: Kafka does not accept it, or it exists.
        """
        return self._control.create_topic(name, partitions, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            UnknownTopicOrPartitionError: There is none.
        """
        self._control.delete_topic(name)

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group that has no members: `broker.commit_offsets("billing", {("events", 0): 100})`.

        Its consumers then begin there, whatever `auto.offset.reset` says.

        Args:
            group: The group; it is made if there is none.
            offsets: The offsets by topic and partition.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
            BrokerError: The group has members.
        """
        self._control.commit_offsets(group, offsets)

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets.

        Raises:
            BrokerError: There is none, or it has members.
        """
        self._control.delete_group(group)

    def fault(
        self,
        api: str | int,
        *,
        error: str | int | None = None,
        delay_ms: float = 0,
        disconnect: Lost = False,
        drop: Lost = False,
        times: int | None = None,
        when: Callable[[ReceivedRequest], object] | None = None,
    ) -> Fault:
        """Let requests of an API go wrong from now on, until the fault is removed.

        Args:
            api: Kafka's name of the API (`Produce`), or its number.
            error: The request is not done, and answered by this error: Kafka's name (`NOT_LEADER_OR_FOLLOWER`) or
                number. It is where clients look for it, such as at each partition of a Produce.
            delay_ms: The request is done this much later, in the broker's time; requests after it on the same
                connection wait.
            disconnect: The connection is closed instead of an answer; with `"answer"` after the request was done.
            drop: There is no answer to this request nor to later ones on the same connection, as from a broker that
                hangs; with `"answer"` the request is done.
            times: After so many requests the fault removes itself; None: never.
            when: Only requests for which this returns true: `lambda request: request.fields["acks"] == 0`. It is
                called in the broker's thread. A Fetch in a session names only the partitions that changed.

        Returns:
            The fault: `fired` counts, `wait()` waits until it fired, `remove()` ends it, and so does a `with` block.

        Raises:
            OptionError: Kafka has no such API or error, or nothing is to go wrong.
        """
        return self._control.fault(
            api, error=error, delay_ms=delay_ms, disconnect=disconnect, drop=drop, times=times, when=when
        )

    def requests(self, api: str | int | None = None) -> list[ReceivedRequest]:
        """Return the requests that came in, the oldest first: the last 10,000 of them and 32 MB at most.

        Args:
            api: Only those of this API.
        """
        return self._control.requests(api)

    def reset(self) -> None:
        """Remove all faults, and forget the requests that came in. In a child process of `fork` it does nothing."""
        if self._process == os.getpid():
            self._control.reset()

    def control_server(self, host: str = "127.0.0.1", port: int = 0) -> ControlServer:
        """Let programs in other languages do the same by HTTP; the result is a context manager with an `address`.

        Raises:
            OSError: The address cannot be listened on.
        """
        return ControlServer(self._control, host, port)

    def stop(self) -> None:
        """Stop the broker; a temporary log directory is removed. In a child process of `fork` it does nothing."""
        # After a fork the broker and its folder are still the parent's.
        if self._process == os.getpid():
            self._running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop what the program has left running, so that no temporary folder stays."""
    for broker in list(_brokers):
        broker.stop()
    # Of those that nothing refers to any more, and that are about to end.
    for folder, ended in list(_folders.items()):
        if not ended.wait(_ENDED_WITHIN_S):
            _remove(folder)
