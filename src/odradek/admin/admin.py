"""What can be asked and changed of topics and groups, wherever they are.

    with open_admin("/var/lib/kafka/data") as admin:              a folder: changed under its lock, read without it
    with open_admin("kafka://localhost:9092") as admin:           a broker
        admin.create_topic("events", partitions=3, config={"retention.ms": "-1"})
        admin.describe_groups(["words"])

Source in Kafka: `Admin`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from odradek.errors import BrokerError, LogError
from odradek.inspection.groups import GroupDescription
from odradek.sources.source import Bounds, is_broker
from odradek.storage.names import TopicPartition


class GroupIdNotFoundError(BrokerError):
    """A group that does not exist."""

    error_code = 69
    error_name = "GROUP_ID_NOT_FOUND"


class NonEmptyGroupError(BrokerError):
    """A group that has members, and that is to be changed."""

    error_code = 68
    error_name = "NON_EMPTY_GROUP"


class PartitionDescription(NamedTuple):
    """Who has a partition; -1 stands for an unknown leader."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    Attributes:
        name: Its name.
        topic_id: Its id as Kafka prints it; None if it has none.
        partitions: Its partitions by number.
        config: The settings of its own.
    """

    name: str
    topic_id: str | None
    partitions: Mapping[int, PartitionDescription]
    config: Mapping[str, str]


class Admin(ABC):
    """Topics and groups of a folder or a broker; a context manager. Belongs to one thread at a time.

    Attributes:
        address: Where they are, without secrets.
    """

    address: str

    @abstractmethod
    def topic_names(self) -> list[str]:
        """Return the names of the topics, sorted."""

    @abstractmethod
    def describe_topics(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics by name, all if None.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """

    @abstractmethod
    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic; what is None is as the broker has it by default, in a folder one partition.

        Raises:
            BrokerError: It exists, or Kafka does not accept it.
        """

    @abstractmethod
    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, up to a total.

        Raises:
            BrokerError: It has that many already.
        """

    @abstractmethod
    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None resets one to its default.

        Raises:
            BrokerError: A setting is unknown, or its value is not valid.
        """

    @abstractmethod
    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, and the groups' offsets of them.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic; of a folder's topics none is deleted then.
        """

    @abstractmethod
    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end; those that do not exist are left out."""

    @abstractmethod
    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups by id, all if None.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """

    @abstractmethod
    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets that groups have committed, by group."""

    @abstractmethod
    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Delete groups and their offsets.

        Args:
            groups: Their ids.
            force: Whether a group of a folder may have members: those that it had when its broker stopped.

        Raises:
            GroupIdNotFoundError: There is no such group.
            NonEmptyGroupError: It has members.
            OptionError: `force` is set for a broker.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is open. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_admin(address: str, config: Mapping[str, str] | None = None) -> Admin:
    """Open a folder or a broker.

    Args:
        address: The path of a log directory, or `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection to a broker, by Kafka's names (`security.protocol`, ...).

    Raises:
        OSError: The folder does not exist, or is none.
        BrokerUnavailableError: The broker does not answer.
        OptionError: The address or a setting is wrong.
    """
    if is_broker(address):
        from odradek.admin.broker import BrokerAdmin

        return BrokerAdmin(address, config)
    if config:
        raise LogError(f"{address} is a folder: settings of a connection are for a broker")
    from odradek.admin.folder import FolderAdmin

    return FolderAdmin(address)
