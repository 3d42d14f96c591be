"""A broker that is stopped for a while (SIGSTOP, a frozen container), and goes on when time-outs are over.

pytest -m laboratory tests/interop/test_broker_pauses.py
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import odradek
from odradek.testing.wire import WireClient
from peers.group_requests import HEARTBEAT, JOIN, SYNC, fetched, find_coordinator, join_message, state, sync_message
from peers.java_programs import java, told
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.odradek_broker import OdradekBroker
from peers.process import wait_for

MEMBERS = 8
SESSION_MS = 1500


@pytest.mark.laboratory
def test_members_stay_whose_heartbeats_wait_in_the_socket(tmp_path: Path) -> None:
    # In Apache Kafka threads race: all of them stay, or some, or none.
    config = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "500"}
    with OdradekBroker(tmp_path / "data", config) as broker, ExitStack() as opened:
        clients = [opened.enter_context(WireClient("127.0.0.1", broker.port)) for _ in range(MEMBERS)]
        find_coordinator(clients[0])
        wait_for(lambda: _has_loaded(clients[0]), 60, "the coordinator")
        messages = []
        for client in clients:
            given = client.call(JOIN, 9, join_message("g", session_ms=SESSION_MS)).member_id
            message = join_message("g", given, session_ms=SESSION_MS, rebalance_ms=60_000)
            messages.append((client, client.send(JOIN, 9, message)))
        joined = [client.receive(JOIN, 9, sent) for client, sent in messages]
        (leader,) = (one for one in joined if one.members)
        assert len(leader.members) == MEMBERS
        assignments = {member.member_id: b"x" for member in leader.members}
        messages = [
            (client, client.send(SYNC, 5, sync_message("g", one.member_id, one.generation_id, assignments)))
            for client, one in zip(clients, joined, strict=True)
        ]
        assert {int(client.receive(SYNC, 5, sent).error_code) for client, sent in messages} == {0}
        # It must wait for the sockets, and not have come to them when it goes on.
        wait_for(lambda: _is_asleep(broker.pid), 60, "the broker to have nothing to do")
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            messages = [
                (client, client.send(HEARTBEAT, 4, _heartbeat(one.member_id, one.generation_id)))
                for client, one in zip(clients, joined, strict=True)
            ]
            time.sleep(2 * SESSION_MS / 1000)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert [int(client.receive(HEARTBEAT, 4, sent).error_code) for client, sent in messages] == [0] * MEMBERS
        assert state(clients[0], "g") == "Stable"


def _is_asleep(pid: int) -> bool:
    _, _, after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    return after_name.startswith("S")


def _heartbeat(member_id: str, generation: int) -> dict[str, object]:
    return {"group_id": "g", "generation_id": generation, "member_id": member_id, "group_instance_id": None}


def _has_loaded(client: WireClient) -> bool:
    try:
        return bool(fetched(client, "none"))
    except AssertionError:
        return False


@pytest.mark.laboratory
def test_clients_of_java_lose_nothing_when_anything_is_stopped(
    tmp_path: Path, kafka_tools: KafkaTools, seed: int
) -> None:
    pauses = int(os.environ.get("ODRADEK_PAUSES", "12"))
    chance = random.Random(seed)
    config = {"group.min.session.timeout.ms": "500", "auto.create.topics.enable": "true", "num.partitions": "3"}
    with OdradekBroker(tmp_path / "data", config) as broker, ExitStack() as opened:
        common = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t")

        def program(name: str, kind: str, *arguments: str) -> int:
            main = f"org.apache.kafka.tools.{kind}"
            command = java(kafka_tools.classpath, tmp_path / name, main, *common, *arguments)
            return opened.enter_context(command).pid

        # Requests time out while the broker is stopped, and are sent again.
        settings = {"retries": "1000", "enable.idempotence": "true", "request.timeout.ms": "3000"}
        properties = write_properties(tmp_path / "producer.properties", settings)
        sending = program("sent", "VerifiableProducer", "--throughput", "500", "--producer.config", str(properties))
        group = ("--group-id", "g", "--reset-policy", "earliest", "--session-timeout", "5000", "--verbose")
        reading = [program(f"read-{number}", "VerifiableConsumer", *group) for number in range(2)]

        def sent() -> set[tuple[int, int]]:
            events = told(tmp_path / "sent")
            assert not [event for event in events if event["name"] == "producer_send_error"]
            found = [event for event in events if event["name"] == "producer_send_success"]
            return {(event["partition"], event["offset"]) for event in found}

        def read() -> set[tuple[int, int]]:
            events = [event for number in range(2) for event in told(tmp_path / f"read-{number}")]
            return {(event["partition"], event["offset"]) for event in events if event["name"] == "record_data"}

        wait_for(lambda: bool(read()), 120, "the consumers")
        for _ in range(pauses):
            stopped = chance.choice([[broker.pid], [sending], reading, [reading[0]], [broker.pid, reading[1]]])
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(chance.choice([0.2, 1.0, 4.0, 8.0]))
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
            time.sleep(chance.uniform(0, 3))
            before = len(sent())
            wait_for(lambda before=before: len(sent()) > before, 120, "the producer")  # type: ignore[misc]
        os.kill(sending, signal.SIGTERM)
        wait_for(lambda: "shutdown_complete" in (tmp_path / "sent").read_text(), 120, "the producer's end")
        wait_for(lambda: read() >= sent(), 120, "the consumers to read all")
        acknowledged = sent()
    with odradek.open(tmp_path / "data", "r") as logs:
        records = [(number, record) for number in range(3) for record in logs["t", number].read()]
    # A request whose answer was lost is sent again, and its records are not there twice.
    assert len({record.value for _, record in records}) == len(records)
    assert {(number, record.offset) for number, record in records} >= acknowledged
    assert len(acknowledged) > 100
