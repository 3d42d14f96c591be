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

from odradek.closing import Closing
from odradek.errors import BrokerError
from odradek.inspection.group_description import GroupDescription
from odradek.kafka.topics import Bounds
from odradek.places.place import Place
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition


class GroupIdNotFoundError(BrokerError):
    """A group that does not exist."""

    error_code = 69
    error_name = "GROUP_ID_NOT_FOUND"


class Admin(Closing, ABC):
    """Topics and groups of a folder or a broker; a context manager. Belongs to one thread at a time.

    Attributes:
        address: Where they are, without secrets.
    """

    address: str

    @property
    @abstractmethod
    def place(self) -> Place:
        """What is there."""

    def topic_names(self) -> list[str]:
        """Return the names of the topics, sorted, without that of a metadata log."""
        return [name for name in self.place.topics() if name != CLUSTER_METADATA_TOPIC]

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
    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before an offset of each partition: the log start offset moves there, and never back.

        Raises:
            BrokerError: The partition does not exist or does not reach that far, or the topic keeps its records: it is
                Kafka's own, or compacted only.
        """

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end; those that do not exist are left out."""
        return self.place.all_bounds(partitions)

    @abstractmethod
    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups by id, all if None.

        Raises:
            GroupIdNotFoundError: There is no such group.
        """

    @abstractmethod
    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Delete groups and their offsets.

        Args:
            groups: Their ids.
            force: Whether a group of a folder may have members: those that it had when its broker stopped.

        Raises:
            BrokerError: There is no such group, or it has members.
            OptionError: `force` is set for a broker.
        """

    @abstractmethod
    def reset_offsets(self, group: GroupDescription, offsets: Mapping[TopicPartition, int], *, force: bool) -> None:
        """Set the offsets of a group; of a share group its start offsets, from which records are delivered again.

        Args:
            group: The group, as `describe_groups` describes it.
            offsets: The next offset to read, by partition.
            force: As for `delete_groups`.

        Raises:
            BrokerError: It has members, or a partition does not exist.
            OptionError: `force` is set for a broker, or a share group is one of a folder.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is open. May be called twice."""
