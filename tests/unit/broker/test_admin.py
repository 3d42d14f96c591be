"""The administrative APIs over the wire. `tests/interop/test_broker_admin.py` compares them with Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.api import ADVERTISED
from odradek.broker.config import settings_with_effect
from odradek.broker.configs.broker_keys import BROKER_KEYS, DOCUMENTATION, TOPIC_SYNONYMS
from odradek.broker.configs.config_keys import as_java
from odradek.broker.configs.topic_keys import TOPIC_KEYS
from odradek.broker.running import BrokerThread
from odradek.storage.directory.broker_config import BROKER_CONFIGS
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH
from odradek.storage.topic_config import TOPIC_CONFIGS
from odradek.testing.wire import WireClient
from peers.broker_thread import connect, start
from peers.requests import ask, batch, message, new_topic
from peers.sized_requests import oldest_and_newest

_AUTHORIZED_OPERATIONS = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
METADATA, API_VERSIONS, CREATE, DELETE, DELETE_RECORDS, EPOCH = 3, 18, 19, 20, 21, 23
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER_LOG_DIRS, LOG_DIRS, GROW, ELECT, INCREMENTAL = 32, 33, 34, 35, 37, 43, 44
REASSIGN, LIST_REASSIGNMENTS, QUORUM, FEATURES, CLUSTER, LIST_CONFIGS, TOPIC_PARTITIONS = 45, 46, 55, 57, 60, 74, 75
TOPIC, BROKER = 2, 4
SET, REMOVE, APPEND = range(3)


def versions(key: int) -> list[int]:
    """The lowest and the highest version of an API."""
    return oldest_and_newest(ADVERTISED[key][1])


def create(client: WireClient, name: str, version: int = 7, **fields: Any) -> Any:
    (answer,) = ask(client, "CreateTopics", version, topics=[new_topic(name, **fields)]).topics
    return answer


def describe(client: WireClient, kind: int, name: str, version: int = 4) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    told = {"include_synonyms": True, "include_documentation": True}
    (answer,) = ask(client, "DescribeConfigs", version, resources=[resource], **told).results
    assert int(answer.error_code) == 0
    return {config.name: config for config in answer.configs}


def alter(client: WireClient, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (answer,) = ask(client, "IncrementalAlterConfigs", version, resources=[resource]).responses
    return answer


def append(running: BrokerThread, topic: str, count: int) -> None:
    data = bytearray(batch(*[b"v"] * count))
    running.call(lambda: running.broker.partitions.get(topic, 0).append(data))


@pytest.fixture
def events(running: BrokerThread, client: WireClient) -> str:
    assert int(create(client, "events", partitions=3).error_code) == 0
    append(running, "events", 5)
    return "events"


# -- topics


@pytest.mark.parametrize("version", versions(CREATE))
def test_a_topic_is_created(running: BrokerThread, client: WireClient, version: int) -> None:
    answer = create(client, "events", version, partitions=2, config={"retention.ms": "5000"})
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
    assert int(create(client, "wide", partitions=100).error_code) == 0
    assert len(running.broker.logs.metadata_image.topic("wide").partitions) == 100


def test_one_topic_that_fails_does_not_stop_the_others(client: WireClient, running: BrokerThread) -> None:
    # Each is valid beside the topics that there are; together they are not.
    answers = ask(client, "CreateTopics", 7, topics=[new_topic(name) for name in ("a.b", "a_b", "c")]).topics
    assert [(one.name, int(one.error_code)) for one in answers] == [("a.b", 0), ("a_b", 17), ("c", 0)]
    assert sorted(running.broker.logs.metadata_image.topics) == ["a.b", "c"]


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_is_deleted(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    topic_id = running.broker.logs.topic_id(events)
    topics = [{"name": None, "topic_id": topic_id}]
    (answer,) = ask(client, "DeleteTopics", version, topics=topics, topic_names=[events]).responses
    assert (answer.name, int(answer.error_code)) == (events, 0)
    assert running.broker.logs.metadata_image.topics.keys() & {events} == set()
    # It can be made again, empty.
    assert int(create(client, events).error_code) == 0
    assert running.call(lambda: running.broker.partitions.get(events, 0).log.log_end_offset) == 0


def test_topics_cannot_be_deleted_if_that_is_off(tmp_path: Path) -> None:
    names = {"topics": [{"name": "events", "topic_id": None}], "topic_names": ["events"]}
    with start(tmp_path / "off", **{"delete.topic.enable": False}) as running, connect(running) as client:
        create(client, "events")
        answers = [ask(client, "DeleteTopics", version, **names) for version in (1, 3, 6)]
    assert [int(answer.responses[0].error_code) for answer in answers] == [42, 73, 73]


@pytest.mark.parametrize("version", versions(GROW))
def test_a_topic_grows(running: BrokerThread, client: WireClient, events: str, version: int) -> None:
    topic = {"name": events, "count": 5, "assignments": None}
    (answer,) = ask(client, "CreatePartitions", version, topics=[topic]).results
    assert (answer.name, int(answer.error_code), answer.error_message) == (events, 0, None)
    assert len(running.broker.logs.metadata_image.topic(events).partitions) == 5


@pytest.mark.parametrize("version", versions(TOPIC_PARTITIONS))
def test_all_topics_in_portions(client: WireClient, events: str, version: int) -> None:
    create(client, "other", partitions=2)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
@pytest.mark.parametrize(
    ("policy", "offset", "code", "start"),
    [
        ("delete", 3, 0, 3),
        ("delete", -1, 0, 5),
        ("compact", 3, 44, 0),
        ("compact,delete", 3, 0, 3),
    ],
)
def test_records_are_deleted(
    running: BrokerThread, client: WireClient, version: int, policy: str, offset: int, code: int, start: int
) -> None:
    create(client, "events", config={"cleanup.policy": policy})
    running.broker.logs["events", 0].append_batches(batch(*[b"v"] * 5, key=b"k"))
    topic = {"name": "events", "partitions": [{"partition_index": 0, "offset": offset}]}
    (answer,) = ask(client, "DeleteRecords", version, topics=[topic]).topics[0].partitions
    assert (answer.low_watermark, int(answer.error_code)) == (-1 if code else start, code)
    assert running.broker.logs["events", 0].log_start_offset == start


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


@pytest.mark.slow
@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
def test_the_settings_of_a_topic(client: WireClient, version: int) -> None:
    create(client, "table", config={"cleanup.policy": "compact"})
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


@pytest.mark.slow
def test_what_a_topic_is_told_is_what_its_log_does(running: BrokerThread, client: WireClient) -> None:
    create(client, "events", config={"retention.ms": "5000"})
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
    config = {"log.retention.hours": 1, "ssl.keystore.password": "secret", "num.partitions": " 4 "}
    with start(tmp_path / "given", **config) as running, connect(running) as client:
        create(client, "events")
        configs = describe(client, BROKER, str(running.broker.node_id))
        assert describe(client, TOPIC, "events")["retention.ms"].value == "3600000"
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("4", 4)
    assert (configs["log.retention.hours"].value, configs["log.retention.ms"].value) == ("1", None)
    password = configs["ssl.keystore.password"]
    assert (password.value, password.is_sensitive, password.config_source) == (None, True, 4)
    assert [one.value for one in password.synonyms] == [None]


@pytest.mark.parametrize("version", versions(ALTER_CONFIGS))
def test_settings_are_replaced(client: WireClient, version: int) -> None:
    create(client, "table", config={"cleanup.policy": "compact"})
    resource = {
        "resource_type": TOPIC,
        "resource_name": "table",
        "configs": [{"name": "retention.ms", "value": "7000"}],
    }
    (answer,) = ask(client, "AlterConfigs", version, resources=[resource]).responses
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


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.backoff.ms", "77"),
        ("num.io.threads", "9"),
        ("background.threads", "11"),
        ("sasl.kerberos.min.time.before.relogin", "58000"),
        ("listener.name.plaintext.sasl.kerberos.min.time.before.relogin", "58000"),
        ("ssl.cipher.suites", ""),
    ],
)
def test_a_setting_that_has_no_effect_here_is_taken_and_described(
    running: BrokerThread, client: WireClient, key: str, value: str
) -> None:
    name = str(running.broker.node_id)
    assert int(alter(client, BROKER, name, (key, SET, value)).error_code) == 0
    described = describe(client, BROKER, name)
    if key in described:
        assert (described[key].value, described[key].config_source, described[key].read_only) == (value, 2, False)
    is_of_one_broker = "sasl" in key or "ssl" in key
    assert int(alter(client, BROKER, "", (key, SET, value)).error_code) == (42 if is_of_one_broker else 0)


@pytest.mark.parametrize(
    ("key", "value"), [("num.io.threads", "0"), ("background.threads", "many"), ("log.cleaner.backoff.ms", "-1")]
)
def test_a_setting_that_has_no_effect_here_is_checked(
    running: BrokerThread, client: WireClient, key: str, value: str
) -> None:
    assert ErrorCode(alter(client, BROKER, "", (key, SET, value)).error_code) is ErrorCode.invalid_request


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "..."),
        ("listener.name.plaintext.max.connections", "1"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("max.connections.per.ip.overrides", "127.0.0.1:1"),
        ("principal.builder.class", "org.example.Builder"),
        ("listener.name.plaintext.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
        ("cordoned.log.dirs", "*"),
    ],
)
def test_a_setting_that_would_not_restrict_is_refused(
    running: BrokerThread, client: WireClient, key: str, value: str
) -> None:
    answer = alter(client, BROKER, str(running.broker.node_id), (key, SET, value))
    assert (ErrorCode(answer.error_code), "restricts clients" in answer.error_message) == (
        ErrorCode.invalid_config,
        True,
    )


def test_settings_are_described_in_the_order_of_javas_hash_map(client: WireClient, events: str) -> None:
    assert list(describe(client, TOPIC, events))[:3] == [
        "compression.type",
        "errors.deadletterqueue.group.enable",
        "remote.copy.lag.bytes",
    ]


def test_the_only_controller_stays(running: BrokerThread, client: WireClient) -> None:
    own = running.broker.node_id

    def answers() -> list[tuple[int, str]]:
        found = [client.call(94, 0, {"controller_id": asked}) for asked in (own, own + 1)]
        return [(int(one.error_code), one.error_message) for one in found]

    stays = (42, "Controller cannot unregister itself while it is active.")
    too_old = "The current MetadataVersion is too old to support controller unregistration."
    assert answers() == [stays, (35, too_old)]
    update = {"feature": "metadata.version", "max_version_level": 33, "upgrade_type": 1}
    client.call(FEATURES, 1, {"timeout_ms": 9, "feature_updates": [update], "validate_only": False})
    assert answers() == [stays, (136, f"Controller ID {own + 1} is not currently registered.")]


def test_settings_of_the_broker_stay_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with start(tmp_path / "data") as running, connect(running) as client:
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
    assert {*DOCUMENTATION, *TOPIC_SYNONYMS.values()} == settings_with_effect() - untold | {"broker.id"}
    assert (
        settings_with_effect()
        <= set(BROKER_CONFIGS)
        == set(BROKER_KEYS) | {name for name, setting in BROKER_CONFIGS.items() if setting.mode == "internal"}
    )


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
    wanted = [{"topic": events, "partitions": [0, 9]}]
    (topic,) = ask(client, "ElectLeaders", version, topic_partitions=wanted).replica_election_results
    assert [int(one.error_code) for one in topic.partition_result] == [84, 3]


@pytest.mark.sampled
@pytest.mark.parametrize("version", versions(REASSIGN))
@pytest.mark.parametrize(("replicas", "code"), [([1], 0), ([2], 39), (None, 85)])
def test_partitions_stay_with_this_broker(
    client: WireClient, events: str, version: int, replicas: Sequence[int] | None, code: int
) -> None:
    topics = [{"name": events, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    answer = ask(client, "AlterPartitionReassignments", version, topics=topics, allow_replication_factor_change=True)
    assert int(answer.responses[0].partitions[0].error_code) == code
    assert ask(client, "ListPartitionReassignments", 0, topics=None).topics == ()


@pytest.mark.parametrize("version", versions(CLUSTER))
def test_the_cluster(running: BrokerThread, client: WireClient, version: int) -> None:
    answer = ask(client, "DescribeCluster", version, endpoint_type=1)
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
        answer = ask(client, "ApiVersions", 4)
        return answer.finalized_features_epoch, {one.name: one.max_version_level for one in answer.finalized_features}

    def update(name: str, level: int, kind: int) -> int:
        one = {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": True}
        return int(ask(client, "UpdateFeatures", version, feature_updates=[one], validate_only=False).error_code)

    before, levels = finalized()
    assert levels["transaction.version"] == 2
    if version:
        assert update("transaction.version", 1, 2) == 0
        after, levels = finalized()
        assert (levels["transaction.version"], after > before) == (1, True)
    assert update("transaction.version", 2, 1) == 0
    assert update("group.version", 2, 1) == 95


def test_a_feature_that_the_broker_does_not_have_is_not_advertised(client: WireClient) -> None:
    answer = ask(client, "ApiVersions", 4)
    assert {one.name for one in answer.finalized_features} <= {one.name for one in answer.supported_features}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", range(14))
def test_metadata_of_an_unknown_topic(client: WireClient, version: int) -> None:
    asks = {"allow_auto_topic_creation": True, **dict.fromkeys(_AUTHORIZED_OPERATIONS, True)}
    (topic,) = ask(client, "Metadata", version, topics=[{"name": "a b", "topic_id": None}], **asks).topics
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
    topics = [{"name": name, "topic_id": None} for name in asked]
    waits = client.send(METADATA, 9, message("Metadata", topics=topics, allow_auto_topic_creation=True))
    with connect(running) as other:
        assert other.call(API_VERSIONS, 0, {}).api_keys
    may_create.set()
    answered = client.receive(METADATA, 9, waits).topics
    assert {topic.name: int(topic.error_code) for topic in answered} == {**dict.fromkeys(names, 0), "a b": 17}
    assert set(running.broker.logs.metadata_image.topics) == set(names)


@pytest.mark.slow
def test_metadata_creates_no_topic_if_more_are_asked_for_than_kafka_creates_at_a_time(
    running: BrokerThread, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [{"name": f"t{n}", "topic_id": None} for n in range(MAX_PARTITIONS_PER_BATCH + 1)]
    topics = ask(client, "Metadata", 9, topics=asked, allow_auto_topic_creation=True).topics
    assert {int(topic.error_code) for topic in topics} == {3}
    assert not running.broker.logs.metadata_image.topics
    assert [record.levelname for record in caplog.records if "are not created" in record.getMessage()] == ["WARNING"]


def test_metadata_takes_ids_from_version_12_on(client: WireClient) -> None:
    topics = [{"name": None, "topic_id": UUID(int=1 << 100)}]
    answers = [ask(client, "Metadata", version, topics=topics) for version in (10, 11, 12, 13)]
    assert [int(answer.topics[0].error_code) for answer in answers] == [42, 42, 100, 100]
