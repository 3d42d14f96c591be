"""The result of the metadata log's records: the topics, settings and features at one offset.

    TopicRecord -> PartitionRecord -> PartitionChangeRecord ...  -> a topic, its partitions, who leads them
    ConfigRecord ...                                             -> the settings that are not at their default
    FeatureLevelRecord ...                                       -> metadata.version and others

Source in Kafka: `MetadataImage`, `MetadataDelta`, `MetadataLoader`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.errors import FormatError, UnknownTopicOrPartitionError
from odradek.messages.metadata.metadata_records import (
    SCHEMAS,
    UNCHANGED_LEADER,
    UNCHANGED_RECOVERY_STATE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition, invalid_topic_name_reason

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
EVERY_BROKER = ""

_SCRAM_SINCE = 11
_DELEGATION_TOKENS_SINCE = 14
_DIRECTORIES_SINCE = 17
_ELIGIBLE_LEADER_REPLICAS_SINCE = 23
_CONTROLLER_UNREGISTRATION_SINCE = 33


class ConfigResource(NamedTuple):
    """What a setting applies to: a topic (2), a broker (4) or a group (32); the broker named "" is every broker."""

    type: int
    name: str


class PartitionImage(NamedTuple):
    """A partition: its replicas and its leader. `directories` goes with `replicas`."""

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    last_known_elr: tuple[int, ...] = ()

    def changed(self, change: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after a change."""
        leader_changed = change.leader != UNCHANGED_LEADER
        replicas = self.replicas if change.replicas is None else change.replicas
        directories = self.directories if change.directories is None else change.directories
        state = change.leader_recovery_state
        return PartitionImage(
            replicas=replicas,
            isr=self.isr if change.isr is None else change.isr,
            leader=change.leader if leader_changed else self.leader,
            leader_epoch=self.leader_epoch + leader_changed,
            partition_epoch=self.partition_epoch + 1,
            directories=directories,
            removing_replicas=self.removing_replicas if change.removing_replicas is None else change.removing_replicas,
            adding_replicas=self.adding_replicas if change.adding_replicas is None else change.adding_replicas,
            leader_recovery_state=self.leader_recovery_state if state == UNCHANGED_RECOVERY_STATE else state,
            last_known_elr=self.last_known_elr if change.last_known_elr is None else change.last_known_elr,
        )


