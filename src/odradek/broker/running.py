"""Runs a broker on the event loop of this thread, or in a thread of its own.

    async with serving(path, config):  ...          on the loop that is running
    with BrokerThread(path, config) as running: ...  for programs that have no loop

Source in Kafka: `KafkaRaftServer`, `BrokerServer`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from odradek.broker.broker import Broker
from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig, Listener, plain_name, restricts_from_start
from odradek.broker.restrictions import NOT_ENFORCED
from odradek.broker.server import Server
from odradek.errors import InvalidConfigError, LogError
from odradek.printable import logger
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.opening import open_log_directory, withhold
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.recovery_report import RecoveryAction, RecoveryKind
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.names import CLUSTER_METADATA_TOPIC

_logger = logger(__name__)

_T = TypeVar("_T")


@asynccontextmanager
async def serving(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    config: Mapping[str, ConfigValue] | None = None,
    *,
    adopt: bool = False,
    strict: bool = False,
    unsecured_tokens: bool = False,
    clock: Clock | None = None,
    sync: Literal["on", "off"] = "on",
    background: bool = True,
    sockets: Mapping[str, socket.socket] | None = None,
) -> AsyncIterator[Server]:
    """Open a log directory and serve it on the running event loop.

    At the end, running requests are finished and answered; requests that wait for records or for other clients are
    dropped.

    Args:
        path: The log directory, or several as in Kafka's `log.dirs`.
        config: The broker's settings.
        adopt: Whether to make a log directory of a folder of partitions without metadata.
        strict: Whether a start that would lose records is refused.
        unsecured_tokens: Whether listeners may take tokens of OAUTHBEARER without a signature.
        clock: The time.
        sync: `off` for tests: nothing waits for the disk.
        background: Whether retention and compaction run in threads.
        sockets: Sockets that listen already, by the name of the listener.

    Raises:
        OdradekError: The directory or a listener cannot be opened, or a setting is not valid.
    """
    clock = clock or Clock()
    clock.bind(asyncio.get_running_loop())
    settings = BrokerConfig(config, unsecured_tokens=unsecured_tokens)
    unused = settings.without_effect()
    if unused:
        _logger.info("these settings have no effect on a broker of one node: %s", ", ".join(unused))
    _give_node_id(path, settings)
    logs = open_log_directory(
        path,
        config=settings.of_log,
        background=background,
        adopt=adopt,
        strict=strict,
        sync=sync,
        clock=clock.now_ms,
    )
    withhold(logs)
    _tell_of_recovery(logs)
    try:
        _check_node_id(settings, logs.identity.node_id)
        _check_kept_restrictions(settings, logs.metadata_image, logs.identity.node_id)
        broker = Broker(logs, settings, clock)
        try:
            server = Server(broker)
            try:
                broker.start()
                server.listen(sockets)
                yield server
                await server.drain()
            finally:
                server.close()
                # One turn of the loop, in which the cancelled requests end.
                await asyncio.sleep(0)
        finally:
            broker.close()
    finally:
        clock.close()
        logs.close()


def _give_node_id(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], settings: BrokerConfig) -> None:
    """Format a folder that is missing or empty for the node that the settings name."""
    first = Path(path if isinstance(path, str | os.PathLike) else path[0])
    if settings["node.id"] is not None and (not first.exists() or not any(first.iterdir())):
        format_log_directory(first, new_meta_properties(node_id=settings["node.id"]))


def _check_node_id(settings: BrokerConfig, found: int) -> None:
    wanted = settings["node.id"]
    if wanted is not None and wanted != found:
        raise InvalidConfigError("node.id", f"is {wanted}, but the log directory belongs to node {found}")


def _check_kept_restrictions(settings: BrokerConfig, image: MetadataImage, node_id: int) -> None:
    """Check that what Apache Kafka kept in the metadata to restrict clients has an effect here, or is given."""
    for name, text in sorted(image.broker_config(node_id).items()):
        if name in settings.texts or not settings.is_of_this_node(name):
            continue
        if restricts_from_start(name) or text not in NOT_ENFORCED.get(plain_name(name), {text}):
            reason = "is in the metadata and restricts clients at Apache Kafka; here it counts only if it is given at"
            raise InvalidConfigError(name, f"{reason} the start: give it there as you want it")


def check_is_parent(process: int) -> None:
    """Check that this is the process that started a broker.

    Raises:
        LogError: It is a child process of that one, by `fork`.
    """
    if process != os.getpid():
        raise LogError("the broker runs in the parent of this process: of a child, only clients can use it")


class BrokerThread:
    """A broker in a thread of its own; a context manager that stops it.

    Any thread may call anything. A child process that `fork` makes has no broker: it must not use this.

    Args:
        path: The log directory, or several as in Kafka's `log.dirs`.
        config: The broker's settings.
        clock: The time.
        sync: `off` for tests: nothing waits for the disk.
        background: Whether retention and compaction run in threads.
        unsecured_tokens: Whether listeners may take tokens of OAUTHBEARER without a signature.
        ended: Called in the thread when the broker has ended.

    Raises:
        OdradekError: The directory or a listener cannot be opened, or a setting is not valid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        config: Mapping[str, ConfigValue] | None = None,
        *,
        clock: Clock | None = None,
        sync: Literal["on", "off"] = "on",
        background: bool = True,
        unsecured_tokens: bool = False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._shared = _Shared()
        shared = self._shared

        async def run() -> None:
            try:
                async with serving(
                    path, config, unsecured_tokens=unsecured_tokens, clock=clock, sync=sync, background=background
                ) as server:
                    shared.begin(server)
                    await shared.stop.wait()
            finally:
                shared.end()

        def main() -> None:
            try:
                asyncio.run(run())
            except BaseException as error:
                shared.fail(error)
            finally:
                ended()

        self._thread = threading.Thread(target=main, name="odradek-broker", daemon=True)
        self._thread.start()
        try:
            self.server = shared.started.result()
        except BaseException:
            # It could not start, or Ctrl-C came before it had.
            self.stop()
            raise

    @property
    def broker(self) -> Broker:
        """The broker; it belongs to its thread."""
        return self.server.broker

    def endpoint(self, listener: str | None = None) -> Listener:
        """Return where clients of a listener connect to: of the first one if it is not named."""
        return self.broker.endpoints[listener or self.broker.config["listeners"][0].name]

    def call(self, action: Callable[[], _T]) -> _T:
        """Do something in the broker's thread, and return its result.

        Raises:
            LogError: The broker has stopped.
        """
        if threading.current_thread() is self._thread:
            return action()
        done: Future[_T] = Future()

        def act() -> None:
            if done.done():
                return
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._shared.submit(act, done)
        return done.result()

    def stop(self) -> None:
        """Stop the broker, and close the log directory; it may have stopped already.

        Raises:
            OdradekError: The log directory could not be closed cleanly.
        """
        self._shared.ask_to_stop()
        if threading.current_thread() is self._thread:
            return
        self._thread.join()
        error, self._shared.error = self._shared.error, None
        if error is not None:
            raise error

    def __del__(self) -> None:
        if hasattr(self, "_thread") and self._thread.is_alive() and self._shared.process == os.getpid():
            warnings.warn("a broker was never stopped", ResourceWarning, source=self, stacklevel=2)
            self._shared.ask_to_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Shared:
    """The state that a broker's thread shares with the others.

    Attributes:
        started: The server, once it listens.
        stop: Set when the broker is to stop.
        error: The error that ended the thread after the broker had started.
        process: The process that has the thread.
    """

    def __init__(self) -> None:
        self.started: Future[Server] = Future()
        self.stop = asyncio.Event()
        self.error: BaseException | None = None
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = False
        self._waiting: set[Future[Any]] = set()

    def begin(self, server: Server) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._is_asked:
                self.stop.set()
        self.started.set_result(server)

    def end(self) -> None:
        """The loop is about to end: nothing that is given to it from now on is done."""
        with self._lock:
            self._loop = None
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_exception(LogError("the broker has stopped"))

    def fail(self, error: BaseException) -> None:
        if self.started.done():
            self.error = error
            _logger.error("the broker has stopped", exc_info=error)
        else:
            self.started.set_exception(error)

    def submit(self, act: Callable[[], None], done: Future[Any]) -> None:
        # Before the lock: a thread of the parent may have held it.
        check_is_parent(self.process)
        with self._lock:
            if self._loop is None:
                raise LogError("the broker has stopped")
            self._waiting.add(done)
            self._loop.call_soon_threadsafe(act)
        done.add_done_callback(self._forget)

    def _forget(self, done: Future[Any]) -> None:
        with self._lock:
            self._waiting.discard(done)

    def ask_to_stop(self) -> None:
        if self.process != os.getpid():
            return
        with self._lock:
            self._is_asked = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.stop.set)


def _tell_of_recovery(logs: WritableLogDirectory) -> None:
    """Log what the start did to the folder, and what the opening of logs does from now on."""

    def tell(action: RecoveryAction) -> None:
        if action.loses or action.kind in {RecoveryKind.SPLIT, RecoveryKind.DAMAGED}:
            _logger.warning("%s", action)
        else:
            _logger.debug("%s", action)

    for action in logs.report.actions:
        # What was cut of the metadata log has been told.
        if not action.path.parent.name.startswith(CLUSTER_METADATA_TOPIC):
            tell(action)
    logs.report.told = tell
    for path in logs.strays:
        _logger.warning("%s: it is not served: the metadata do not have its topic, or with another id", path)
