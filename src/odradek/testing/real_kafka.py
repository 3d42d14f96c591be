"""A broker that runs elsewhere, as the fixture `kafka` gives it: nothing inside it can be touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.errors import LogError, OptionError, UnknownTopicOrPartitionError
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.storage.config_def import ConfigValue, as_texts
from odradek.testing.produced import by_partition
from odradek.testing.wire import WireClient

_METADATA, _CREATE_TOPICS, _DELETE_TOPICS = (3, 7), (19, 5), (20, 5)
_OFFSET_COMMIT, _FIND_COORDINATOR, _DELETE_GROUPS = (8, 7), (10, 3), (42, 2)
_COORDINATOR_LATER = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
_PATIENCE_S = 30.0
_LOOK_S = 0.01
_OWN = ("clock", "fault", "logs", "path", "requests")


class RealKafka:
    """A broker at an address.

    Args:
        address: `HOST:PORT`.

    Raises:
        OptionError: The address has another form.
        OSError: No broker answers there.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise OptionError(f"--kafka-real wants HOST:PORT, not {address!r}")
        self.bootstrap_servers = address
        self._host, self._port = host.strip("[]"), int(port)
        self._call(_METADATA, {"topics": [], "allow_auto_topic_creation": False})

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OWN:
            pytest.skip(f"a broker of --kafka-real has no {name}")
        raise AttributeError(name)

    def _call(self, api: tuple[int, int], message: Mapping[str, Any]) -> Any:
        with WireClient(self._host, self._port) as client:
            return client.call(*api, message)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, ConfigValue] | None = None) -> None:
        """Create a topic, and return when it can be used.

        Raises:
            LogError: The broker refuses it.
            TimeoutError: The broker does not come round to it.
        """
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in as_texts(config).items()],
        }
        message = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
        created = self._call(_CREATE_TOPICS, message).topics[0]
        if created.error_code:
            raise LogError(f"topic {name}: {ErrorCode(created.error_code).name}: {created.error_message}")
        deadline = time.monotonic() + _PATIENCE_S
        while not self._is_led(name, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {name} has no leader")
            time.sleep(_LOOK_S)

    def _is_led(self, name: str, partitions: int) -> bool:
        message = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        topic = self._call(_METADATA, message).topics[0]
        return len(topic.partitions) == partitions and not any(one.error_code for one in topic.partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            UnknownTopicOrPartitionError: There is none.
            LogError: The broker refuses it.
        """
        deleted = self._call(_DELETE_TOPICS, {"topic_names": [name], "timeout_ms": 30_000}).responses[0]
        if deleted.error_code is ErrorCode.unknown_topic_or_partition:
            raise UnknownTopicOrPartitionError(name)
        if deleted.error_code:
            raise LogError(f"topic {name}: {ErrorCode(deleted.error_code).name}")

    def produce(
        self, topic: str, *values: bytes | Record | None, key: bytes | None = None, partition: int | None = None
    ) -> None:
        """Append records; see `Broker.produce`.

        Raises:
            OdradekError: There is no such topic, or it does not take a record.
        """
        from odradek.admin.producer import open_producer
        from odradek.admin.record_input import GivenRecord

        with open_producer(f"kafka://{self.bootstrap_servers}", topic) as producer:
            chosen = by_partition(values, key, partition, producer.partitions)
            producer.send([GivenRecord(number, record) for number, records in chosen.items() for record in records])

    def records(self, topic: str, *, isolation: Isolation = "read_uncommitted") -> list[Record]:
        """Return the records of a topic; see `Broker.records`.

        Raises:
            OdradekError: There is no such topic, or a batch is damaged.
        """
        from odradek.places.opening import open_place
        from odradek.sources.growing_partition import growing_partition

        found: list[Record] = []
        with open_place(f"kafka://{self.bootstrap_servers}") as place:
            for name in place.choose(topic):
                bounds = place.bounds(name, isolation)
                partition = growing_partition(place, name, isolation, pytest.fail)
                found += partition.read(bounds.start_offset, bounds.end_offset, isolation=isolation)
        return found

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group that has no members.

        Raises:
            BrokerError: The broker refuses it.
            TimeoutError: The broker does not come round to it.
        """
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            asked = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            topics.setdefault(topic, []).append({**asked, "committed_leader_epoch": -1})
        message = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }

        def codes_of(answer: Any) -> list[int]:
            return [partition.error_code for topic in answer.topics for partition in topic.partitions]

        self._call_coordinator(group, _OFFSET_COMMIT, message, codes_of)

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets.

        Raises:
            BrokerError: The broker refuses it.
            TimeoutError: The broker does not come round to it.
        """
        self._call_coordinator(
            group, _DELETE_GROUPS, {"groups_names": [group]}, lambda answer: [one.error_code for one in answer.results]
        )

    def _call_coordinator(
        self, group: str, api: tuple[int, int], message: Mapping[str, Any], codes_of: Callable[[Any], list[int]]
    ) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = self._call(_FIND_COORDINATOR, {"key": group, "key_type": 0})
            codes = [found.error_code]
            if not found.error_code:
                with WireClient(found.host, found.port) as client:
                    codes = codes_of(client.call(*api, message))
            code = ErrorCode(next(filter(None, codes), 0))
            if code is ErrorCode.none:
                return
            if code not in _COORDINATOR_LATER:
                raise ApiError(code)
            if time.monotonic() > deadline:
                raise TimeoutError(f"group {group} has no coordinator")
            time.sleep(_LOOK_S)
