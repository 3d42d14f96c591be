"""Logins by SCRAM over the wire, and the APIs that give users their passwords."""

from __future__ import annotations

import hashlib
import hmac
import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.api import APIS, Api
from odradek.broker.running import BrokerThread
from odradek.coordination.scram.credentials import MECHANISMS, ScramMechanism, credential_of_password
from odradek.errors import InvalidConfigError, ProtocolError
from odradek.testing.conformance.client_quotas import entry
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, start
from peers.requests import ask, batch, message, produce_message, produced
from peers.scram import ScramLogin

BOTH = list(MECHANISMS)
EACH = pytest.mark.parametrize("mechanism", BOTH)
LISTENER = "SASL_PLAINTEXT"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
HOUR_MS = 3_600_000
METADATA = message("Metadata", topics=None)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(["PLAIN", *BOTH]),
        "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="plain";',
        "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "scram-sha-256.connections.max.reauth.ms": HOUR_MS,
        "connection.failed.authentication.delay.ms": 0,
    }
    with start(tmp_path / "data", **config) as running:
        credentials = [credential_of_password("alice", one, "secret") for one in MECHANISMS.values()]
        running.broker.logs.metadata.alter_scram_credentials(credentials)
        yield running


def login(client: WireClient, mechanism: str, name: str = "alice", password: str = "secret") -> tuple[int, str | None]:
    """Logs in; returns the error, and what the last answer says."""
    steps = ScramLogin(mechanism, name, password)
    assert client.call(17, 1, {"mechanism": mechanism}).error_code == ErrorCode.none
    first = client.call(36, 2, {"auth_bytes": steps.first()})
    assert first.session_lifetime.total_seconds() == 0
    if first.error_code != ErrorCode.none:
        return int(first.error_code), first.error_message
    last = client.call(36, 2, {"auth_bytes": steps.final(first.auth_bytes)})
    assert last.error_code != ErrorCode.none or last.auth_bytes == steps.expected
    return int(last.error_code), last.error_message


def assert_closed(client: WireClient) -> None:
    with pytest.raises((ProtocolError, ConnectionError)):
        client.receive_frame()


def principals(running: BrokerThread) -> list[str]:
    return running.call(lambda: [one.principal for one in running.server.connections])


@EACH
def test_a_client_logs_in(running: BrokerThread, mechanism: str) -> None:
    with connect(running, LISTENER) as client:
        assert login(client, mechanism) == (ErrorCode.none, None)
        assert len(client.call(3, 12, METADATA).brokers) == 1
        assert principals(running) == ["User:alice"]


