"""What the broker knows and does, apart from the network: its log directory, partitions, groups and transactions.

Source in Kafka: `BrokerServer`, `KafkaApis`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig, Listener
from odradek.broker.configs.resource_configs import ResourceConfigs
from odradek.broker.metrics import Metrics
from odradek.broker.quotas.addresses import host_addresses
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.broker.quotas.throttling import Throttling
from odradek.broker.topics import Topics
from odradek.broker.turns import Turns
from odradek.broker.workers import Workers
from odradek.errors import FormatError
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from odradek.broker.authorization import Authorization
    from odradek.broker.configs.group_settings import GroupSettings
    from odradek.broker.connection import Connection
    from odradek.broker.delegation_tokens import DelegationTokens
    from odradek.broker.fetch_sessions import FetchSessions
    from odradek.broker.groups.coordinator import Groups
    from odradek.broker.partitions import Partitions
    from odradek.broker.shares.deliveries import ShareDeliveries
    from odradek.broker.shares.state import ShareStates
    from odradek.broker.state_topic import StateTopic
    from odradek.broker.transactions.coordinator import TransactionCoordinator
    from odradek.broker.transactions.markers import Markers
    from odradek.broker.transactions.verification import Verification

_logger = logger(__name__)

_T = TypeVar("_T")

_THREADS = 4
_SYNC_THREADS = 16
"""Each waits for the disk for one partition, and must keep nothing else waiting."""

_FORGOTTEN_MS = 60_000
"""Clients try again as long as a disk fails; if none has for this long, the disk works again."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 33),
    "share.version": (0, 1),
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
        executor: Runs tasks that take long.
        turns: Divides work that grows with its request into turns of the event loop.
        syncs: Runs the syncs of appends.
        endpoints: Where clients reach the broker, by the name of the listener.
        damage: The last damage that a fetch or a coordinator met, by the folder of its log.
        configs: The settings of topics, of the broker and of groups, as clients see and change them.
        topics: Creates topics.
        quotas: The quotas of clients.
        throttling: Counts requests against the quotas.
        authorization: What clients may do; None if they may do everything.
        tokens: The delegation tokens; None if there are none.

    Raises:
        InvalidConfigError: A setting is not valid.
        FormatError: The metadata have a record that is unknown.
    """

    def __init__(self, logs: WritableLogDirectory, config: BrokerConfig, clock: Clock) -> None:
        self.logs = logs
        self.config = config
        self.clock = clock
        self.metrics = Metrics()
        self.executor = Workers(_THREADS)
        self.turns = Turns()
        self.syncs = Workers(_SYNC_THREADS)
        self.endpoints: dict[str, Listener] = {}
        self.damage: dict[Path, FormatError] = {}
        # When each was met last.
        self._disk_failures: dict[str, float] = {}

        logs.metadata_image.check_known()
        self.authorization: Authorization | None = None
        if config.has_authorizer:
            from odradek.broker.authorization import Authorization

            self.authorization = Authorization(logs, config, clock.elapsed_ms)
        self.tokens: DelegationTokens | None = None
        if config.token_secret_key:
            from odradek.broker.delegation_tokens import DelegationTokens

            self.tokens = DelegationTokens(logs, config, clock, self.run)
        self.configs = ResourceConfigs(logs, config)
        self.topics = Topics(logs, config, self.executor)
        self.quotas = ClientQuotas(config, clock)
        self.throttling = Throttling(self.quotas, clock)
        self.features = SUPPORTED_FEATURES
        self._coordinators: list[Groups | TransactionCoordinator | ShareStates | ShareDeliveries] = []

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions that are in use."""
        from odradek.broker.partitions import Partitions

        return Partitions(self.logs, self.executor, self.syncs)

    @property
    def is_opening_logs(self) -> bool:
        """Whether a request waits for logs that are opened one by one."""
        # No request has used a partition before `partitions` is made.
        return "partitions" in vars(self) and self.partitions.is_opening

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The sessions of consumers that fetch incrementally."""
        from odradek.broker.fetch_sessions import FetchSessions

        return FetchSessions(self.config["max.incremental.fetch.session.cache.slots"], self.clock.elapsed_ms)

    def _state_topic(self, name: str) -> StateTopic:
        from odradek.broker.state_topic import StateTopic

        return StateTopic(name, self.logs, self.topics, self.partitions, self.run, self.disk_failed, self.found_damage)

    @cached_property
    def markers(self) -> Markers:
        """Writes the ends of transactions."""
        from odradek.broker.transactions.markers import Markers

        return Markers(self.partitions, self.clock, lambda *ended: self.groups.transaction_ended(*ended))

    @cached_property
    def group_settings(self) -> GroupSettings:
        """The settings of groups."""
        from odradek.broker.configs.group_settings import GroupSettings

        return GroupSettings(lambda: self.logs.metadata_image, self.config)

    @cached_property
    def groups(self) -> Groups:
        """The group coordinator."""
        from odradek.broker.groups.coordinator import Groups

        topic = self._state_topic(CONSUMER_OFFSETS_TOPIC)
        groups = Groups(topic, self.clock, self.config, self.group_settings, self.turns, self.share_state)
        self._coordinators.append(groups)
        return groups

    @cached_property
    def share_state(self) -> ShareStates:
        """The share coordinator."""
        from odradek.broker.shares.state import ShareStates

        states = ShareStates(self._state_topic(SHARE_GROUP_STATE_TOPIC), self.clock, self.config, self.turns)
        self._coordinators.append(states)
        return states

    def in_flight(self) -> Iterable[tuple[str, str, int]]:
        """Return group, topic and the number of records in flight of each partition. Any thread may ask."""
        # Only a request makes the deliveries.
        return self.shares.in_flight() if "shares" in vars(self) else ()

    @cached_property
    def shares(self) -> ShareDeliveries:
        """What share groups are delivering."""
        from odradek.broker.shares.deliveries import ShareDeliveries

        shares = ShareDeliveries(
            self.logs,
            self.partitions,
            self.share_state,
            self.group_settings,
            self.clock,
            self.turns,
            self.run,
            self.found_damage,
            self.disk_failed,
            self.metrics.lock_timed_out,
            self.config["group.share.max.share.sessions"],
        )
        self._coordinators.append(shares)
        return shares

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from odradek.broker.transactions.coordinator import TransactionCoordinator
        from odradek.broker.transactions.producer_ids import ProducerIds

        topic = self._state_topic(TRANSACTION_STATE_TOPIC)
        producer_ids = ProducerIds(lambda count: self.run(lambda: self.logs.take_producer_ids(count)))
        transactions = TransactionCoordinator(topic, self.markers, producer_ids, self.clock, self.config)
        self._coordinators.append(transactions)
        return transactions

    @cached_property
    def verification(self) -> Verification:
        """Asks whether batches belong to their transactions."""
        from odradek.broker.transactions.verification import Verification

        return Verification(self.transactions, self.clock, self.config)

    def endpoint(self, listener: str) -> Listener:
        """Return where clients of a listener reach the broker."""
        return self.endpoints[listener]

    def start(self) -> None:
        """Begin to work, on the event loop that is running."""
        image = self.logs.metadata_image
        if image.client_quotas:
            self.quotas.load(image, host_addresses(image.client_quotas))
        if self.tokens is not None:
            self.tokens.start()
        topics = image.topics
        if CONSUMER_OFFSETS_TOPIC in topics:
            self.groups.load()
        if TRANSACTION_STATE_TOPIC in topics:
            self.transactions.load()

    def disk_failed(self, text: str) -> None:
        """Log that a disk failed: once, and again only after a minute without such an error."""
        now_ms = self.clock.elapsed_ms()
        if now_ms - self._disk_failures.get(text, -inf) > _FORGOTTEN_MS:
            self._disk_failures = {
                known: met_ms for known, met_ms in self._disk_failures.items() if now_ms - met_ms <= _FORGOTTEN_MS
            }
            _logger.error("%s", text)
        self._disk_failures[text] = now_ms

    def found_damage(self, damage: FormatError) -> None:
        """Note damage that a fetch or a coordinator met in a log, and write it to the program's log once."""
        if damage.path is not None:
            self.damage[Path(damage.path).parent] = damage
        self.disk_failed(f"{damage}; run `odradek verify` on the folder")

    async def topics_deleted(self, deleted: Mapping[str, UUID | None]) -> None:
        """Forget the partitions and offsets of topics that were deleted, whose ids are given by their names."""
        self.partitions.drop_deleted()
        self.topics.deleted(deleted)
        await self.turns.finish(self.groups.topics_deleted(deleted))
        # Neither is made for this: what is not in memory is looked at when it is loaded.
        if "shares" in vars(self):
            self.shares.topics_deleted()
        if "share_state" in vars(self):
            await self.share_state.topics_deleted(deleted)

    def disconnected(self, connection: Connection) -> None:
        """End what ends with a client's connection."""
        self.throttling.closed(connection)
        if "shares" in vars(self):
            self.shares.disconnected(connection)

    @property
    def node_id(self) -> int:
        """`node.id`."""
        return self.logs.identity.node_id

    @property
    def cluster_id(self) -> str | None:
        """`cluster.id`."""
        return self.logs.identity.cluster_id

    async def run(self, action: Callable[[], _T]) -> _T:
        """Run an action that may take long in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, action)

    def close(self) -> None:
        """Stop, and wait for what runs in threads."""
        for coordinator in self._coordinators:
            coordinator.close()
        self.executor.shutdown(wait=True)
        self.syncs.shutdown(wait=True)
