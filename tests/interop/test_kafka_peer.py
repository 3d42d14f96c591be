"""The broker and the tools that other tests trust: do they say of the fixtures what is stored beside them?"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools, ToolResult
from peers.ledger import require_same


def _produce(tools: KafkaTools, broker: KafkaBroker, topic: str, count: int) -> None:
    tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--num-records", str(count), "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all"),
    ).check()


@pytest.fixture(scope="module")
def broker_on_fixture(
    kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    log_dir = tmp_path_factory.mktemp("on-fixture") / "log-dir"
    shutil.copytree(fixture_4_3_1.log_dir, log_dir)
    with KafkaBroker(kafka_tools, log_dir) as broker:
        yield broker


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_java_consumer_sees_what_it_saw_when_the_fixture_was_made(
    kafka_tools: KafkaTools, broker_on_fixture: KafkaBroker, fixture_4_3_1: KafkaFixture, isolation: str
) -> None:
    stored = fixture_4_3_1.consumed if isolation == "read_uncommitted" else fixture_4_3_1.consumed_committed

    consumed = kafka_tools.consume(broker_on_fixture.bootstrap_servers, fixture_4_3_1.topics, isolation=isolation)

    assert consumed.keys() == stored.keys()
    for name, partition in stored.items():
        assert consumed[name] == partition, name


def test_java_consumer_reads_after_a_crash(
    kafka_tools: KafkaTools, kafka_broker: BrokerFactory, fixture_4_3_1: KafkaFixture, tmp_path: Path
) -> None:
    log_dir = Path(shutil.copytree(fixture_4_3_1.log_dir_unclean, tmp_path / "unclean"))

    consumed = kafka_tools.consume(kafka_broker(log_dir).bootstrap_servers, fixture_4_3_1.topics)

    stored = dict(fixture_4_3_1.consumed)
    # The crash came before the log start offset was written down, so the log begins with its first segment again.
    reappeared, kept = consumed.pop("truncated-head-0"), stored.pop("truncated-head-0")
    assert reappeared["logStartOffset"] == int(min((log_dir / "truncated-head-0").glob("*.log")).stem)
    require_same(
        [record for record in reappeared["records"] if record["offset"] >= kept["logStartOffset"]],
        kept["records"],
        "the records",
    )
    assert consumed == stored


def test_tools_that_ask_a_broker(
    kafka_tools: KafkaTools, broker_on_fixture: KafkaBroker, fixture_4_3_1: KafkaFixture
) -> None:
    servers = broker_on_fixture.bootstrap_servers

    latest = kafka_tools.get_offsets(servers, "--exclude-internal-topics")
    earliest = kafka_tools.get_offsets(servers, "--topic", "truncated-head", "--time", "earliest")
    described = kafka_tools.configs(servers, "--describe", "--topic", "v2-append-time").check().stdout
    printed = kafka_tools.console_consume(servers, "keyed", "--from-beginning", "--max-messages", "3").check().stdout

    assert {f"{topic}-{partition}": offset for (topic, partition), offset in latest.items()} == {
        name: partition["highWatermark"] for name, partition in fixture_4_3_1.consumed.items()
    }
    assert earliest == {("truncated-head", 0): fixture_4_3_1.consumed["truncated-head-0"]["logStartOffset"]}
    assert "message.timestamp.type=LogAppendTime" in described
    values = {base64.b64decode(record["value"]).decode("utf-8", "replace") for record in _keyed(fixture_4_3_1)}
    assert set(printed.splitlines()) <= values


def _keyed(fixture: KafkaFixture) -> list[dict[str, str]]:
    records = [record for number in range(3) for record in fixture.consumed[f"keyed-{number}"]["records"]]
    return [record for record in records if record["value"] is not None]


def test_consumer_group_describe_names_the_lag(
    kafka_tools: KafkaTools, broker_on_fixture: KafkaBroker, fixture_4_3_1: KafkaFixture
) -> None:
    servers = broker_on_fixture.bootstrap_servers
    # It commits what it has read as it ends.
    end = ("--max-messages", "1200", "--timeout-ms", "60000")
    kafka_tools.console_consume(servers, "v2-none", "--group", "peer-lag", "--from-beginning", *end).check()

    (row,) = kafka_tools.consumer_group_describe(servers, "peer-lag")

    assert (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) == ("v2-none", "0", "1200", "0")
    assert kafka_tools.consumer_group_describe(servers, "never-seen") == []


def test_dump_tool_prints_what_it_printed_when_the_fixture_was_made(
    older_kafka: KafkaTools, fixture_4_3_1: KafkaFixture
) -> None:
    stored = sorted(fixture_4_3_1.dump.glob("*.txt"))
    assert stored
    for expected in stored:
        partition = fixture_4_3_1.log_dir / expected.stem
        decoder = {"__consumer_offsets-0": "--offsets-decoder", "__transaction_state-0": "--transaction-log-decoder"}
        flags = [decoder[expected.stem]] if expected.stem in decoder else []
        files = [
            path
            for path in sorted(partition.iterdir())
            if path.suffix in {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
        ]
        printed = older_kafka.dump_log(files, "--print-data-log", *flags).check().stdout
        printed = printed.replace(f"{fixture_4_3_1.log_dir}/", "")
        assert printed == expected.read_bytes().decode("utf-8", "surrogateescape"), expected.stem


def test_exit_code_and_complaint_of_a_tool_come_back(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    refused = kafka_tools.dump_log(tmp_path / "x.log", "--no-such-flag")
    missing = kafka_tools.dump_log(tmp_path / "00000000000000000000.log")
    helped = kafka_tools.run("org.apache.kafka.tools.DumpLogSegments", "--version")

    assert (refused.code, "no-such-flag" in refused.stderr) == (1, True)
    assert (missing.code, "NoSuchFileException" in missing.stderr) == (1, True)
    assert (helped.code, helped.stdout.startswith(kafka_tools.version)) == (0, True)
    with pytest.raises(AssertionError, match="ended with 1"):
        ToolResult.check(refused)


def test_a_tool_that_hangs_is_ended(kafka_tools: KafkaTools, broker_on_fixture: KafkaBroker) -> None:
    endless = ["--bootstrap-server", broker_on_fixture.bootstrap_servers, "--topic", "empty"]

    with pytest.raises(TimeoutError, match="ConsoleConsumer"):
        kafka_tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *endless, timeout_s=2)

    assert kafka_tools.topics(broker_on_fixture.bootstrap_servers, "--list").check().stdout


@pytest.mark.laboratory  # it kills
def test_broker_keeps_acknowledged_records_over_kill_and_stop(
    kafka_tools: KafkaTools, kafka_broker: BrokerFactory
) -> None:
    broker = kafka_broker()
    kafka_tools.topics(broker.bootstrap_servers, "--create", "--topic", "kept", "--partitions", "1").check()
    _produce(kafka_tools, broker, "kept", 500)
    broker.kill()
    assert not (broker.log_dir / ".kafka_cleanshutdown").exists()

    broker.start()
    _produce(kafka_tools, broker, "kept", 250)
    broker.stop()
    assert json.loads((broker.log_dir / ".kafka_cleanshutdown").read_text())["version"] == 0
    broker.start()

    records = kafka_tools.consume(broker.bootstrap_servers, "kept")["kept-0"]["records"]
    require_same([record["offset"] for record in records], list(range(750)), "the records")


def test_broker_that_cannot_start_says_why(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    (tmp_path / "kafka-0" / "no-log-of-ours").mkdir(parents=True)
    (tmp_path / "kafka-0" / "no-log-of-ours" / "note").touch()

    with pytest.raises(RuntimeError, match="no-log-of-ours"):
        kafka_broker()
