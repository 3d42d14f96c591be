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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek import system
from odradek.broker.running import BrokerThread, check_is_parent
from odradek.coordination.authorization.acls import Acl
from odradek.errors import OptionError
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.file_lock import FileLock
from odradek.storage.metadata.metadata_image import TopicImage
from odradek.testing.broker_control import BrokerClock, BrokerControl
from odradek.testing.control_server import ControlServer
from odradek.testing.request_tap import Lost, ReceivedRequest, RequestFault
from odradek.testing.security import ClientName, Login, broker_settings

QUICK_CONFIG: Mapping[str, ConfigValue] = {
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
    memory = None if "TMPDIR" in os.environ else system.memory_folder()
    has_room = memory is not None and shutil.disk_usage(memory).free >= _MEMORY_BYTES
    parent = memory if memory is not None and has_room else Path(tempfile.gettempdir())
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
        listeners: The security protocols of its listeners, each on a free port of 127.0.0.1: `["SASL_SSL",
            "PLAINTEXT"]`; or whole addresses, `SASL_SSL://0.0.0.0:9093`. By default `SASL_SSL` with users, or else
            `PLAINTEXT`. What TLS needs is made.
        users: The users' passwords by name, for PLAIN and SCRAM.
        acls: Access control lists, made by `allow` and `deny`; clients may then do only what they allow.
        quotas: Quotas of clients, as for `alter_quotas`.

    Attributes:
        path: The log directory.
        clock: The broker's time: `clock.advance(seconds)`.

    Raises:
        OdradekError: The directory or a listener cannot be opened, or a setting is not valid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        listeners: Sequence[str] | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        quotas: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> None:
        self._process = os.getpid()
        settings = broker_settings(config or {}, listeners, users, has_acls=acls is not None)
        self._users: dict[str, str] = dict(users or {})
        temporary = _temporary_folder() if path is None else None
        self.path = Path(path) if path is not None else (temporary or Path()) / "data"
        try:
            self._running = BrokerThread(
                self.path,
                {**QUICK_CONFIG, **settings},
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
        try:
            if users:
                self._own_control.alter_users(users)
            if acls is not None:
                self.create_acls(acls)
            if quotas:
                self.alter_quotas(quotas)
        except BaseException:
            self.stop()
            raise

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

    def produce(
        self, topic: str, *values: bytes | Record | None, key: bytes | None = None, partition: int | None = None
    ) -> None:
        """Append records, and wake the consumers that wait for them: `broker.produce("events", b"a", b"b", key=b"k")`.

        Args:
            topic: The topic.
            values: Their values, or whole records: `odradek.Record(b"key", b"value", [("header", b"h")])`.
            key: The key of those that are values.
            partition: Their partition; None takes that of Kafka's own producer, and 0 without a key.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            BrokerError: There is no such partition, or the topic does not take a record.
        """
        self._control.produce(topic, values, key, partition)

    def records(self, topic: str, *, isolation: Isolation = "read_uncommitted") -> list[Record]:
        """Return the records of a topic: those of partition 0, then those of partition 1, and so on.

        Args:
            topic: The topic.
            isolation: `read_committed` leaves out those of aborted and open transactions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        logs = self.logs
        return [record for name in logs.topic_partitions(topic) for record in logs[name].read(isolation=isolation)]

    def client_config(
        self,
        user: str | None = None,
        client: ClientName = "confluent-kafka",
        *,
        listener: str | None = None,
        mechanism: str = "SCRAM-SHA-512",
    ) -> dict[str, Any]:
        """Return what a client needs to connect: `Producer(broker.client_config("alice"))`.

        Args:
            user: As whom it logs in; None for a listener without a login.
            client: Whose names the settings have: those of `confluent-kafka`, `kafka-python`, `aiokafka`, or `java`,
                which `odradek` takes, too.
            listener: The listener's name; by default the first one that wants a login, or that wants none.
            mechanism: How it logs in: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.

        Raises:
            OptionError: There is no such user, listener or mechanism, or no such client is known.
        """
        config = self._running.broker.config
        names = [one.name for one in config["listeners"]]
        fitting = [name for name in names if config.protocol(name).startswith("SASL") == (user is not None)]
        name = listener or next(iter(fitting), None)
        if name is None or name not in fitting:
            raise OptionError(f"{name or 'no listener'} takes a client {'with' if user else 'without'} a login")
        if user is not None and user not in self._users:
            raise OptionError(f"the broker has no user {user!r}")
        enabled = config.of_listener(name, "sasl.enabled.mechanisms")
        if user is not None and mechanism not in enabled:
            raise OptionError(f"{name} takes {', '.join(enabled)}, not {mechanism}")
        login = None if user is None else (user, self._users[user])
        endpoint = self._running.endpoint(name)
        return Login(endpoint.address, config.protocol(name), mechanism, login).settings(client)

    def alter_users(self, users: Mapping[str, str | None]) -> None:
        """Give users passwords for SCRAM, also new ones: `broker.alter_users({"alice": "new", "bob": None})`.

        Who has logged in stays. The users of PLAIN are those of the start.

        Args:
            users: The passwords by name; None to remove a user.

        Raises:
            OptionError: A name or a password is not for SCRAM.
        """
        self._control.alter_users(users)
        for name, password in users.items():
            self._users.pop(name, None)
            if password is not None:
                self._users[name] = password

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create access control lists: `broker.create_acls([allow("alice", "WRITE", topic="events")])`.

        Raises:
            OptionError: The broker was started without `acls`.
        """
        self._control.create_acls(acls)

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """Delete access control lists; those that do not exist are left out.

        Raises:
            OptionError: The broker was started without `acls`.
        """
        self._control.delete_acls(acls)

    def alter_quotas(self, quotas: Mapping[str, Mapping[str, float | None]]) -> None:
        """Set quotas of clients: `broker.alter_quotas({"clients/app": {"producer_byte_rate": 1_000_000}})`.

        Args:
            quotas: The values of Kafka's quotas, None to remove one, by whom they are for: `users/alice`,
                `clients/app`, `users/alice/clients/app`, or `ips/127.0.0.1`; each name may be `<default>`.

        Raises:
            OptionError: They are for something else.
            BrokerError: A name, a key or a value is not valid; the others are set.
        """
        self._control.alter_quotas(quotas)

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
    ) -> RequestFault:
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
            times: After this many requests the fault removes itself; None: never.
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
        """Let programs in other languages do the same by HTTP: a context manager with an `address` and a `token`.

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
