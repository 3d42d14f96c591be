"""A broker that is stopped for a while (SIGSTOP, a frozen container), and goes on when time-outs are over.

pytest -m laboratory tests/interop/test_broker_pauses.py
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.testing.wire import WireClient
from peers.group_requests import HEARTBEAT, JOIN, SYNC, fetched, find_coordinator, join_message, state, sync_message
from peers.odradek_broker import OdradekBroker
from peers.process import wait_for

MEMBERS = 8
SESSION_MS = 1500


@pytest.mark.laboratory
def test_members_stay_whose_heartbeats_wait_in_the_socket(tmp_path: Path) -> None:
    # In Apache Kafka 4.3.1 threads race: all of them stay, or some, or none.
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
