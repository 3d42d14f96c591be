"""Changes of the metadata that make or delete no topic: settings, quotas, users, ACLs, features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.coordination.authorization.acls import Acl, AclFilter
from odradek.messages.metadata.metadata_records import ClientQuotaRecord, MetadataRecord
from odradek.storage.directory.directory_guard import DirectoryGuard
from odradek.storage.directory.directory_parts import DirectoryParts
from odradek.storage.directory.disk_errors import with_log_errors
from odradek.storage.directory.topic_changes import TopicChanges
from odradek.storage.metadata.acl_changes import AclRemoval, created
from odradek.storage.metadata.cluster import ScramChange
from odradek.storage.metadata.leadership import feature_changes
from odradek.storage.metadata.metadata_image import ConfigResource, MetadataImage


class MetadataChanges:
    """The metadata of one log directory, for its broker. Any thread may call any method, without a lock.

    Args:
        parts: What the directory consists of.
        changes: The changes of its topics.
        guard: Guards the directory's changes.

    Attributes:
        path: The folder that holds the metadata.
    """

    def __init__(self, parts: DirectoryParts, changes: TopicChanges, guard: DirectoryGuard) -> None:
        self.path = parts.states[0].path
        self._cluster = parts.cluster
        self._changes = changes
        self._guard = guard

    @property
    def offset(self) -> int:
        """A number that grows with each change of the metadata: the next offset of its log, if there is one."""
        return self._cluster.metadata.offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the metadata log; 0 before there is one."""
        return self._cluster.metadata.leader_epoch

    @with_log_errors
    def alter_broker_config(self, changes: Mapping[str, str | None], *, for_all: bool = False) -> None:
        """Change the broker's settings in the metadata, which override those that were given; None removes one.

        Those that are defaults of topics have an effect at once.

        Args:
            changes: The settings by Kafka's names.
            for_all: Whether they are those of every broker, not of this one.

        Raises:
            InvalidConfigError: A setting that is a default of topics has a value that is not valid.
        """
        with self._guard.changing():
            self._guard.check_usable()
            self._changes.alter_broker(changes, None if for_all else self._cluster.identity.node_id)

    @with_log_errors
    def alter_configs(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> None:
        """Change settings of topics, groups and client metrics in the metadata, all or none; None removes one.

        To write them one by one takes a sync, and a look at all that there are, for each. Those of topics have an
        effect at once.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidConfigError: A setting of a topic is unknown, or has a value that is not valid.
        """
        with self._guard.changing():
            self._guard.check_usable()
            self._changes.alter(changes)

    @with_log_errors
    def alter_client_quotas(self, records: Sequence[ClientQuotaRecord]) -> None:
        """Change quotas of clients in the metadata, which are not checked, all at once."""
        with self._guard.changing():
            self._guard.check_usable()
            self._cluster.metadata.change(lambda image: records)

    @with_log_errors
    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        """Set the levels of Kafka's features, which are not checked; 0 switches one off."""
        with self._guard.changing():
            self._guard.check_usable()
            self._cluster.metadata.change(partial(feature_changes, levels, self._cluster.identity.node_id))

    @with_log_errors
    def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> None:
        """Give users credentials for SCRAM, and take others from them, all or none.

        Raises:
            LogError: `metadata.version` is from before SCRAM.
        """
        with self._guard.changing():
            self._guard.check_usable()
            self._cluster.metadata.alter_scram_credentials(changes)

    @with_log_errors
    def alter_delegation_tokens(self, records_of: Callable[[MetadataImage], Sequence[MetadataRecord]]) -> None:
        """Change delegation tokens by the records that a function makes of the current metadata, all or none."""
        with self._guard.changing():
            self._guard.check_usable()
            self._cluster.metadata.change(records_of)

    @with_log_errors
    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create those of some access control lists that there are not yet.

        Raises:
            PolicyViolationError: They are too many.
        """
        with self._guard.changing():
            self._guard.check_usable()
            self._cluster.metadata.change(lambda image: created(image, acls))

    @with_log_errors
    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete access control lists; return for each filter those that it matched.

        Raises:
            PolicyViolationError: They are too many.
        """
        with self._guard.changing():
            self._guard.check_usable()
            removal = AclRemoval(filters)
            self._cluster.metadata.change(removal.records)
            return removal.matched
