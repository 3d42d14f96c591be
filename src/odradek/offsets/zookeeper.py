"""Positions in ZooKeeper, where Kafka's consumers kept theirs before Kafka 0.9 and many tools still look.

    /consumers/GROUP/offsets/TOPIC/PARTITION      20        the next offset, plain decimal, as those consumers wrote it
    /consumers/GROUP/odradek                      {"version": "5f0c...", "positions": {"TOPIC": {"PARTITION": {...}}}}

The second node is Odradek's: the version of the group, and what is known of positions beside their offsets. A commit is
one multi-operation transaction: it sets that node, if nobody else has set it since, and the offsets, all or nothing.
Offsets that an old consumer left are loaded without a version. An offset that another tool sets takes effect at the
next load; what was known beside the old one is dropped.

The address is `zookeeper://[user:password@]host:port[,host:port]/group`, with a chroot before the group if there is
one; user and password are those of ZooKeeper's `digest` scheme. A transaction must fit into `jute.maxbuffer` (1 MB),
which is enough for some thousands of partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.retry import KazooRetry
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from odradek.errors import CommitConflictError, OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.known_beside import Known, format_known, parse_known, positions_with
from odradek.offsets.store import (
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    decimal_offset,
    kept_partition,
    new_version,
    partition_of,
)
from odradek.storage.names import TopicPartition

T = TypeVar("T")

_SESSION_TIMEOUT_S = 10.0
_RETRY_S = 0.1
_TRY_AGAIN = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError)
_RACED = (BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency)


class ZooKeeperOffsetStore(OffsetStore):
    """The positions of one group under `/consumers/GROUP`.

    Args:
        address: Where ZooKeeper is; only its user, one of the `digest` scheme, may then change the nodes that the store
            creates, and all may read them.
        text: The address of the store, without secrets.
        offsets: The node below which the topics are.
        state: The node of the version.
    """

    def __init__(self, address: StoreAddress, text: str, offsets: str, state: str) -> None:
        try:
            collect_hosts(address.hosts)
        except ValueError as error:
            raise OffsetStoreError(f"{address.text}: {error}") from error
        for part in filter(None, state.split("/")):
            node_name(text, part)
        self.address = text
        self._hosts = address.hosts
        self._credentials = None if address.user is None else (address.user, address.password or "")
        self._timeout_s = address.take_timeout_ms() / 1000
        address.refuse_the_rest()
        self._offsets = offsets
        self._state = state
        self._client: Any = None

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `zookeeper://[user:password@]host:port[,host:port][/chroot]/group`."""
        chroot, _, group = address.path.rpartition("/")
        if not address.hosts or not group:
            raise OffsetStoreError(f"{address.text}: ZooKeeper's address is zookeeper://host:port/group")
        text = f"zookeeper://{address.hosts}{chroot}/{group}"
        root = f"{chroot}/consumers/{node_name(text, group)}"
        return cls(address, text, f"{root}/offsets", f"{root}/odradek")

    def load(self) -> Positions:
        """Return the positions under the group, all of the same commit."""
        return self._within_timeout(self._load)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Set the offsets and the version in one transaction, if the version is still the expected one."""
        version = new_version()
        self._within_timeout(lambda deadline: self._commit(deadline, expected, version, positions))
        return expected.merged(positions, version)

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Delete the offsets and set the version in one transaction, if the version is still the expected one."""
        version, gone = new_version(), dict.fromkeys(partitions)
        self._within_timeout(lambda deadline: self._commit(deadline, expected, version, gone))
        return expected.without(partitions, version)

    def close(self) -> None:
        """End the session."""
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def _connected(self, deadline: float) -> Any:
        if self._client is None:
            client = KazooClient(
                self._hosts,
                # A server that is starting may accept a connection and then say nothing: leave time for another one.
                timeout=min(_SESSION_TIMEOUT_S, self._timeout_s / 2),
                connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_S, max_delay=1.0),
                auth_data=[("digest", ":".join(self._credentials))] if self._credentials else None,
                default_acl=self._acl(),
            )
            try:
                client.start(timeout=_left(deadline))
            except KazooTimeoutError:
                client.close()
                raise
            self._client = client
        return self._client

    def _acl(self) -> list[Any] | None:
        if self._credentials is None:
            return None
        return [make_digest_acl(*self._credentials, all=True), *READ_ACL_UNSAFE]

    def _within_timeout(self, attempt: Callable[[float], T | None]) -> T:
        """Repeat an attempt until it returns something other than None, or the time is over."""
        deadline = time.monotonic() + self._timeout_s
        reason: object = "others kept on committing"
        while time.monotonic() < deadline:
            try:
                result = attempt(deadline)
            except _TRY_AGAIN as error:
                reason = f"the connection was lost ({type(error).__name__})"
                time.sleep(min(_RETRY_S, _left(deadline)))
            except KazooTimeoutError:
                reason = "no answer"
                break
            except KazooException as error:
                raise OffsetStoreError(f"{self.address}: {type(error).__name__} {error}".rstrip()) from error
            else:
                if result is not None:
                    return result
        raise OffsetStoreUnavailableError(f"{self.address}: {reason}, after {self._timeout_s:g} s")

    def _load(self, deadline: float) -> Positions | None:
        client = self._connected(deadline)
        client.sync_async(self._state).get(timeout=_left(deadline))  # a follower may lag behind what was committed
        before = self._read_state(deadline)
        offsets = self._read_offsets(deadline)
        after = self._read_state(deadline)
        if before != after:
            return None
        version, metadata, _ = self._parse_state(before)
        decimals = {name: decimal_offset(data) for name, data in offsets.items()}
        return positions_with(metadata, decimals, self.address, version)

    def _folders(self, deadline: float) -> dict[str, str]:
        """Return the nodes below which the partitions are, with their topics."""
        topics = _children(self._client, [self._offsets], deadline).get(self._offsets, [])
        return {f"{self._offsets}/{topic}": topic for topic in topics}

    def _read_offsets(self, deadline: float) -> dict[TopicPartition, bytes]:
        folders = self._folders(deadline)
        found = {
            kept_partition(folders[folder], name, self.address)
            for folder, names in _children(self._client, folders, deadline).items()
            for name in names
            if partition_of(name) is not None
        }
        reads = {name: self._client.get_async(self._path(name)) for name in found}
        offsets = {name: got(read, deadline) for name, read in reads.items()}
        return {name: node[0] for name, node in offsets.items() if node is not None}

    def _commit(
        self,
        deadline: float,
        expected: Positions,
        version: str,
        positions: Mapping[TopicPartition, Position | None],
    ) -> bool | None:
        """Set positions, and delete those that are None.

        Returns:
            True if it is done, None if it must be tried again because nodes came or went meanwhile.
        """
        client = self._connected(deadline)
        client.sync_async(self._state).get(timeout=_left(deadline))
        state = self._read_state(deadline)
        found, metadata, state_version = self._parse_state(state)
        if found == version:  # the answer to an earlier attempt was lost
            return True
        if found != expected.version:
            raise CommitConflictError(self.address, expected.version, found)
        client.ensure_path_async(self._state.rpartition("/")[0]).get(timeout=_left(deadline))
        transaction = client.transaction()
        content = format_known(version, metadata, positions)
        if state is None:
            transaction.create(self._state, content)
        else:
            transaction.set_data(self._state, content, version=state_version)
        self._change(transaction, positions, deadline)
        results = transaction.commit_async().get(timeout=_left(deadline))
        errors = [result for result in results if isinstance(result, Exception)]
        for error in errors:
            if not isinstance(error, _RACED):
                raise error
        return None if errors else True

    def _change(self, transaction: Any, positions: Mapping[TopicPartition, Position | None], deadline: float) -> None:
        """Let a transaction set positions, and delete those that are None."""
        paths = {self._path(name): position for name, position in positions.items()}
        exists = {path: self._client.exists_async(path) for path in paths}
        missing = {path for path, answer in exists.items() if answer.get(timeout=_left(deadline)) is None}
        for folder in sorted({path.rpartition("/")[0] for path in missing if paths[path] is not None}):
            self._client.ensure_path_async(folder).get(timeout=_left(deadline))
        for path, position in paths.items():
            if position is None:
                if path not in missing:
                    transaction.delete(path)
            elif path in missing:
                transaction.create(path, str(position.offset).encode())
            else:
                transaction.set_data(path, str(position.offset).encode())

    def _read_state(self, deadline: float) -> tuple[bytes, int, int] | None:
        """Return the content of our node, its creation and its version; None if it does not exist."""
        node = got(self._client.get_async(self._state), deadline)
        return None if node is None else (node[0], node[1].czxid, node[1].version)

    def _parse_state(self, state: tuple[bytes, int, int] | None) -> tuple[str | None, Known, int]:
        if state is None:
            return None, {}, -1
        version, metadata = parse_known(state[0], f"{self.address}: {self._state}")
        return version, metadata, state[2]

    def _path(self, name: TopicPartition) -> str:
        return f"{self._offsets}/{node_name(self.address, name.topic)}/{name.partition}"


def node_name(address: str, name: str) -> str:
    """Return a name that a node can have."""
    if not name or "/" in name or name in (".", ".."):
        raise OffsetStoreError(f"{address}: {name!r} cannot be the name of a node")
    return name


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def got(read: Any, deadline: float) -> Any:
    """Wait for the answer to a read; None if the node does not exist."""
    try:
        return read.get(timeout=_left(deadline))
    except NoNodeError:
        return None


def _children(client: Any, paths: Iterable[str], deadline: float) -> dict[str, list[str]]:
    """Return the names of the children of each node that exists."""
    reads = {path: client.get_children_async(path) for path in paths}
    answers = {path: got(read, deadline) for path, read in reads.items()}
    return {path: children for path, children in answers.items() if children is not None}
