"""The administrative APIs over the wire. `tests/interop/test_broker_admin.py` compares them with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.api import ADVERTISED
from odradek.broker.config import settings_with_effect
from odradek.broker.configs.broker_keys import BROKER_KEYS
from odradek.broker.configs.config_keys import as_java
from odradek.broker.configs.topic_keys import TOPIC_KEYS
from odradek.broker.running import BrokerThread
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.topic_config import TOPIC_CONFIGS, TopicConfig
from odradek.testing.wire import WireClient

_AUTHORIZED_OPERATIONS = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
METADATA, API_VERSIONS, CREATE, DELETE, DELETE_RECORDS, EPOCH = 3, 18, 19, 20, 21, 23
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER_LOG_DIRS, LOG_DIRS, GROW, ELECT, INCREMENTAL = 32, 33, 34, 35, 37, 43, 44
REASSIGN, LIST_REASSIGNMENTS, QUORUM, FEATURES, CLUSTER, LIST_CONFIGS, TOPIC_PARTITIONS = 45, 46, 55, 57, 60, 74, 75
TOPIC, BROKER = 2, 4
SET, REMOVE, APPEND = range(3)


def versions(key: int) -> list[int]:
    """The lowest and the highest version of an API."""
    of_api = ADVERTISED[key][1]
    return sorted({of_api[0], of_api[-1]})


def create(client: WireClient, name: str, version: int = 7, **fields: Any) -> Any:
    configs = [{"name": key, "value": value} for key, value in fields.pop("configs", {}).items()]
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": configs,
        **fields,
    }
    message = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    (answer,) = client.call(CREATE, version, message).topics
    return answer


def describe(client: WireClient, kind: int, name: str, version: int = 4) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    message = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (answer,) = client.call(DESCRIBE_CONFIGS, version, message).results
    assert int(answer.error_code) == 0
    return {config.name: config for config in answer.configs}


def alter(client: WireClient, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (answer,) = client.call(INCREMENTAL, version, {"resources": [resource], "validate_only": False}).responses
    return answer


def append(running: BrokerThread, topic: str, count: int) -> None:
    records = [Record(offset=number, timestamp=1_700_000_000_000, value=b"v") for number in range(count)]
    data = bytearray(build_batch(records))
    running.call(lambda: running.broker.partitions.get(topic, 0).append(data))


@pytest.fixture
def events(running: BrokerThread, client: WireClient) -> str:
    assert int(create(client, "events", num_partitions=3).error_code) == 0
    append(running, "events", 5)
    return "events"


# -- topics


@pytest.mark.parametrize("version", versions(CREATE))
def test_a_topic_is_created(running: BrokerThread, client: WireClient, version: int) -> None:
    answer = create(client, "events", version, num_partitions=2, configs={"retention.ms": "5000"})
    topic = running.broker.logs.metadata_image.topic("events")
    assert int(answer.error_code) == 0
    assert sorted(topic.partitions) == [0, 1]
    assert running.broker.logs.topic_config("events").retention_ms == 5000
    if version >= 5:
        configs = {config.name: config for config in answer.configs}
        assert (answer.topic_id, answer.num_partitions, answer.replication_factor) == (topic.topic_id, 2, 1)
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
        assert sorted(configs) == sorted(TOPIC_KEYS)


def test_many_partitions_are_created_in_another_thread(running: BrokerThread, client: WireClient) -> None:
    assert int(create(client, "wide", num_partitions=100).error_code) == 0
    assert len(running.broker.logs.metadata_image.topic("wide").partitions) == 100


def test_one_topic_that_fails_does_not_stop_the_others(client: WireClient, running: BrokerThread) -> None:
    # Each is valid beside the topics that there are; together they are not.
    names = ["a.b", "a_b", "c"]
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} for name in names
    ]
    answers = client.call(CREATE, 7, {"topics": topics, "timeout_ms": 10_000, "validate_only": False}).topics
    assert [(one.name, int(one.error_code)) for one in answers] == [("a.b", 0), ("a_b", 17), ("c", 0)]
    assert sorted(running.broker.logs.metadata_image.topics) == ["a.b", "c"]


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_is_deleted(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    topic_id = running.broker.logs.topic_id(events)
    state = {"name": None, "topic_id": topic_id}
    (answer,) = client.call(DELETE, version, {"topics": [state], "topic_names": [events], "timeout_ms": 9}).responses
    assert (answer.name, int(answer.error_code)) == (events, 0)
    assert running.broker.logs.metadata_image.topics.keys() & {events} == set()
    # It can be made again, empty.
    assert int(create(client, events).error_code) == 0
    assert running.call(lambda: running.broker.partitions.get(events, 0).log.log_end_offset) == 0


@pytest.fixture
def deletion_is_off(tmp_path: Path) -> Iterator[WireClient]:
    config: dict[str, ConfigValue] = {"listeners": "PLAINTEXT://127.0.0.1:0", "delete.topic.enable": False}
    with BrokerThread(tmp_path / "off", config, sync="off", background=False) as running:
        endpoint = running.endpoint()
        with WireClient(endpoint.host, endpoint.port) as client:
            yield client


def test_topics_cannot_be_deleted_if_that_is_off(deletion_is_off: WireClient) -> None:
    create(deletion_is_off, "events")
    message = {"topics": [{"name": "events", "topic_id": None}], "topic_names": ["events"], "timeout_ms": 9}
    codes = [int(deletion_is_off.call(DELETE, version, message).responses[0].error_code) for version in (1, 3, 6)]
    assert codes == [42, 73, 73]


@pytest.mark.parametrize("version", versions(GROW))
def test_a_topic_grows(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    topic = {"name": events, "count": 5, "assignments": None}
    (answer,) = client.call(GROW, version, {"topics": [topic], "timeout_ms": 9, "validate_only": False}).results
    assert (answer.name, int(answer.error_code), answer.error_message) == (events, 0, None)
    assert len(running.broker.logs.metadata_image.topic(events).partitions) == 5


@pytest.mark.parametrize("version", versions(TOPIC_PARTITIONS))
def test_all_topics_in_portions(client: WireClient, events: str, version: int) -> None:
    create(client, "other", num_partitions=2)
    cursor, found = None, []
    while True:
        message = {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        answer = client.call(TOPIC_PARTITIONS, version, message)
        found.append([(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions])
        if answer.next_cursor is None:
            break
        cursor = {name: getattr(answer.next_cursor, name) for name in ("topic_name", "partition_index")}
    assert found == [[(events, 0), (events, 1)], [(events, 2), ("other", 0)], [("other", 1)]]


# -- records


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
@pytest.mark.parametrize(("offset", "start"), [(3, 3), (-1, 5)])
def test_records_are_deleted(
    running: BrokerThread, client: WireClient, events: str, version: int, offset: int, start: int
) -> None:
    topic = {"name": events, "partitions": [{"partition_index": 0, "offset": offset}]}
    (answer,) = client.call(DELETE_RECORDS, version, {"topics": [topic], "timeout_ms": 9}).topics[0].partitions
    assert (answer.low_watermark, int(answer.error_code)) == (start, 0)
    assert running.call(lambda: running.broker.partitions.get(events, 0).log.log_start_offset) == start


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
@pytest.mark.parametrize(("policy", "code"), [("compact", 44), ("compact,delete", 0)])
def test_a_compacted_topic_keeps_its_records(
    running: BrokerThread, client: WireClient, version: int, policy: str, code: int
) -> None:
    create(client, "table", configs={"cleanup.policy": policy})
    topic = {"name": "table", "partitions": [{"partition_index": 0, "offset": 0}]}
    (answer,) = client.call(DELETE_RECORDS, version, {"topics": [topic], "timeout_ms": 9}).topics[0].partitions
    assert int(answer.error_code) == code


@pytest.mark.parametrize("version", versions(EPOCH))
def test_where_epochs_end(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    def ask(partition: int, current: int, wanted: int) -> tuple[int, int, int]:
        one = {"partition": partition, "current_leader_epoch": current, "leader_epoch": wanted}
        message = {"replica_id": -1, "topics": [{"topic": events, "partitions": [one]}]}
        (answer,) = client.call(EPOCH, version, message).topics[0].partitions
        return int(answer.error_code), answer.leader_epoch, answer.end_offset

    assert ask(0, 0, 0) == (0, 0, 5)
    assert ask(1, -1, 0) == (0, 0, 0)
    assert ask(0, 0, 1) == (0, -1, -1)
    assert ask(0, 7, 0) == (75, -1, -1)
    assert ask(9, 0, 0) == (3, -1, -1)


# -- settings


@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
def test_the_settings_of_a_topic(client: WireClient, version: int) -> None:
    create(client, "table", configs={"cleanup.policy": "compact"})
    configs = describe(client, TOPIC, "table", version)
    policy = configs["cleanup.policy"]
    assert set(configs) == set(TOPIC_KEYS)
    assert (policy.value, policy.config_source, policy.read_only) == ("compact", 1, False)
    assert [(one.name, one.value, one.source) for one in policy.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    if version >= 3:
        assert (policy.config_type, configs["retention.ms"].config_type) == (7, 5)
        assert all(config.documentation for config in configs.values())


def test_what_a_topic_is_told_is_what_its_log_does(running: BrokerThread, client: WireClient) -> None:
    create(client, "events", configs={"retention.ms": "5000"})
    for name, level, value in (
        ("log.retention.hours", None, None),
        ("log.segment.bytes", "1", "2097152"),
        ("log.retention.ms", "", "7000"),
    ):
        if level is not None:
            assert int(alter(client, BROKER, level, (name, SET, value)).error_code) == 0
        create(client, f"after-{name}")
        for topic in ("events", f"after-{name}"):
            log = running.call(partial(running.broker.partitions.get, topic, 0)).log
            told = {name: config.value for name, config in describe(client, TOPIC, topic).items()}
            assert told == {name: as_java(log.config.value(name)) for name in TOPIC_KEYS}
    assert describe(client, TOPIC, "after-log.retention.ms")["retention.ms"].value == "7000"


def test_settings_that_were_given_at_the_start(tmp_path: Path) -> None:
    config: dict[str, ConfigValue] = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.retention.hours": 1,
        "ssl.keystore.password": "secret",
        "num.partitions": " 4 ",
    }
    with BrokerThread(tmp_path / "given", config, sync="off", background=False) as running:
        endpoint = running.endpoint()
        with WireClient(endpoint.host, endpoint.port) as client:
            create(client, "events")
            configs = describe(client, BROKER, str(running.broker.node_id))
            assert describe(client, TOPIC, "events")["retention.ms"].value == "3600000"
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("4", 4)
    assert (configs["log.retention.hours"].value, configs["log.retention.ms"].value) == ("1", None)
    password = configs["ssl.keystore.password"]
    assert (password.value, password.is_sensitive, password.config_source) == (None, True, 4)
    assert [one.value for one in password.synonyms] == [None]


@pytest.mark.parametrize("version", versions(INCREMENTAL))
def test_settings_are_altered(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    changes = [("retention.ms", SET, "7000"), ("cleanup.policy", APPEND, "compact")]
    assert int(alter(client, TOPIC, events, *changes, version=version).error_code) == 0
    config = running.call(lambda: running.broker.partitions.get(events, 0).log.config)
    assert (config.retention_ms, config.cleanup_policy) == (7000, ("delete", "compact"))
    assert int(alter(client, TOPIC, events, ("retention.ms", REMOVE, None), version=version).error_code) == 0
    config = running.call(lambda: running.broker.partitions.get(events, 0).log.config)
    assert config.retention_ms == TopicConfig().retention_ms


@pytest.mark.parametrize("version", versions(ALTER_CONFIGS))
def test_settings_are_replaced(client: WireClient, version: int) -> None:
    create(client, "table", configs={"cleanup.policy": "compact"})
    resource = {
        "resource_type": TOPIC,
        "resource_name": "table",
        "configs": [{"name": "retention.ms", "value": "7000"}],
    }
    (answer,) = client.call(ALTER_CONFIGS, version, {"resources": [resource], "validate_only": False}).responses
    assert int(answer.error_code) == 0
    configs = describe(client, TOPIC, "table")
    assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("7000", "delete")


@pytest.mark.parametrize(
    ("key", "value", "smallest"),
    [
        ("log.retention.ms", "0", "-1"),
        ("log.roll.ms", "-1", "1"),
        ("log.roll.jitter.ms", "-1", "0"),
        ("max.connections", "0", "1"),
        ("max.connection.creation.rate", "0", "1"),
        ("max.connections.per.ip", "0", "1"),
    ],
)
def test_a_setting_of_the_broker_cannot_be_made_too_small(
    running: BrokerThread, client: WireClient, key: str, value: str, smallest: str
) -> None:
    for name in (str(running.broker.node_id), ""):
        assert ErrorCode(alter(client, BROKER, name, (key, SET, value)).error_code) is ErrorCode.invalid_request
        assert int(alter(client, BROKER, name, (key, SET, smallest)).error_code) == 0
        assert int(alter(client, BROKER, name, (key, REMOVE, None)).error_code) == 0


def test_settings_of_the_broker_stay_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with BrokerThread(tmp_path / "data", {"listeners": "PLAINTEXT://127.0.0.1:0"}, sync="off") as running:
            endpoint = running.endpoint()
            with WireClient(endpoint.host, endpoint.port) as client:
                name = str(running.broker.node_id)
                before = running.broker.config["max.connections"]
                assert int(alter(client, BROKER, name, ("max.connections", SET, "77")).error_code) == 0
                assert running.broker.config["max.connections"] == 77
    assert before == 77


@pytest.mark.parametrize("version", versions(LIST_CONFIGS))
def test_what_has_settings(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    answer = client.call(LIST_CONFIGS, version, {"resource_types": []})
    found = {(one.resource_type, one.resource_name) for one in answer.config_resources}
    assert found == ({(TOPIC, events), (BROKER, str(running.broker.node_id))} if version else set())


def test_there_is_a_definition_of_each_setting() -> None:
    assert set(TOPIC_KEYS) | {"internal.segment.bytes"} == set(TOPIC_CONFIGS)
    # Kafka does not tell of these two; broker.id is another name of node.id.
    untold = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}
    assert set(BROKER_KEYS) == settings_with_effect() - untold | {"broker.id"}


# -- the cluster


@pytest.mark.parametrize("version", versions(LOG_DIRS))
def test_sizes(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    (folder,) = client.call(LOG_DIRS, version, {"topics": None}).results
    ((topic),) = folder.topics
    size = running.call(lambda: running.broker.partitions.get(events, 0).log.size_bytes)
    assert folder.log_dir == str(running.broker.logs.path)
    assert [(one.partition_index, one.partition_size) for one in topic.partitions] == [(0, size), (1, 0), (2, 0)]
    assert size > 0
    if version >= 4:
        assert 0 < folder.usable_bytes <= folder.total_bytes


@pytest.mark.parametrize("version", versions(ALTER_LOG_DIRS))
def test_partitions_stay_in_their_folder(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    def ask(path: str) -> list[int]:
        message = {"dirs": [{"path": path, "topics": [{"name": events, "partitions": [0, 9]}]}]}
        (topic,) = client.call(ALTER_LOG_DIRS, version, message).results
        return [int(one.error_code) for one in topic.partitions]

    assert ask(str(running.broker.logs.path)) == [0, 9]
    assert ask("/no/such") == [57, 57]


@pytest.mark.parametrize("version", versions(ELECT))
def test_no_leader_is_elected(client: WireClient, events: str, version: int) -> None:
    message = {"election_type": 0, "timeout_ms": 9, "topic_partitions": [{"topic": events, "partitions": [0, 9]}]}
    (topic,) = client.call(ELECT, version, message).replica_election_results
    assert [int(one.error_code) for one in topic.partition_result] == [84, 3]


@pytest.mark.parametrize("version", versions(REASSIGN))
@pytest.mark.parametrize(("replicas", "code"), [([1], 0), ([2], 39), (None, 85)])
def test_partitions_stay_with_this_broker(
    client: WireClient, events: str, version: int, replicas: Sequence[int] | None, code: int
) -> None:
    topic = {"name": events, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    message = {"timeout_ms": 9, "topics": [topic], "allow_replication_factor_change": True}
    (answer,) = client.call(REASSIGN, version, message).responses[0].partitions
    assert int(answer.error_code) == code
    assert client.call(LIST_REASSIGNMENTS, 0, {"timeout_ms": 9, "topics": None}).topics == ()


@pytest.mark.parametrize("version", versions(CLUSTER))
def test_the_cluster(running: BrokerThread, client: WireClient, version: int) -> None:
    message = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    answer = client.call(CLUSTER, version, message)
    (broker,) = answer.brokers
    assert (answer.cluster_id, answer.controller_id) == (running.broker.cluster_id, running.broker.node_id)
    assert (broker.host, broker.port) == (running.endpoint().host, running.endpoint().port)


@pytest.mark.parametrize("version", versions(QUORUM))
def test_the_quorum(running: BrokerThread, client: WireClient, version: int) -> None:
    message = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    before, _, after = (
        client.call(QUORUM, version, message).topics[0].partitions[0] if ask else create(client, "events")
        for ask in (True, False, True)
    )
    assert [voter.replica_id for voter in after.current_voters] == [after.leader_id] == [running.broker.node_id]
    assert after.high_watermark > before.high_watermark


@pytest.mark.parametrize("version", versions(FEATURES))
def test_features_change(running: BrokerThread, client: WireClient, version: int) -> None:
    def finalized() -> tuple[int, dict[str, int]]:
        answer = client.call(API_VERSIONS, 4, {"client_software_name": "test", "client_software_version": "1"})
        return answer.finalized_features_epoch, {one.name: one.max_version_level for one in answer.finalized_features}

    def update(name: str, level: int, kind: int) -> int:
        one = {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": True}
        message = {"timeout_ms": 9, "feature_updates": [one], "validate_only": False}
        return int(client.call(FEATURES, version, message).error_code)

    before, levels = finalized()
    assert levels["transaction.version"] == 2
    if version:
        assert update("transaction.version", 1, 2) == 0
        after, levels = finalized()
        assert (levels["transaction.version"], after > before) == (1, True)
    assert update("transaction.version", 2, 1) == 0
    assert update("group.version", 1, 1) == 95


def test_a_feature_that_the_broker_does_not_have_is_not_advertised(client: WireClient) -> None:
    answer = client.call(API_VERSIONS, 4, {"client_software_name": "test", "client_software_version": "1"})
    assert {one.name for one in answer.finalized_features} <= {one.name for one in answer.supported_features}


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_an_unknown_topic(client: WireClient, version: int) -> None:
    message = {
        "topics": [{"name": "a b", "topic_id": None}],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    (topic,) = client.call(METADATA, version, message).topics
    assert (topic.name, int(topic.error_code)) == ("a b", 17)


def test_many_topics_are_created_by_metadata_while_other_requests_are_answered(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_create, create_topics = Event(), WritableLogDirectory.create_topics

    def waiting(*arguments: Any, **options: Any) -> Any:
        assert may_create.wait(60)
        return create_topics(*arguments, **options)

    monkeypatch.setattr(WritableLogDirectory, "create_topics", waiting)
    names = [f"topic-{number}" for number in range(20)]
    asked = [*names, names[0], "a b"]
    message = {"topics": [{"name": name, "topic_id": None} for name in asked], "allow_auto_topic_creation": True}
    waits = client.send(METADATA, 9, {**message, **dict.fromkeys(_AUTHORIZED_OPERATIONS, False)})
    endpoint = running.endpoint()
    with WireClient(endpoint.host, endpoint.port) as other:
        assert other.call(API_VERSIONS, 0, {}).api_keys
    may_create.set()
    topics = client.receive(METADATA, 9, waits).topics
    assert {topic.name: int(topic.error_code) for topic in topics} == {**dict.fromkeys(names, 0), "a b": 17}
    assert set(running.broker.logs.metadata_image.topics) == set(names)


def test_metadata_takes_ids_from_version_12_on(client: WireClient) -> None:
    asks = {"allow_auto_topic_creation": False} | dict.fromkeys(
        ("include_cluster_authorized_operations", "include_topic_authorized_operations"), False
    )
    message = {"topics": [{"name": None, "topic_id": UUID(int=1 << 100)}], **asks}
    codes = [int(client.call(METADATA, version, message).topics[0].error_code) for version in (10, 11, 12, 13)]
    assert codes == [42, 42, 100, 100]
