"""The settings of topics, of the broker, of groups and of client metrics: where each is set, and which value counts.

    of a topic      its own  |  the broker's, under another name
    of the broker   this broker's in the metadata  |  every broker's there  |  given at the start  |  Kafka's default
    of a group      its own  |  the broker's, under another name
    of client metrics       its own  |  Kafka's default

A value that is further left counts.

Source in Kafka: `ConfigHelper`, `ConfigAdminManager`, `ConfigurationControlManager`, `DynamicBrokerConfig`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import IntEnum
from functools import cache, partial
from operator import is_not
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.config import BrokerConfig, is_of_store, plain_name, restricts_from_start
from odradek.broker.configs.broker_keys import (
    BROKER_KEYS,
    NOT_WHILE_RUNNING,
    TOPIC_SYNONYMS,
    is_dynamic,
    is_of_one_broker,
)
from odradek.broker.configs.client_metrics_keys import CLIENT_METRICS_KEYS, check_client_metrics_config
from odradek.broker.configs.config_keys import ConfigKey, ConfigType, as_java
from odradek.broker.configs.group_keys import GROUP_KEYS, HIDDEN_KEYS, broker_setting, check_group_config
from odradek.broker.configs.relations import contradiction
from odradek.broker.configs.topic_keys import TOPIC_KEYS, check_topic_config
from odradek.broker.errors import ApiError, message_of
from odradek.broker.protocol import Message
from odradek.broker.restrictions import check_restriction
from odradek.broker.topic_names import check_topic_name
from odradek.coordination.placement import in_hash_order
from odradek.errors import LogError, OdradekError
from odradek.printable import logger
from odradek.storage.config_def import INTEGER
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    EVERY_BROKER,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)

_logger = logger(__name__)

LOGGER_RESOURCE = 8
RESOURCE_TYPES = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    LOGGER_RESOURCE: "BROKER_LOGGER",
    CLIENT_METRICS_RESOURCE: "CLIENT_METRICS",
    GROUP_RESOURCE: "GROUP",
}

_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
_NONE: Mapping[str, str] = {}
_MAX_VALUE_LENGTH = (1 << 15) - 1

_SYNONYMS = {
    name: names
    for names in (
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    for name in names
} | {"log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")}


class Source(IntEnum):
    """Where a value comes from, by its number in DescribeConfigs."""

    TOPIC = 1
    BROKER_IN_METADATA = 2
    EVERY_BROKER_IN_METADATA = 3
    GIVEN = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Operation(IntEnum):
    """What to do with a setting, by its number in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """A value of a setting, perhaps under another name."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """A setting with its value, and all values that it could have, the one that counts first."""

    key: ConfigKey
    value: str | None
    synonyms: Sequence[Synonym]
    is_read_only: bool

    @property
    def source(self) -> Source:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


class Change(NamedTuple):
    """A change of one setting."""

    name: str
    operation: int
    value: str | None


def _check_enforced(name: str, value: str) -> None:
    """Check that a setting of the broker, if it restricts clients, does so as soon as it is taken."""
    check_restriction(name, plain_name(name), value)
    if restricts_from_start(name):
        text = "restricts clients, and can only be set when this broker starts; give it to the broker's start"
        if is_of_store(f"listener.name.x.{name}"):
            text = f"can be changed for one listener only: listener.name.NAME.{name}"
        raise ApiError(ErrorCode.invalid_config, f"{name} {text}")


@cache
def _default_values() -> Mapping[str, str]:
    return {name: key.default for name, key in BROKER_KEYS.items() if key.default is not None}


class ResourceChanges(NamedTuple):
    """What changes of the settings of a topic, a group or client metrics; `MetadataChanges.alter_configs` takes it."""

    resource: ConfigResource
    changes: Mapping[str, str | None]


class ResourceConfigs:
    """The settings of topics, of the broker, of groups and of client metrics. It belongs to the event loop's thread.

    Args:
        logs: The log directory.
        config: The broker's settings.

    Attributes:
        turn: Held while settings are checked and changed.
    """

    def __init__(self, logs: WritableLogDirectory, config: BrokerConfig) -> None:
        self.turn = asyncio.Lock()
        self._logs = logs
        self._config = config
        own = {"node.id": str(logs.identity.node_id), "broker.id": str(logs.identity.node_id)}
        given = {name: text for name, text in config.texts.items() if name in BROKER_KEYS}
        self._given = {"log.dirs": ",".join(map(str, logs.places())), **given, **own}
        self._node = str(logs.identity.node_id)
        # The topics' defaults, and the settings that they were made from.
        self._topic_defaults: tuple[tuple[Mapping[str, str], ...], dict[str, Described]] | None = None
        self._complete()
        self.altered()

    def _complete(self) -> None:
        """Set what Kafka's controller sets when it starts: `min.insync.replicas` once for all brokers (KIP-966)."""
        image = self._logs.metadata_image
        if image.features.get(_ELIGIBLE_LEADER_REPLICAS) and _MIN_INSYNC_REPLICAS not in image.broker_config():
            value = self._given.get(_MIN_INSYNC_REPLICAS, "1")
            try:
                self._logs.metadata.alter_broker_config({_MIN_INSYNC_REPLICAS: value}, for_all=True)
            except LogError as error:
                # Not needed to serve records.
                _logger.warning("the metadata cannot be changed: %s", error)

    def _set(self, kind: int, name: str) -> Mapping[str, str]:
        # The metadata replace this mapping by a new one, and never change it.
        return self._logs.metadata_image.configs.get(ConfigResource(kind, name), _NONE)

    # -- describing

    def describe(self, kind: int, name: str) -> Iterable[Described]:
        """Return the settings of a topic (2), a broker (4), client metrics (16) or a group (32).

        Raises:
            ApiError: There is no such thing.
        """
        if kind == TOPIC_RESOURCE:
            check_topic_name(name)
            if name not in self._logs.metadata_image.topics:
                raise ApiError(ErrorCode.unknown_topic_or_partition)
            return self.of_topic(self._set(kind, name))
        if kind == BROKER_RESOURCE:
            if name == EVERY_BROKER:
                return self._of_every_broker()
            self._check_broker(name, " or empty string")
            return [self._of_broker(key) for key in BROKER_KEYS.values()]
        if kind == GROUP_RESOURCE:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Group name must not be empty")
            return self._of_group(self._set(kind, name))
        if kind == CLIENT_METRICS_RESOURCE:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
            own, source = self._set(kind, name), Source.CLIENT_METRICS
            return [self._inherited(CLIENT_METRICS_KEYS[one], own, source, None) for one in CLIENT_METRICS_KEYS]
        raise ApiError(ErrorCode.invalid_request, f"Unsupported resource type: {RESOURCE_TYPES[kind]}")

    def of_topic(self, overrides: Mapping[str, str]) -> list[Described]:
        """Return the settings of a topic that has some of its own."""
        of_broker = (self._set(BROKER_RESOURCE, self._node), self._set(BROKER_RESOURCE, EVERY_BROKER))
        if self._topic_defaults is None or any(map(is_not, self._topic_defaults[0], of_broker)):
            found = {
                name: self._inherited(TOPIC_KEYS[name], {}, Source.TOPIC, TOPIC_SYNONYMS.get(name))
                for name in in_hash_order(TOPIC_KEYS)
            }
            self._topic_defaults = of_broker, found
        defaults = self._topic_defaults[1]
        own = {
            name: self._inherited(TOPIC_KEYS[name], overrides, Source.TOPIC, TOPIC_SYNONYMS.get(name))
            for name in overrides
            if name in TOPIC_KEYS
        }
        return list({**defaults, **own}.values())

    def _of_group(self, own: Mapping[str, str]) -> list[Described]:
        hidden = filter(HIDDEN_KEYS.__contains__, own)
        shown = in_hash_order([name for name in GROUP_KEYS if name not in HIDDEN_KEYS])
        return [
            self._inherited(GROUP_KEYS[name], own, Source.GROUP, broker_setting(name)) for name in (*hidden, *shown)
        ]

    def _inherited(self, key: ConfigKey, own: Mapping[str, str], source: Source, synonym: str | None) -> Described:
        synonyms: list[Synonym] = []
        if synonym is not None:
            of_broker = BROKER_KEYS.get(synonym)
            synonyms = (
                [Synonym(synonym, key.default, Source.DEFAULT)] if of_broker is None else self._synonyms(of_broker)
            )
        if key.name in own:
            synonyms.insert(0, Synonym(key.name, key.canonical(own[key.name]), source))
            return Described(key, synonyms[0].value, synonyms, is_read_only=False)
        value = key.default
        if source is Source.TOPIC and (not synonyms or synonyms[0].source is not Source.DEFAULT):
            # The broker's setting may have another unit (hours), so ask for the default that follows from it.
            value = self._topic_default(key.name)
        return Described(key, value, synonyms, is_read_only=False)

    def _topic_default(self, name: str) -> str:
        return as_java(self._logs.default_topic_config().value(name))

    def _sources(
        self, changed: str | None = None, after: Mapping[str, str] = _NONE
    ) -> list[tuple[Source, Mapping[str, str]]]:
        """Return where the settings of the broker come from; those of a name in the metadata as they are to become."""
        in_metadata = {
            name: after if changed == name else self._set(BROKER_RESOURCE, name) for name in (self._node, EVERY_BROKER)
        }
        return [
            (Source.BROKER_IN_METADATA, in_metadata[self._node]),
            (Source.EVERY_BROKER_IN_METADATA, in_metadata[EVERY_BROKER]),
            (Source.GIVEN, self._given),
            (Source.DEFAULT, _default_values()),
        ]

    @staticmethod
    def _value_from(sources: Iterable[tuple[Source, Mapping[str, str]]]) -> Callable[[str], str]:
        values = [settings for _, settings in sources]
        return lambda name: next(settings[name] for settings in values if name in settings)

    def _synonyms(self, key: ConfigKey) -> list[Synonym]:
        found = [
            Synonym(name, None if key.is_sensitive else values[name], source)
            for source, values in self._sources()
            for name in _SYNONYMS.get(key.name, (key.name,))
            if name in values
        ]
        named = next((number for number, one in enumerate(found) if one.name == key.name), len(found))
        return found[named:]

    def _of_broker(self, key: ConfigKey) -> Described:
        synonyms = self._synonyms(key)
        value = synonyms[0].value if synonyms else None
        if value is not None:
            value = key.canonical(value)
        return Described(key, value, synonyms, is_read_only=not key.is_dynamic)

    def _of_every_broker(self) -> Iterable[Described]:
        for name, value in self._set(BROKER_RESOURCE, EVERY_BROKER).items():
            key = BROKER_KEYS.get(name)
            if key is not None:
                shown = None if key.is_sensitive else value
                synonyms = [Synonym(name, shown, Source.EVERY_BROKER_IN_METADATA)]
                yield Described(key, shown, synonyms, is_read_only=not key.is_dynamic)

    # -- altering

    def alter(
        self, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool
    ) -> Callable[[], None] | ResourceChanges | None:
        """Check changes of settings, and return what carries them out; it may run in another thread.

        All but those of the broker are returned, also if they are only validated: they are written together with
        others.

        Raises:
            ApiError: They are not valid.
        """
        present = self._set(kind, name)
        after = dict(present)
        # Kafka's controller does not know the types of the settings of client metrics: none is a list to it.
        keys = {TOPIC_RESOURCE: TOPIC_KEYS, BROKER_RESOURCE: BROKER_KEYS, GROUP_RESOURCE: GROUP_KEYS}.get(kind, {})
        for change in changes:
            value = self._changed(kind, keys, after.get(change.name), change)
            if value is None:
                after.pop(change.name, None)
            else:
                after[change.name] = value
        return self._replace(kind, name, after, {change.name for change in changes}, validate_only=validate_only)

    def replace(
        self, kind: int, name: str, after: Mapping[str, str], *, validate_only: bool
    ) -> Callable[[], None] | ResourceChanges | None:
        """Check settings that replace all others; see `alter`.

        Raises:
            ApiError: They are not valid.
        """
        named = {*after, *self._set(kind, name)}
        return self._replace(kind, name, after, named, validate_only=validate_only)

    def _replace(
        self, kind: int, name: str, after: Mapping[str, str], named: Set[str], *, validate_only: bool
    ) -> Callable[[], None] | ResourceChanges | None:
        present = self._set(kind, name)
        if any(len(value) > _MAX_VALUE_LENGTH for value in after.values()):
            text = "The configuration value cannot be added because it exceeds the maximum value size of "
            raise ApiError(ErrorCode.invalid_config, f"{text}{_MAX_VALUE_LENGTH} bytes.")
        self._check(kind, name, after, named)
        different = {key: after.get(key) for key in named if after.get(key) != present.get(key)}
        if kind == BROKER_RESOURCE and any(map(is_of_store, different)):
            write = partial(self._logs.metadata.alter_broker_config, different, for_all=False)
            return partial(self._change_stores, after, None if validate_only else write)
        if not different:
            return None
        if kind != BROKER_RESOURCE:
            return ResourceChanges(ConfigResource(kind, name), different)
        if validate_only:
            return None
        return partial(self._logs.metadata.alter_broker_config, different, for_all=name == EVERY_BROKER)

    def _change_stores(self, after: Mapping[str, str], write: Callable[[], None] | None) -> None:
        """Check that changed key stores can be used; then change them, unless `write` is None."""
        try:
            self._config.check_stores(after)
        except OdradekError as error:
            raise ApiError(ErrorCode.invalid_request, message_of(error)) from None
        if write is not None:
            write()

    def altered(self) -> None:
        """Apply the settings of the broker, after some were altered."""
        self._config.set_dynamic(self._logs.metadata_image.broker_config(self._logs.identity.node_id))

    @staticmethod
    def _changed(kind: int, keys: Mapping[str, ConfigKey], value: str | None, change: Change) -> str | None:
        if change.operation == Operation.SET:
            return change.value
        if change.operation == Operation.DELETE:
            return None
        if change.operation not in (Operation.APPEND, Operation.SUBTRACT) or change.value is None:
            raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {change.operation}")
        key = keys.get(change.name)
        if key is None or key.type is not ConfigType.LIST:
            verb = Operation(change.operation).name
            if kind != BROKER_RESOURCE:
                text = f"Can't {verb} to key {change.name} because its type is not LIST."
            elif key is None:
                text = f"Unknown config name: {change.name}"
            else:
                text = f"Config value {verb.lower()} is not allowed for config key: {change.name}"
            raise ApiError(ErrorCode.invalid_config, text)
        words = [word for word in ((key.default if value is None else value) or "").split(",") if word]
        changed = Counter(change.value.split(","))
        if change.operation == Operation.APPEND:
            known = set(words)
            return ",".join([*words, *(word for word in changed if word not in known)])
        kept = []
        for word in words:
            if changed[word]:
                changed[word] -= 1
            else:
                kept.append(word)
        return ",".join(kept)

    def _check(self, kind: int, name: str, after: Mapping[str, str], named: Set[str]) -> None:
        if kind == TOPIC_RESOURCE:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
            check_topic_name(name)
            self.check_topic(after)
            if name not in self._logs.metadata_image.topics:
                raise unknown_topic(name)
        elif kind == BROKER_RESOURCE:
            if name:
                self._check_broker(name)
            self._check_broker_config(name, after, named)
        elif kind == CLIENT_METRICS_RESOURCE:
            check_client_metrics_config(name, after)
        else:
            if not name:
                raise ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
            check_group_config(after, self._value_from(self._sources()))

    def check_topic(self, overrides: Mapping[str, str]) -> None:
        """Check the settings of a topic, all of them together.

        Raises:
            ApiError: They are not valid.
        """
        check_topic_config(overrides, self._logs.default_topic_config())

    def _check_broker_config(self, name: str, after: Mapping[str, str], named: Set[str]) -> None:
        fixed = [one for one in after if not is_dynamic(one)]
        if fixed:
            text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            raise ApiError(ErrorCode.invalid_request, text)
        for one in named & after.keys():
            _check_enforced(one, after[one])
        of_one = [one for one in after if is_of_one_broker(one)]
        if of_one and not name:
            text = "Cannot update these configs at default cluster level, broker id must be specified"
            raise ApiError(ErrorCode.invalid_request, f"{text}: [{', '.join(of_one)}]")
        for one, value in after.items():
            if one in BROKER_KEYS:
                try:
                    parsed = BROKER_KEYS[one].parse(value)
                except ApiError as error:
                    raise ApiError(ErrorCode.invalid_request, error.reason) from None
                is_listed = one == "max.connections.per.ip" and self._config["max.connections.per.ip.overrides"]
                if one in NOT_WHILE_RUNNING and NOT_WHILE_RUNNING[one](parsed) and not is_listed:
                    raise ApiError(ErrorCode.invalid_request, f"Invalid {one} {parsed}")
        before, then = (self._value_from(sources) for sources in (self._sources(), self._sources(name, after)))
        wrong = contradiction(named, after, before, then)
        if wrong is not None:
            raise ApiError(ErrorCode.invalid_request, wrong)
        if _MIN_INSYNC_REPLICAS in named and self._logs.metadata_image.features.get(_ELIGIBLE_LEADER_REPLICAS):
            while_on = "while ELR is enabled."
            if name:
                raise ApiError(
                    ErrorCode.invalid_config, f"Broker-level {_MIN_INSYNC_REPLICAS} cannot be altered {while_on}"
                )
            if _MIN_INSYNC_REPLICAS not in after:
                raise ApiError(
                    ErrorCode.invalid_config, f"Cluster-level {_MIN_INSYNC_REPLICAS} cannot be removed {while_on}"
                )

    def _check_broker(self, name: str, or_other: str = "") -> None:
        if name == self._node:
            return
        if INTEGER.fullmatch(name) is None:
            what = "Broker id" if or_other else "Node id"
            raise ApiError(ErrorCode.invalid_request, f"{what} must be an integer, but it is: {name}")
        # To Kafka "01" is this broker's id as well, but it would never look there for its settings.
        text = f"Unexpected broker id, expected {self._node}{or_other}, but received {name}"
        raise ApiError(ErrorCode.invalid_request, text)


def answer_of(one: Described, *, synonyms: bool, documentation: bool) -> Message:
    """Return a setting as DescribeConfigs answers it."""
    return {
        "name": one.key.name,
        "value": one.value,
        "read_only": one.is_read_only,
        "config_source": int(one.source),
        "is_default": one.source is Source.DEFAULT,
        "is_sensitive": one.key.is_sensitive,
        "synonyms": [synonym._asdict() for synonym in one.synonyms] if synonyms else [],
        "config_type": int(one.key.type),
        "documentation": one.key.documentation if documentation else None,
    }


def unknown_topic(name: str) -> ApiError:
    """Return the error of settings of a topic that there is not."""
    return ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")


def check_resources(resources: Sequence[Any]) -> dict[int, ApiError]:
    """Return, by their positions, the errors of resources to be altered that are named twice."""
    positions: dict[tuple[int, str], list[int]] = {}
    for number, resource in enumerate(resources):
        positions.setdefault((resource.resource_type, resource.resource_name), []).append(number)
    error = ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
    return {number: error for found in positions.values() if len(found) > 1 for number in found}
