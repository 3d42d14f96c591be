"""Delegation tokens at Apache Kafka and at ours: the same rules, one folder in turn, and Kafka's own tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peers import command
from peers.fixtures import BROKERS, broker_of
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.process import free_port
from peers.tokens import CONFIG, DAY_MS, HOUR_MS, RULES, SCRAM, Broker, Token, until

pytestmark = pytest.mark.compared

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
TOPIC = 2
DESCRIBE = 8


@contextmanager
def served(kind: str, tools: KafkaTools, log_dir: Path, **config: str) -> Iterator[Broker]:
    """Serves a folder by Apache Kafka or by our broker."""
    settings = {**CONFIG, **{name.replace("_", "."): text for name, text in config.items()}}
    broker: Any = broker_of(kind, tools, log_dir, settings)
    port = free_port()
    for name in ("listeners", "advertised.listeners"):
        plain = broker.config.get(name, f"PLAINTEXT://127.0.0.1:{broker.port}")
        broker.config[name] = f"{plain},SASL://127.0.0.1:{port}"
    with broker:
        yield Broker(broker.port, port)


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    with served(request.param, kafka_tools, tmp_path_factory.mktemp("tokens") / "log-dir") as broker:
        yield broker


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_both_follow_the_rules(broker: Broker, rule: Callable[[Broker], None]) -> None:
    rule(broker)


def test_kafkas_tools_get_a_token_and_use_it(broker: Broker, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    server = f"127.0.0.1:{broker.sasl_port}"

    def properties(mechanism: str, module: str, name: str, password: str, more: str = "") -> Path:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": (
                f'org.apache.kafka.common.security.{module} required username="{name}" password="{password}"{more};'
            ),
        }
        return write_properties(tmp_path / "client.properties", settings)

    def ask(*flags: str) -> str:
        config = properties("PLAIN", "plain.PlainLoginModule", "bob", "bob-secret")
        return kafka_tools.run(TOOL, "--bootstrap-server", server, "--command-config", config, *flags).check().stdout

    def sees_events(*listing: str) -> bool | None:
        return "events" in kafka_tools.topics(server, *listing).check().stdout or None

    told = ask("--create", "--max-life-time-period", str(DAY_MS), "--renewer-principal", "User:carol")
    match = re.search(r"^(\S{22})\s+(\S{86}==)\s+User:bob\s+User:bob\s+\[User:carol\]", told, re.MULTILINE)
    assert match is not None, told
    token_id, secret = match.groups()
    until(lambda: token_id in ask("--describe", "--owner-principal", "User:bob") or None)
    assert "Completed renew operation" in ask("--renew", "--renew-time-period", str(HOUR_MS), "--hmac", secret)
    broker.allow("bob", DESCRIBE, TOPIC, "events")
    with broker.stranger() as client:
        new = {"name": "events", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        client.call(19, 7, {"topics": [new], "timeout_ms": 10_000, "validate_only": False})
    for mechanism in SCRAM:
        config = properties(mechanism, "scram.ScramLoginModule", token_id, secret, ' tokenauth="true"')
        listing = ("--list", "--command-config", str(config))
        until(partial(sees_events, *listing))
    assert "Completed expire operation" in ask("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    until(lambda: token_id not in ask("--describe") or None)


@pytest.mark.laboratory  # client programs
def test_tokens_go_from_one_to_the_other(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    made: dict[str, Token] = {}

    def serve_by(kind: str, before: set[str]) -> set[str]:
        """Serves the folder: tokens made before are used and changed, new ones made; returns those that are left."""
        with (
            served(kind, kafka_tools, log_dir) as broker,
            broker.user("alice") as alice,
            broker.user("bob") as bob,
        ):
            assert {name for name, token in made.items() if token.id in alice.described()} == before
            for name in before:
                assert alice.described()[made[name].id] == made[name]
                assert broker.logs_in(made[name], mechanism=SCRAM[len(name) % 2]) == ("kept" in name), name
            for name in [name for name in before if "kept" in name]:
                changed = bob.renew(made[name].hmac, 2 * HOUR_MS)
                assert changed.error == "NONE"
                made[name] = made[name]._replace(expires=changed.expires)
            for name in [name for name in before if "over" in name]:
                assert alice.renew(made[name].hmac).error == "DELEGATION_TOKEN_EXPIRED"
                assert alice.expire(made[name].hmac).error == "NONE"
            for name in ("kept", "removed", "over"):
                made[f"{name} {kind}"] = alice.created("User:bob", lifetime_ms=3 * DAY_MS)
            assert alice.expire(made[f"removed {kind}"].hmac).error == "NONE"
            over = made[f"over {kind}"]
            made[f"over {kind}"] = over._replace(expires=alice.expire(over.hmac, 0).expires)
            return {f"kept {kind}", f"over {kind}"} | {name for name in before if "kept" in name}

    left = serve_by("kafka", set())
    left = serve_by("odradek", left)
    by_kafka = [one for one in dumped_by_kafka(kafka_tools, log_dir) if "DELEGATION_TOKEN" in one["type"]]
    assert {one["type"] for one in by_kafka} == {"DELEGATION_TOKEN_RECORD", "REMOVE_DELEGATION_TOKEN_RECORD"}
    assert {one["data"]["tokenId"] for one in by_kafka} == {token.id for token in made.values()}
    assert serve_by("kafka", left) == {"kept kafka", "over kafka", "kept odradek"}
    assert command.run("verify", log_dir).exit_code == 0


def dumped_by_kafka(tools: KafkaTools, log_dir: Path) -> list[dict[str, Any]]:
    files = sorted((log_dir / "__cluster_metadata-0").glob("*.log"))
    text = tools.dump_log(files, "--cluster-metadata-decoder", "--print-data-log").check().stdout
    return [json.loads(line[line.index("payload: ") + 9 :]) for line in text.splitlines() if "payload: {" in line]


def test_a_secret_that_differs_lets_no_token_of_the_other_in(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    with served("odradek", kafka_tools, log_dir) as broker, broker.user("alice") as alice:
        token = alice.created()
    with served("kafka", kafka_tools, log_dir, delegation_token_secret_key="another") as broker:
        assert not broker.logs_in(token)
        with broker.user("alice") as alice:
            assert alice.described()[token.id].hmac != token.hmac
            assert alice.renew(token.hmac).error == "DELEGATION_TOKEN_NOT_FOUND"