@pytest.mark.slow
@EACH
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("eve", "secret")])
def test_a_wrong_login_is_refused_and_does_not_say_what_was_wrong(
    running: BrokerThread, mechanism: str, name: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with connect(running, LISTENER) as client:
        text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        assert login(client, mechanism, name, password) == (ErrorCode.sasl_authentication_failed, text)
        assert_closed(client)
    assert "secret" not in caplog.text


@EACH
def test_a_stranger_and_a_wrong_password_take_the_same_way(
    running: BrokerThread, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is calculated for a login, with how much of it, tells nobody whether there is such a user."""
    credential = credential_of_password("carol", MECHANISMS[mechanism], "secret", 8192)
    running.broker.logs.metadata.alter_scram_credentials([credential])
    calls: list[tuple[str, int]] = []
    for name in ("hmac", "hash"):
        monkeypatch.setattr(ScramMechanism, name, noted(calls, name, getattr(ScramMechanism, name)))
    monkeypatch.setattr(hmac, "compare_digest", noted(calls, "compare", hmac.compare_digest))
    ways, offers = [], []
    for user in ("carol", "frank"):
        calls.clear()
        steps = ScramLogin(mechanism, user, "wrong")
        with connect(running, LISTENER) as client:
            client.call(17, 1, {"mechanism": mechanism})
            first = client.call(36, 2, {"auth_bytes": steps.first()})
            offers.append([len(part) for part in first.auth_bytes.split(b",")] + [first.auth_bytes[-6:]])
            assert client.call(36, 2, {"auth_bytes": steps.final(first.auth_bytes)}).error_code == 58
        ways.append(list(calls))
    assert ways[0] == ways[1]
    assert [name for name, _ in ways[0]].count("compare") == 1
    # The salt's and the nonce's length may differ by a digit.
    assert offers[0][-1] == b"i=8192"
    # Frank looks like her, or like another user.
    assert offers[1][-1] in {b"i=4096", b"i=8192"}
    assert abs(offers[0][1] - offers[1][1]) <= 4


def noted(calls: list[tuple[str, int]], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def note(*arguments: Any) -> Any:
        calls.append((name, len(arguments)))
        return function(*arguments)

    return note


def test_nothing_is_answered_between_a_refusal_and_the_end(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        assert login(client, BOTH[0], "eve")[0] == ErrorCode.sasl_authentication_failed
        client.send(17, 1, {"mechanism": BOTH[0]})
        assert_closed(client)


def test_only_the_messages_of_a_login_are_taken_before_its_end(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": BOTH[0]})
        client.call(36, 2, {"auth_bytes": ScramLogin(BOTH[0], "alice", "secret").first()})
        assert principals(running) == ["User:ANONYMOUS"]
        client.send(3, 12, METADATA)
        assert_closed(client)


def test_messages_without_requests_follow_the_first_handshake(running: BrokerThread) -> None:
    def sent(token: bytes) -> bytes:
        client.socket.sendall(struct.pack(">i", len(token)) + token)
        return bytes(client.receive_frame())

    with connect(running, LISTENER) as client:
        client.call(17, 0, {"mechanism": BOTH[0]})
        steps = ScramLogin(BOTH[0], "alice", "secret")
        assert sent(steps.final(sent(steps.first()))) == steps.expected
        assert len(client.call(3, 12, METADATA).brokers) == 1


def test_a_login_of_one_mechanism_is_not_that_of_another(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": BOTH[0]})
        steps = ScramLogin(BOTH[1], "alice", "secret")
        first = client.call(36, 2, {"auth_bytes": steps.first()})
        last = client.call(36, 2, {"auth_bytes": steps.final(first.auth_bytes)})
        assert last.error_code == ErrorCode.sasl_authentication_failed
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "PLAIN"})
        answer = client.call(36, 2, {"auth_bytes": b"\0alice\0secret"})
        assert answer.error_code == ErrorCode.sasl_authentication_failed


def test_a_client_logs_in_again_in_time_as_the_same_user_and_by_the_same_mechanism(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        assert login(client, BOTH[0]) == (0, None)
        advance(running, 599)
        assert login(client, BOTH[0]) == (0, None)
        advance(running, 599)
        code, text = login(client, BOTH[1])
        assert code == ErrorCode.sasl_authentication_failed
        assert text == (
            "SASL mechanism 'SCRAM-SHA-512' requested by client is not supported for re-authentication of mechanism "
            "'SCRAM-SHA-256'"
        )


def test_a_producer_is_answered_at_once_after_its_login_and_not_before(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.call(lambda: running.broker.logs.create_topic("events"))
    log = running.broker.logs["events", 0]
    usual = APIS[0]
    assert usual is not None
    sent = produce_message(batch(b"a"), "events", acks=-1)
    with connect(running, LISTENER) as client:
        client.send(0, 9, sent)
        assert_closed(client)
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": BOTH[1]})
        client.call(36, 2, {"auth_bytes": ScramLogin(BOTH[1], "alice", "secret").first()})
        client.send(0, 9, sent)
        assert_closed(client)
    assert log.log_end_offset == 0
    with connect(running, LISTENER) as client:
        login(client, BOTH[1])
        assert produced(client.call(0, 9, sent)) == (ErrorCode.none, 0)
        # The way of all requests opens the partition, and is not needed from here on.
        monkeypatch.setitem(cast("dict[int, Api]", APIS), 0, usual._replace(handle=lambda request: None))
        assert produced(client.call(0, 9, sent)) == (ErrorCode.none, 1)
    assert log.log_end_offset == 2


def test_a_login_waits_for_no_quota_and_the_user_does(running: BrokerThread) -> None:
    """Else strangers, who are all User:ANONYMOUS, spend what the others need to log in."""
    entities: list[dict[str, str | None]] = [{"user": None}, {"user": "ANONYMOUS"}, {"user": "alice"}]
    with connect(running) as client:
        limited = [entry(one, request_percentage=1e-6) for one in entities]
        ask(client, "AlterClientQuotas", 1, entries=limited, validate_only=False)

    def muted() -> int:
        return running.call(lambda: running.broker.throttling.muted_connections)

    for times in range(3):
        with connect(running, LISTENER) as client:
            client.call(18, 3, {"client_software_name": "a", "client_software_version": "1"})
            assert login(client, BOTH[0]) == (0, None)
            assert muted() == times
            ask(client, "Metadata", 12, topics=None)
            assert muted() == times + 1


# -- credentials


def upsertion(name: str, password: str, mechanism: int = 1, iterations: int = 4096, **other: Any) -> dict[str, Any]:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", password.encode(), b"salt", iterations)
    fields = {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt"}
    return {**fields, "salted_password": salted, **other}


def deletion(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(running: BrokerThread, *upsertions: dict[str, Any], deletions: list[dict[str, Any]] | None = None) -> Any:
    with connect(running) as client:
        answer = client.call(51, 0, {"deletions": deletions or [], "upsertions": upsertions})
    return [(one.user, one.error_code.name, one.error_message) for one in answer.results]


def described(running: BrokerThread, *names: str) -> Any:
    with connect(running) as client:
        answer = client.call(50, 0, {"users": [{"name": name} for name in names] or None})
    assert answer.error_code == ErrorCode.none
    return [
        (one.user, one.error_code.name, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    ]


def logs_in(running: BrokerThread, name: str, password: str) -> bool:
    with connect(running, LISTENER) as client:
        return login(client, BOTH[0], name, password)[0] == ErrorCode.none


@pytest.mark.slow
def test_a_password_is_changed_while_clients_are_logged_in(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        login(client, BOTH[0])
        assert alter(running, upsertion("alice", "new", iterations=8192), upsertion("bob", "bob's")) == [
            ("alice", "none", None),
            ("bob", "none", None),
        ]
        assert len(client.call(3, 12, METADATA).brokers) == 1
    assert logs_in(running, "alice", "new")
    assert logs_in(running, "bob", "bob's")
    assert not logs_in(running, "alice", "secret")
    assert described(running) == [("alice", "none", [(1, 8192), (2, 4096)]), ("bob", "none", [(1, 4096)])]
    assert alter(running, deletions=[deletion("bob")]) == [("bob", "none", None)]
    assert not logs_in(running, "bob", "bob's")


def test_users_that_are_not_there_or_asked_for_twice(running: BrokerThread) -> None:
    assert described(running, "eve", "alice", "eve2", "eve2") == [
        ("eve", "resource_not_found", []),
        ("alice", "none", [(1, 4096), (2, 4096)]),
        ("eve2", "duplicate_resource", []),
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"name": ""}, "unacceptable_credential"),
        ({"mechanism": 3}, "unsupported_sasl_mechanism"),
        ({"iterations": 4095}, "unacceptable_credential"),
        ({"iterations": 16385}, "unacceptable_credential"),
        ({"iterations": 10**9}, "unacceptable_credential"),
        ({"iterations": -1}, "unacceptable_credential"),
        ({"salted_password": b""}, "unknown_server_error"),
        ({"salted_password": b"p" * 1025}, "unacceptable_credential"),
        ({"salt": b"s" * 1025}, "unacceptable_credential"),
    ],
)
def test_a_credential_that_is_not_acceptable_is_refused_and_the_others_are_not(
    running: BrokerThread, changed: dict[str, Any], code: str
) -> None:
    refused = {**upsertion("eve", "eve's"), **changed}
    found = alter(running, refused, upsertion("bob", "bob's"))
    assert [one[:2] for one in found] == [("bob", "none"), (refused["name"], code)]
    assert logs_in(running, "bob", "bob's")


def test_a_user_is_changed_once_in_a_request(running: BrokerThread) -> None:
    both = [upsertion("bob", "bob's", mechanism) for mechanism in (1, 2)]
    assert [one[:2] for one in alter(running, *both)] == [("bob", "duplicate_resource")]
    found = alter(running, upsertion("alice", "new"), deletions=[deletion("alice", 2), deletion("eve")])
    assert [one[:2] for one in found] == [("eve", "resource_not_found"), ("alice", "duplicate_resource")]
    assert logs_in(running, "alice", "secret")


@pytest.mark.slow
def test_a_request_with_more_than_a_batch_may_have_changes_nothing(running: BrokerThread) -> None:
    one = upsertion("", "many")
    found = alter(running, *({**one, "name": f"user-{number}"} for number in range(10_001)))
    assert {error for _, error, _ in found} == {"policy_violation"}
    assert len(found) == 10_001
    assert len(described(running)) == 1


def test_users_stay_when_the_broker_is_started_again(tmp_path: Path, running: BrokerThread) -> None:
    alter(running, upsertion("bob", "bob's"))
    running.stop()
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": BOTH[0]}
    with start(tmp_path / "data", **config) as again:
        assert logs_in(again, "bob", "bob's")


def test_a_login_module_of_another_kind_stops_the_start(tmp_path: Path) -> None:
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": BOTH[0]}
    with pytest.raises(InvalidConfigError, match="ScramLoginModule") as refused:
        start(tmp_path / "data", **config, **{"scram-sha-256.sasl.jaas.config": 'com.Own required password="s3cret";'})
    assert "s3cret" not in str(refused.value)
