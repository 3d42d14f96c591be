"""ACLs beside Apache Kafka: random ones decide the same, its tool changes them, its folder carries them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.restrictions import STANDARD_AUTHORIZER
from peers.acl_judge import PASSWORDS, Judged, compare
from peers.acl_requests import SETS_TOGETHER
from peers.fixtures import BROKERS, broker_of
from peers.kafka_tools import KafkaTools
from peers.process import Server, free_port

ACLS = "org.apache.kafka.tools.AclCommand"
REQUESTS = 25
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""Whoever does not log in may do everything, as the broker and the controller of Apache Kafka have to."""


def secured(which: str, tools: KafkaTools, log_dir: Path, everybody: str) -> tuple[Server, int]:
    """Returns a broker that asks for passwords, not started yet, and the port where it does."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    silent = "36000000"
    config = {
        **AUTHORIZER,
        "allow.everyone.if.no.acl.found": everybody,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "delegation.token.secret.key": "a secret key",
        "controller.quorum.append.linger.ms": "0",
        "share.coordinator.state.topic.num.partitions": "1",
        **{
            f"group.{group}.{most}session.timeout.ms": silent
            for group in ("consumer", "share")
            for most in ("", "max.")
        },
    }
    broker: Any = broker_of(which, tools, log_dir, config)
    port = free_port()
    for name in ("listeners", "advertised.listeners"):
        plain = broker.config.get(name, f"PLAINTEXT://127.0.0.1:{broker.port}")
        broker.config[name] = f"{plain},SASL://127.0.0.1:{port}"
    return broker, port


@pytest.fixture(params=["false", "true"])
def judged(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path: Path
) -> Iterator[tuple[list[Judged], bool]]:
    """Apache Kafka and this broker, and whether everybody may do what no ACL is about."""
    with ExitStack() as stack:
        found = []
        for kind in BROKERS:
            broker, port = secured(kind, kafka_tools, tmp_path / kind, request.param)
            stack.enter_context(broker)
            found.append(stack.enter_context(closing(Judged(kind, broker.port, port))))
        for one in found:
            one.set_up()
        yield found, request.param == "true"


@pytest.mark.parametrize("sets", [200, pytest.param(10_000, marks=pytest.mark.laboratory)])
@pytest.mark.laboratory  # it searches at random
def test_random_acls_decide_as_those_of_apache_kafka(judged: tuple[list[Judged], bool], sets: int) -> None:
    """All 10,000 sets: `pytest -n 0 -m laboratory tests/interop/test_broker_acls.py`, which takes half an hour."""
    brokers, is_allowed_without = judged
    # If an ACL of another set is about a resource, nobody may use it without one any more.
    at_once = 1 if is_allowed_without else SETS_TOGETHER
    for first in range(SETS_TOGETHER * is_allowed_without, sets, 2 * SETS_TOGETHER):
        for seed in range(first, first + SETS_TOGETHER, at_once):
            assert compare(brokers, range(seed, seed + at_once), REQUESTS) == []


def listed(tools: KafkaTools, broker: Any) -> set[str]:
    """Returns the ACLs that Kafka's tool shows."""
    shown = tools.run(ACLS, "--bootstrap-server", broker.bootstrap_servers, "--list").check().stdout
    found, resource = set(), ""
    for line in shown.splitlines():
        match = re.search(r"resource `(.+)`", line)
        if match is not None:
            resource = match[1]
        elif line.strip():
            found.add(f"{resource} {line.strip()}")
    return found


@pytest.mark.laboratory  # records of the metadata, which metadata_peer takes both ways
def test_a_folder_carries_acls_to_apache_kafka_and_back(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    def change(broker: Any, *flags: str) -> None:
        kafka_tools.run(ACLS, "--bootstrap-server", broker.bootstrap_servers, "--force", *flags).check()

    def add(broker: Any, user: str, *flags: str) -> None:
        change(broker, "--add", "--allow-principal", f"User:{user}", *flags)

    log_dir = tmp_path / "log-dir"
    with broker_of("kafka", kafka_tools, log_dir, AUTHORIZER) as kafka:
        add(kafka, "alice", "--producer", "--topic", "orders-", "--resource-pattern-type", "prefixed")
        add(kafka, "bob", "--consumer", "--topic", "orders-1", "--group", "billing")
        add(kafka, "gone", "--cluster", "--operation", "All", "--allow-host", "10.0.0.1")
        change(kafka, "--add", "--deny-principal", "User:*", "--topic", "*", "--operation", "Delete")
        change(kafka, "--remove", "--allow-principal", "User:gone", "--cluster")
        before = listed(kafka_tools, kafka)
    assert len(before) == 8, before
    with broker_of("odradek", kafka_tools, log_dir, AUTHORIZER) as ours:
        assert listed(kafka_tools, ours) == before
        add(ours, "carol", "--transactional-id", "id-", "--operation", "Write")
        reads = "--consumer", "--topic", "orders-1", "--group", "billing"
        change(ours, "--remove", "--allow-principal", "User:bob", *reads)
        between = listed(kafka_tools, ours)
    with broker_of("kafka", kafka_tools, log_dir, AUTHORIZER) as kafka:
        after = listed(kafka_tools, kafka)
    assert after == between
    assert any("carol" in one for one in after)
    assert not any("bob" in one for one in after)
