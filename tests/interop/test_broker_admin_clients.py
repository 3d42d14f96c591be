"""Administrators' clients and Kafka's own tools on our broker."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import confluent_kafka.admin
from confluent_kafka import TopicCollection
from confluent_kafka import TopicPartition as Position
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from odradek.broker.running import BrokerThread
from odradek.records.kernels.objects import Record
from peers.kafka_tools import KafkaTools
from peers.process import PATIENCE

TIMEOUT_S = 30 * PATIENCE
# mypy takes the names for private.
confluent: Any = confluent_kafka.admin


def result(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def append(running: BrokerThread, topic: str, count: int) -> None:
    running.broker.logs[topic, 0].append([Record(value=b"v") for _ in range(count)])


def test_confluent_kafka(running: BrokerThread, servers: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": servers})
    name = "confluent"
    result(admin.create_topics([confluent.NewTopic(name, 2, 1, config={"retention.ms": "5000"})]))
    append(running, name, 10)
    result(admin.create_partitions([confluent.NewPartitions(name, 3)]))
    described = result(admin.describe_topics(TopicCollection([name])))
    assert (described.name, len(described.partitions), described.partitions[0].leader.id) == (name, 3, 1)

    resource = confluent.ConfigResource(confluent.ResourceType.TOPIC, name)
    change = confluent.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=confluent.AlterConfigOpType.APPEND
    )
    altered = confluent.ConfigResource(confluent.ResourceType.TOPIC, name, incremental_configs=[change])
    result(admin.incremental_alter_configs([altered]))
    configs = result(admin.describe_configs([resource]))
    assert (configs["cleanup.policy"].value, configs["retention.ms"].value) == ("delete,compact", "5000")
    assert (configs["retention.ms"].is_default, configs["segment.ms"].is_default) == (False, True)
    broker = result(admin.describe_configs([confluent.ConfigResource(confluent.ResourceType.BROKER, "1")]))
    assert (broker["num.partitions"].value, broker["num.partitions"].is_read_only) == ("1", True)

    deleted = result(admin.delete_records([Position(name, 0, 4)]))
    assert deleted.low_watermark == 4
    offsets = result(admin.list_offsets({Position(name, 0): confluent.OffsetSpec.earliest()}))
    assert offsets.offset == 4
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert (cluster.cluster_id, [node.id for node in cluster.nodes]) == (running.broker.cluster_id, [1])
    assert admin.list_topics(name, timeout=TIMEOUT_S).topics[name].error is None
    result(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_kafka_python(running: BrokerThread, servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    name = "python"
    try:
        admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "5000"})])
        append(running, name, 10)
        admin.create_partitions({name: NewPartitions(3)})
        (topic,) = admin.describe_topics([name])
        assert len(topic["partitions"]) == 3
        assert name in admin.list_topics()
        assert admin.describe_cluster()["cluster_id"] == running.broker.cluster_id
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


def test_kafka_topics(kafka_tools: KafkaTools, servers: str) -> None:
    name = "tool"
    create = ("--create", "--topic", name, "--partitions", "2", "--config", "cleanup.policy=compact")
    assert f"Created topic {name}." in kafka_tools.topics(servers, *create).check().stdout
    kafka_tools.topics(servers, "--create", "--topic", "assigned", "--replica-assignment", "1,1").check()
    again = kafka_tools.topics(servers, *create)
    assert (again.code, "Topic 'tool' already exists." in again.stdout + again.stderr) == (1, True)
    kafka_tools.topics(servers, "--create", "--topic", name, "--if-not-exists").check()
    kafka_tools.topics(servers, "--alter", "--topic", name, "--partitions", "3").check()
    described = kafka_tools.topics(servers, "--describe", "--topic", name).check().stdout
    assert "PartitionCount: 3\tReplicationFactor: 1\t" in described
    # Kafka's controller sets min.insync.replicas for every broker.
    assert "Configs: min.insync.replicas=1,cleanup.policy=compact\n" in described
    assert "Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1" in described
    assert kafka_tools.topics(servers, "--describe", "--unavailable-partitions").check().stdout.strip() == ""
    kafka_tools.topics(servers, "--delete", "--topic", name).check()
    assert name not in kafka_tools.topics(servers, "--list").check().stdout.split()


def test_kafka_configs(kafka_tools: KafkaTools, servers: str) -> None:
    kafka_tools.topics(servers, "--create", "--topic", "set").check()
    topic = ("--entity-type", "topics", "--entity-name", "set")
    kafka_tools.configs(servers, *topic, "--alter", "--add-config", "retention.ms=7000,flush.ms=9").check()
    kafka_tools.configs(servers, *topic, "--alter", "--delete-config", "flush.ms").check()
    own = kafka_tools.configs(servers, *topic, "--describe").check().stdout
    assert "retention.ms=7000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7000}" in own
    assert "flush.ms" not in own
    every = kafka_tools.configs(servers, *topic, "--describe", "--all").check().stdout
    assert "cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}" in every

    brokers = ("--entity-type", "brokers", "--entity-default")
    kafka_tools.configs(servers, *brokers, "--alter", "--add-config", "max.connections=900").check()
    assert "max.connections=900" in kafka_tools.configs(servers, *brokers, "--describe").check().stdout
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    refused = kafka_tools.configs(servers, *broker, "--alter", "--add-config", "num.partitions=3")
    assert "Cannot update these configs dynamically: [num.partitions]" in refused.stdout + refused.stderr
    assert "max.connections=900" in kafka_tools.configs(servers, *broker, "--describe", "--all").check().stdout

    groups = ("--entity-type", "groups", "--entity-name", "g")
    kafka_tools.configs(servers, *groups, "--alter", "--add-config", "consumer.session.timeout.ms=50000").check()
    assert "consumer.session.timeout.ms=50000" in kafka_tools.configs(servers, *groups, "--describe").check().stdout


def test_kafka_log_dirs_and_replicas(
    kafka_tools: KafkaTools, running: BrokerThread, servers: str, tmp_path: Path
) -> None:
    kafka_tools.topics(servers, "--create", "--topic", "sized").check()
    append(running, "sized", 3)
    size = running.broker.logs["sized", 0].size_bytes
    dirs = ("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", servers, "--describe")
    shown = kafka_tools.run(*dirs, "--topic-list", "sized").check().stdout
    assert f'"partition":"sized-0","size":{size},"offsetLag":0,"isFuture":false' in shown
    assert f'"logDir":"{running.broker.logs.path}"' in shown

    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"sized","partition":0,"replicas":[1]}]}', encoding="utf-8")
    reassign = ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", servers)
    kafka_tools.run(*reassign, "--reassignment-json-file", plan, "--execute").check()
    done = kafka_tools.run(*reassign, "--reassignment-json-file", plan, "--verify").check().stdout
    assert "Reassignment of partition sized-0 is completed." in done
    elect = ("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", servers)
    elected = kafka_tools.run(*elect, "--election-type", "preferred", "--topic", "sized", "--partition", "0")
    assert "Valid replica already elected for partitions sized-0" in elected.stdout + elected.stderr


def test_kafka_delete_records(kafka_tools: KafkaTools, running: BrokerThread, servers: str, tmp_path: Path) -> None:
    kafka_tools.topics(servers, "--create", "--topic", "cut").check()
    append(running, "cut", 10)
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"version":1,"partitions":[{"topic":"cut","partition":0,"offset":6}]}', encoding="utf-8")
    command = ("org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", servers)
    shown = kafka_tools.run(*command, "--offset-json-file", offsets).check().stdout
    assert "partition: cut-0\tlow_watermark: 6" in shown
    assert running.broker.logs["cut", 0].log_start_offset == 6


def test_the_cluster(kafka_tools: KafkaTools, running: BrokerThread, servers: str) -> None:
    quorum = ("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", servers, "describe")
    status = kafka_tools.run(*quorum, "--status").check().stdout
    assert running.broker.cluster_id is not None
    assert running.broker.cluster_id in status
    assert "LeaderId:               1" in status
    replication = kafka_tools.run(*quorum, "--replication").check().stdout
    assert [line.split()[0] for line in replication.splitlines()[1:]] == ["1"]
    features = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", servers, "describe")
    assert "Feature: transaction.version" in kafka_tools.run(*features).check().stdout
    versions = ("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", servers)
    assert "CreateTopics(19): 2 to 7 [usable: 7]" in kafka_tools.run(*versions).check().stdout
    command = ("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", servers)
    assert running.broker.cluster_id in kafka_tools.run(*command).check().stdout