@dataclass(slots=True)
class TopicImage:
    """A topic and its partitions by number. Only a topic from before KRaft may have no id."""

    name: str
    topic_id: UUID | None
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    _sorted: tuple[TopicPartition, ...] = field(default=(), init=False, repr=False, compare=False)

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions by name, sorted."""
        # Partitions are added, never removed.
        if len(self._sorted) != len(self.partitions):
            self._sorted = tuple(TopicPartition(self.name, number) for number in sorted(self.partitions))
        return self._sorted

    def copy(self) -> TopicImage:
        """Return a topic that changes apart from this one."""
        return TopicImage(self.name, self.topic_id, dict(self.partitions))


def _name_in_metrics(topic: str) -> str:
    """Return what Kafka calls a topic in the names of metrics."""
    return topic.replace(".", "_")


class MetadataImage:
    """The cluster's metadata.

    Attributes:
        topics: The topics by name.
        configs: The settings that are set, by what they apply to.
        client_quotas: The quotas that are set, by what they apply to; each change makes new dictionaries.
        features: The levels of the features that are on.
        brokers: The last registration of each broker.
        scram_credentials: What users log in with by SCRAM: for each mechanism the credentials by user.
        acls: The access control lists by their ids.
        delegation_tokens: The delegation tokens by their ids.
        next_producer_id: The first producer id that is not allocated yet.
        skipped: The numbers of records of unknown types, by (api key, version); they have no effect.
        open_transaction: Whether the records end within a transaction, whose records have no effect yet.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.client_quotas: dict[frozenset[QuotaEntity], dict[str, float]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        self.scram_credentials: dict[int, dict[str, UserScramCredentialRecord]] = {}
        self.acls: dict[UUID, AccessControlEntryRecord] = {}
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        self.next_producer_id = 0
        self.skipped: Counter[tuple[int, int]] = Counter()
        self._topics_by_id: dict[UUID, TopicImage] = {}
        self._names_in_metrics: dict[str, str] = {}
        # The topics that no other image shares.
        self._own: set[UUID | None] = set()
        self._own_configs: set[ConfigResource] = set()
        self._owns_acls = self._owns_tokens = True
        self._transaction: list[MetadataRecord] | None = None

    def copy(self) -> MetadataImage:
        """Return an image that changes apart from this one. What the two have in common is copied when it changes."""
        made = MetadataImage()
        made.topics = dict(self.topics)
        made._topics_by_id = dict(self._topics_by_id)
        made._names_in_metrics = dict(self._names_in_metrics)
        self._own = set()
        self._own_configs = set()
        made.acls = self.acls
        self._owns_acls = made._owns_acls = False
        made.delegation_tokens = self.delegation_tokens
        self._owns_tokens = made._owns_tokens = False
        made.configs = dict(self.configs)
        made.client_quotas = dict(self.client_quotas)
        made.features = dict(self.features)
        made.brokers = dict(self.brokers)
        made.scram_credentials = {mechanism: dict(users) for mechanism, users in self.scram_credentials.items()}
        made.next_producer_id = self.next_producer_id
        made.skipped = Counter(self.skipped)
        made._transaction = None if self._transaction is None else list(self._transaction)
        return made

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._transaction is not None

    @property
    def partition_record_version(self) -> int:
        """The version of PartitionRecord and PartitionChangeRecord for this `metadata.version`."""
        level = self.features.get(METADATA_VERSION, 0)
        return 2 if level >= _ELIGIBLE_LEADER_REPLICAS_SINCE else 1 if level >= _DIRECTORIES_SINCE else 0

    @property
    def has_scram(self) -> bool:
        """Whether this `metadata.version` has users of SCRAM."""
        return self.features.get(METADATA_VERSION, 0) >= _SCRAM_SINCE

    @property
    def has_delegation_tokens(self) -> bool:
        """Whether this `metadata.version` has delegation tokens."""
        return self.features.get(METADATA_VERSION, 0) >= _DELEGATION_TOKENS_SINCE

    @property
    def has_controller_unregistration(self) -> bool:
        """Whether this `metadata.version` lets controllers be unregistered."""
        return self.features.get(METADATA_VERSION, 0) >= _CONTROLLER_UNREGISTRATION_SINCE

    @property
    def has_eligible_leader_replicas(self) -> bool:
        """Whether the controller keeps eligible leader replicas, and the last known leader (KIP-966)."""
        return self.partition_record_version > 1 and self.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0

    def check_known(self) -> None:
        """Check that no record was skipped: it might restrict clients, or revoke what earlier records granted.

        Raises:
            FormatError: A record has an unknown type or version.
        """
        for api_key, version in self.skipped:
            schema = SCHEMAS.get(api_key)
            what = f"type {api_key}" if schema is None else schema.record.__name__
            text = f"the metadata have a record that is unknown: {what}, version {version}"
            raise FormatError(f"{text}; serve the folder by the Apache Kafka that wrote it, or a newer Odradek")

    def topic(self, name: str) -> TopicImage:
        """Return a topic.

        Raises:
            UnknownTopicOrPartitionError: There is no topic of that name.
        """
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopicOrPartitionError(name) from None

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """Return the topic that has an id, or None."""
        return self._topics_by_id.get(topic_id)

    def topic_like(self, name: str) -> str | None:
        """Return the topic whose name differs from another one in '.' and '_' at most, if there is one."""
        return self._names_in_metrics.get(_name_in_metrics(name))

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the settings that are set for a topic; all others have their defaults."""
        return dict(self.configs.get(ConfigResource(TOPIC_RESOURCE, name), {}))

    def broker_config(self, node_id: int | None = None) -> dict[str, str]:
        """Return the settings that are set for every broker, overridden by those of one."""
        config = dict(self.configs.get(ConfigResource(BROKER_RESOURCE, EVERY_BROKER), {}))
        if node_id is not None:
            config |= self.configs.get(ConfigResource(BROKER_RESOURCE, str(node_id)), {})
        return config

    def add_topic(self, topic: TopicImage) -> None:
        """Add a topic with its partitions."""
        self.topics[topic.name] = topic
        self._names_in_metrics.setdefault(_name_in_metrics(topic.name), topic.name)
        self._own.add(topic.topic_id)
        if topic.topic_id is not None:
            self._topics_by_id[topic.topic_id] = topic

    def apply_all(self, records: Iterable[MetadataRecord]) -> None:
        """Apply records in order."""
        for record in records:
            self.apply(record)

    def apply(self, record: MetadataRecord) -> None:
        """Apply a record, or keep it until the end of its transaction.

        Raises:
            FormatError: It is about a topic or partition that does not or cannot exist, or a transaction begins or ends
                at the wrong place.
        """
        match record:
            case BeginTransactionRecord():
                if self._transaction is not None:
                    raise FormatError("a metadata transaction begins within another")
                self._transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if self._transaction is None:
                    raise FormatError("a metadata transaction ends without having begun")
                kept, self._transaction = self._transaction, None
                if isinstance(record, EndTransactionRecord):
                    self.apply_all(kept)
            case UnknownRecord():
                # Also within a transaction, which it may end.
                self.skipped[record.api_key, record.version] += 1
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._replay(record)

    def _replay(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                # Its name becomes the name of a folder.
                reason = invalid_topic_name_reason(record.name)
                if reason is not None or record.name == CLUSTER_METADATA_TOPIC:
                    raise FormatError(reason or f"a topic cannot be named {record.name}, as the metadata log is")
                known = self.topics.get(record.name)
                if known is not None and known.topic_id != record.topic_id:
                    raise FormatError(f"topic {record.name} gets id {record.topic_id}, but has {known.topic_id}")
                self.add_topic(TopicImage(record.name, record.topic_id))
            case PartitionRecord():
                if record.partition_id < 0:
                    raise FormatError(f"partition {record.partition_id} of {record.topic_id}: its number is negative")
                self._own_topic(record.topic_id).partitions[record.partition_id] = PartitionImage(
                    replicas=record.replicas,
                    isr=record.isr,
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    partition_epoch=record.partition_epoch,
                    directories=record.directories,
                    removing_replicas=record.removing_replicas,
                    adding_replicas=record.adding_replicas,
                    leader_recovery_state=record.leader_recovery_state,
                    last_known_elr=record.last_known_elr or (),
                )
            case PartitionChangeRecord():
                partitions = self._own_topic(record.topic_id).partitions
                if record.partition_id not in partitions:
                    raise FormatError(
                        f"partition {record.partition_id} of {record.topic_id} changes, but does not exist"
                    )
                partitions[record.partition_id] = partitions[record.partition_id].changed(record)
            case RemoveTopicRecord():
                topic = self._topic_of(record.topic_id)
                del self._topics_by_id[record.topic_id]
                del self.topics[topic.name]
                self._names_in_metrics.pop(_name_in_metrics(topic.name), None)
                self.configs.pop(ConfigResource(TOPIC_RESOURCE, topic.name), None)
            case ConfigRecord():
                self._set_config(ConfigResource(record.resource_type, record.resource_name), record.name, record.value)
            case ClientQuotaRecord():
                self._set_quota(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
                if not record.feature_level:
                    del self.features[record.name]
            case AccessControlEntryRecord():
                self._own_acls()[record.id] = record
            case RemoveAccessControlEntryRecord():
                if self._own_acls().pop(record.id, None) is None:
                    raise FormatError(f"a metadata record removes ACL {record.id}, which was not created")
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = record
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case UserScramCredentialRecord():
                self.scram_credentials.setdefault(record.mechanism, {})[record.name] = record
            case RemoveUserScramCredentialRecord():
                users = self.scram_credentials.get(record.mechanism, {})
                if users.pop(record.name, None) is None:
                    raise FormatError(f"a SCRAM credential of {record.name} is removed, but does not exist")
                if not users:
                    del self.scram_credentials[record.mechanism]
            case DelegationTokenRecord():
                self._own_tokens()[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self._own_tokens().pop(record.token_id, None)

    def _own_acls(self) -> dict[UUID, AccessControlEntryRecord]:
        """Return the access control lists, which may be changed: a copy takes their place if another image has them."""
        if not self._owns_acls:
            self.acls, self._owns_acls = dict(self.acls), True
        return self.acls

    def _own_tokens(self) -> dict[str, DelegationTokenRecord]:
        """Return the delegation tokens, which may be changed, as `_own_acls` does."""
        if not self._owns_tokens:
            self.delegation_tokens, self._owns_tokens = dict(self.delegation_tokens), True
        return self.delegation_tokens

    def _topic_of(self, topic_id: UUID) -> TopicImage:
        topic = self._topics_by_id.get(topic_id)
        if topic is None:
            raise FormatError(f"a metadata record is about topic {topic_id}, which was not created")
        return topic

    def _own_topic(self, topic_id: UUID) -> TopicImage:
        """Return a topic that may be changed: a copy takes its place if another image has it too."""
        topic = self._topic_of(topic_id)
        if topic_id not in self._own:
            topic = topic.copy()
            self.topics[topic.name] = self._topics_by_id[topic_id] = topic
            self._own.add(topic_id)
        return topic

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        # As in Kafka, the last entry of a type counts.
        entity = frozenset(QuotaEntity(*one) for one in dict(record.entity).items())
        quotas = {key: value for key, value in self.client_quotas.get(entity, {}).items() if key != record.key}
        if not record.remove:
            quotas[record.key] = record.value
        if quotas:
            self.client_quotas[entity] = quotas
        else:
            self.client_quotas.pop(entity, None)

    def _set_config(self, resource: ConfigResource, name: str, value: str | None) -> None:
        settings = self.configs.get(resource, {})
        if resource not in self._own_configs or not settings:
            # Once for all changes of an image: to replay thousands would take as long as their square.
            settings = dict(settings)
            self._own_configs.add(resource)
        settings.pop(name, None)
        if value is not None:
            settings[name] = value
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)
