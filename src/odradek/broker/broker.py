"""What the broker knows and does, apart from the network: its log directory, partitions, groups and transactions.

Source in Kafka: `BrokerServer`, `KafkaApis`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig, Listener
from odradek.broker.configs.resource_configs import ResourceConfigs
from odradek.broker.metrics import Metrics
from odradek.broker.topics import Topics
from odradek.broker.workers import Workers
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from odradek.broker.fetch_sessions import FetchSessions
    from odradek.broker.groups.coordinator import Groups
    from odradek.broker.partitions import Partitions
    from odradek.broker.transactions.coordinator import TransactionCoordinator

_logger = logger(__name__)

_T = TypeVar("_T")

_THREADS = 4

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 0),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}
"""The levels of Kafka's features that the broker can work at."""


class Broker:
    """A broker of one node, without its sockets. It belongs to the event loop's thread.

    What requests need beyond the metadata is imported and made at its first use: a broker starts without it.

    Args:
        logs: The log directory, which the caller closes.
        config: The settings.
        clock: The time.

    Attributes:
        logs: The log directory.
        config: The settings.
        clock: The time.
        metrics: What is counted.
        executor: Runs what takes long.
        endpoints: Where clients reach the broker, by the name of the listener.
        configs: The settings of topics, of the broker and of groups, as clients see and change them.
        topics: Creates topics.
    """

    def __init__(self, logs: WritableLogDirectory, config: BrokerConfig, clock: Clock) -> None:
        self.logs = logs
        self.config = config
        self.clock = clock
        self.metrics = Metrics()
        self.executor = Workers(_THREADS)
        self.endpoints: dict[str, Listener] = {}
        self._disk_failures: set[str] = set()

        self.configs = ResourceConfigs(logs, config)
        self.topics = Topics(logs, config, self.executor)
        self.features = SUPPORTED_FEATURES
        self._coordinators: list[Groups | TransactionCoordinator] = []

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions that are in use."""
        from odradek.broker.partitions import Partitions

        return Partitions(self.logs, self.executor)

    @property
    def is_opening_logs(self) -> bool:
        """Whether a request waits for logs that are opened one by one."""
        # No request has used a partition before `partitions` is made.
        return "partitions" in vars(self) and self.partitions.is_opening

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The sessions of consumers that fetch incrementally."""
        from odradek.broker.fetch_sessions import FetchSessions

        return FetchSessions(self.config["max.incremental.fetch.session.cache.slots"])

    @cached_property
    def groups(self) -> Groups:
        """The group coordinator."""
        from odradek.broker.groups.coordinator import Groups

        groups = Groups(self)
        self._coordinators.append(groups)
        return groups

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from odradek.broker.transactions.coordinator import TransactionCoordinator

        transactions = TransactionCoordinator(self)
        self._coordinators.append(transactions)
        return transactions

    def endpoint(self, listener: str) -> Listener:
        """Return where clients of a listener reach the broker."""
        return self.endpoints[listener]

    def start(self) -> None:
        """Begin to work, on the event loop that is running."""
        topics = self.logs.metadata_image.topics
        if CONSUMER_OFFSETS_TOPIC in topics:
            self.groups.load()
        if TRANSACTION_STATE_TOPIC in topics:
            self.transactions.load()

    def disk_failed(self, text: str) -> None:
        """Log what a client was told of a disk that failed, once."""
        if text not in self._disk_failures:
            self._disk_failures.add(text)
            _logger.error("%s", text)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Let go of what belongs to topics that were deleted."""
        self.partitions.drop_deleted()
        self.groups.topic_deleted(names)

    @property
    def node_id(self) -> int:
        """`node.id`."""
        return self.logs.identity.node_id

    @property
    def cluster_id(self) -> str | None:
        """`cluster.id`."""
        return self.logs.identity.cluster_id

    async def run(self, action: Callable[[], _T]) -> _T:
        """Do something that may take long in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, action)

    def close(self) -> None:
        """Stop, and wait for what runs in threads."""
        for coordinator in self._coordinators:
            coordinator.close()
        self.executor.shutdown(wait=True)
