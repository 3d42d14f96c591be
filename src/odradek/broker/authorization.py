"""Whether a client may do what it asks for, by the access control lists of the metadata.

    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:admin;User:CN=broker,O=Example
    allow.everyone.if.no.acl.found=false

Without an authorizer everybody may do everything, and nothing here is made. The rules are in
`odradek.coordination.authorization`; what each API asks for is in `odradek.broker.access`.

Source in Kafka: `StandardAuthorizer`, `AuthHelper`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, TypeVar

from odradek.broker.config import BrokerConfig
from odradek.broker.connection import Connection
from odradek.broker.refusals import Refusals, cut
from odradek.broker.restrictions import ALLOW_IF_NONE, SUPER_USERS
from odradek.coordination.authorization.acls import Acl, Operation, ResourceType
from odradek.coordination.authorization.authorizer import Authorizer
from odradek.errors import InvalidConfigError
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import MAX_TOPIC_NAME_LENGTH

_logger = logger(__name__)

_T = TypeVar("_T")

_MOST_LEARNED = 100
"""A connection remembers so many topics, and none whose name is longer than Kafka allows."""


@lru_cache(1024)
def _java_host(peer: str) -> str:
    """Return a client's address as Java writes it, and so the hosts of ACLs."""
    if ":" not in peer:
        return peer
    address, percent, scope = peer.partition("%")
    groups = IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + scope


def _super_users(config: BrokerConfig) -> list[str]:
    users = [user.strip() for user in config.texts.get(SUPER_USERS, "").split(";")]
    for user in users:
        if user and ":" not in user:
            raise InvalidConfigError(SUPER_USERS, f"{user!r} is not of the form User:NAME")
    return [user for user in users if user]


class Authorization:
    """What clients may do. It belongs to the event loop's thread.

    Args:
        logs: The log directory, whose metadata have the access control lists.
        config: The broker's settings.
        now_ms: Returns the time.

    Attributes:
        version: Grows with each change of the access control lists.

    Raises:
        InvalidConfigError: `super.users` names somebody who cannot be.
    """

    def __init__(self, logs: WritableLogDirectory, config: BrokerConfig, now_ms: Callable[[], float]) -> None:
        self._logs = logs
        self._users = _super_users(config)
        self._allow_if_none = config.texts.get(ALLOW_IF_NONE, "").strip().lower() == "true"
        self._denials = Refusals(_logger, "requests", now_ms)
        self.version = 0
        self._changing = asyncio.Lock()
        self._authorizer = self._load()

    def _load(self) -> Authorizer:
        acls = map(Acl.of_record, self._logs.metadata_image.acls.values())
        return Authorizer(acls, self._users, allow_if_none=self._allow_if_none)

    async def change(self, action: Callable[[], _T], run: Callable[[Callable[[], Any]], Awaitable[Any]]) -> _T:
        """Change the access control lists, and apply them.

        Args:
            action: The change, which waits for the disk.
            run: Runs an action in another thread.
        """
        # One after the other: the last one loaded is the newest.
        async with self._changing:
            try:
                done: _T = await run(action)
            finally:
                # Also what a change that failed has left.
                self._authorizer = await run(self._load)
                self.version += 1
        return done

    def operations(self, connection: Connection, kind: ResourceType, name: str) -> int:
        """Return the operations that a client may do with a resource, as bits by their codes."""
        return self._authorizer.operations(connection.principal, _java_host(connection.peer), kind, name)

    def allows(
        self, connection: Connection, operation: Operation, kind: ResourceType, name: str, *, is_told: bool
    ) -> bool:
        """Return whether a client may do something.

        Args:
            connection: The client.
            operation: What it does.
            kind: The type of the resource.
            name: The name of the resource.
            is_told: Whether a refusal is logged.
        """
        if self.operations(connection, kind, name) >> operation & 1:
            return True
        if is_told:
            principal, shown = connection.principal, cut(name)
            line = "%s may not %s %s %s (from %s)"
            what = (operation, kind, shown)
            self._denials.tell(principal, what, line, principal, operation.name, kind.name, shown, connection.peer)
        return False

    def may_read(self, connection: Connection, topic: str) -> bool:
        """Return whether a client may read a topic; each Fetch asks, so the connection remembers what is allowed."""
        version, readable, _ = connection.allowed
        return (version == self.version and topic in readable) or self._learn(connection, Operation.READ, topic)

    def may_write(self, connection: Connection, topic: str) -> bool:
        """Return whether a client may write to a topic; as for `may_read`, but no refusal is logged."""
        version, _, writable = connection.allowed
        return (version == self.version and topic in writable) or self._learn(connection, Operation.WRITE, topic)

    def _learn(self, connection: Connection, operation: Operation, topic: str) -> bool:
        is_read = operation is Operation.READ
        is_allowed = self.allows(connection, operation, ResourceType.TOPIC, topic, is_told=is_read)
        if is_allowed and len(topic) <= MAX_TOPIC_NAME_LENGTH:
            version, readable, writable = connection.allowed
            if version != self.version or max(len(readable), len(writable)) >= _MOST_LEARNED:
                readable, writable = set(), set()
                connection.allowed = (self.version, readable, writable)
            (readable if is_read else writable).add(topic)
        return is_allowed

    def allows_with_any(self, connection: Connection, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a client may do something with any resource of a type, whichever that is."""
        return self._authorizer.may_with_any(connection.principal, _java_host(connection.peer), operation, kind)
