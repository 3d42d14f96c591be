"""Delegation tokens over the wire: the rules of Apache Kafka, time, limits, restarts, and what is told."""

from __future__ import annotations

import base64
import logging
import ssl
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker import delegation_tokens
from odradek.broker.api.token_requests import ChangeBody
from odradek.broker.running import BrokerThread
from odradek.coordination.delegation_tokens import token_credential, token_hmac
from odradek.messages.metadata.metadata_records import (
    DelegationTokenRecord,
)
from peers.broker_thread import advance, connect, eventually, start
from peers.certificates import make_certificate
from peers.mutants import Edit, plant
from peers.requests import ask
from peers.scram import ScramLogin
from peers.tokens import CONFIG, DAY_MS, HOUR_MS, LISTENERS, RULES, SCRAM, SECRET_KEY, Broker, Client, Token

DAY_S, HOUR_S = DAY_MS // 1000, HOUR_MS // 1000
NOT_ALLOWED = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


def serve(path: Path, **config: Any) -> BrokerThread:
    others = {name.replace("_", "."): value for name, value in config.items()}
    # Tests move the time by days, and keep their connections.
    return start(path / "data", **{**CONFIG, "listeners": LISTENERS, "connections.max.idle.ms": -1, **others})


def place(running: BrokerThread) -> Broker:
    return Broker(running.endpoint("PLAINTEXT").port, running.endpoint("SASL").port, partial(advance, running))


def tokens_in(running: BrokerThread) -> dict[str, DelegationTokenRecord]:
    return running.broker.logs.metadata_image.delegation_tokens


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with serve(tmp_path) as running:
        yield running


@pytest.fixture
def broker(running: BrokerThread) -> Broker:
    return place(running)


@pytest.fixture
def alice(broker: Broker) -> Iterator[Client]:
    with broker.user("alice") as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rules_of_apache_kafka(broker: Broker, rule: Callable[[Broker], None]) -> None:
    rule(broker)


RULES_BY_NAME = {rule.__name__: rule for rule in RULES}
_RULES = "coordination.delegation_tokens:"
_CREATE, _DESCRIBE = "broker.api.k38_create_delegation_token:", "broker.api.k41_describe_delegation_token:"
FAULTS = [
    ("tokens_make_no_tokens", Edit("broker.api.token_requests:check_allowed", "connection.sasl.is_by_token", "False")),
    (
        "nobody_gets_a_token_without_a_login",
        Edit("broker.api.token_requests:check_allowed", 'protocol == "PLAINTEXT"', "0"),
    ),
    (
        "who_may_create_tokens_for_others",
        Edit(f"{_CREATE}_check_owner", "not is_own", "False"),
    ),
    ("a_renewer_is_a_user", Edit(f"{_CREATE}_renewers", "kind != _USER", "False")),
    ("who_may_see_tokens", Edit(f"{_DESCRIBE}_is_told", "owners.isdisjoint(about)", "False")),
    ("who_may_see_tokens", Edit(f"{_DESCRIBE}_is_told", "request.connection.principal in about", "True")),
    ("who_may_renew_tokens", Edit(f"{_RULES}_check_may_renew", "principal != token.owner and", "False and")),
    ("lifetimes_have_limits", Edit(f"{_RULES}_at_most", "min(most_ms, wanted_ms)", "wanted_ms")),
    ("lifetimes_have_limits", Edit(f"{_RULES}renewed", "min(token.max_timestamp, until)", "until")),
    (
        "a_token_that_is_removed_is_not_there",
        Edit("broker.delegation_tokens:DelegationTokens.find", "not hmac.compare_digest", "hmac.compare_digest"),
    ),
    (
        "a_wrong_secret_or_a_flag_that_is_missing_lets_nobody_in",
        Edit("coordination.scram.exchange:ScramExchange._end", "is_right and", "True and"),
    ),
]
"""Faults that are planted into the broker's code, each with the rule that must see it."""


@pytest.mark.parametrize(("rule", "fault"), FAULTS, ids=lambda one: one if isinstance(one, str) else one.where)
def test_a_fault_is_seen_by_its_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, fault: Edit) -> None:
    plant(fault, monkeypatch)
    with serve(tmp_path) as running, pytest.raises(AssertionError):
        RULES_BY_NAME[rule](place(running))


# -- time


def test_a_token_is_valid_until_it_expires_and_is_then_removed(
    running: BrokerThread, broker: Broker, alice: Client
) -> None:
    token = alice.created()
    advance(running, DAY_S - HOUR_S)
    assert broker.logs_in(token)
    with broker.unknown() as client:
        answer = client.log_in_by_token(token.id, token.hmac)
        assert HOUR_S - 60 < answer.session_lifetime.total_seconds() <= HOUR_S
        advance(running, HOUR_S + 1)
        assert not client.is_served()
    assert not broker.logs_in(token)
    eventually(lambda: not tokens_in(running))
    assert alice.renew(token.hmac).error == "DELEGATION_TOKEN_NOT_FOUND"


def test_a_token_that_is_renewed_is_valid_longer_but_not_for_ever(
    running: BrokerThread, broker: Broker, alice: Client
) -> None:
    token = alice.created(lifetime_ms=3 * DAY_MS)
    for _ in range(3):
        assert broker.logs_in(token)
        advance(running, DAY_S - HOUR_S)
        assert alice.renew(token.hmac).error == "NONE"
    assert alice.described()[token.id].expires == token.latest
    advance(running, 3 * HOUR_S + 1)
    assert not broker.logs_in(token)


def test_the_session_of_a_token_ends_with_the_earlier_limit(tmp_path: Path) -> None:
    reauth = {f"listener.name.sasl.{SCRAM[0].lower()}.connections.max.reauth.ms": HOUR_MS}
    with serve(tmp_path, **reauth) as running:
        broker = place(running)
        with broker.user("alice") as alice:
            long, short = alice.created(), alice.created(lifetime_ms=HOUR_MS // 2)
        for token, most_s in ((long, HOUR_S), (short, HOUR_S // 2)):
            with broker.unknown() as client:
                answer = client.log_in_by_token(token.id, token.hmac)
                assert most_s - 60 < answer.session_lifetime.total_seconds() <= most_s


@pytest.mark.slow
def test_many_tokens_that_expire_together_are_removed(running: BrokerThread, alice: Client) -> None:
    tokens = running.broker.tokens
    assert tokens is not None
    record = DelegationTokenRecord("User:bob", "User:alice", (), 0, 1, 1, "")
    records = [record._replace(token_id=f"token-{number}") for number in range(2500)]
    running.broker.logs.metadata.alter_delegation_tokens(lambda image: records)
    kept = alice.created()
    advance(running, HOUR_S + 1)
    eventually(lambda: tokens_in(running).keys() == {kept.id})


# -- who may ask


def test_nobody_gets_a_token_over_tls_who_has_no_certificate(tmp_path: Path) -> None:
    server, client = make_certificate("server"), make_certificate("alice")
    store, trusted = server.write(tmp_path)[0], client.write(tmp_path)[1]
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "requested",
    }
    with serve(tmp_path, **config) as running:
        for has_certificate in (False, True):
            context = ssl.create_default_context(cadata=server.certificate_pem)
            if has_certificate:
                context.load_cert_chain(client.write(tmp_path)[0])
            with Client("127.0.0.1", running.endpoint("SSL").port) as one:
                one.socket = context.wrap_socket(one.socket, server_hostname="localhost")
                error, token = one.create()
                assert error == ("NONE" if has_certificate else NOT_ALLOWED)
                assert token.owner == ("User:CN=alice" if has_certificate else "User:ANONYMOUS")


def test_a_login_by_messages_without_requests_is_one_by_a_token(broker: Broker, alice: Client) -> None:
    def sent(message: bytes) -> bytes:
        client.socket.sendall(struct.pack(">i", len(message)) + message)
        return bytes(client.receive_frame())

    token = alice.created()
    with broker.unknown() as client:
        client.call(17, 0, {"mechanism": SCRAM[1]})
        password = base64.b64encode(token.hmac).decode()
        login = ScramLogin(SCRAM[1], token.id, password, extensions=",tokenauth=true")
        assert sent(login.final(sent(login.first()))) == login.expected
        assert client.create()[0] == NOT_ALLOWED


def test_a_token_of_what_is_no_user_lets_nobody_in(broker: Broker, alice: Client) -> None:
    """Apache Kafka lets its clients in as the user of that name."""
    broker.allow("alice", 13, 7, "Group:carol")
    error, token = alice.create(owner="carol", kind="Group")
    assert (error, token.owner) == ("NONE", "Group:carol")
    assert not broker.logs_in(token)


def test_an_owner_has_a_type(alice: Client) -> None:
    owner = {"owner_principal_type": None, "owner_principal_name": "bob"}
    assert (
        alice.call(38, 3, {**owner, "renewers": [], "max_lifetime_ms": -1}).error_code == ErrorCode.unknown_server_error
    )


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    with serve(tmp_path, delegation_token_secret_key="  ") as running:
        broker = place(running)
        assert running.broker.tokens is None
        with broker.user("alice") as alice:
            error, refused = alice.create()
            assert error == "DELEGATION_TOKEN_AUTH_DISABLED"
            assert refused == Token("", b"", "User:alice", "User:alice", (), 0, 0, 0)
            assert alice.renew(b"") == alice.expire(b"") == ("DELEGATION_TOKEN_AUTH_DISABLED", 0)
            assert alice.describe() == ("DELEGATION_TOKEN_AUTH_DISABLED", {})
        assert not broker.logs_in(Token("id", b"", "", "", (), 0, 0, 0))


def test_metadata_from_before_tokens_have_none(running: BrokerThread, alice: Client) -> None:
    running.broker.logs.metadata.set_feature_levels({"metadata.version": 13})
    assert alice.create()[0] == "UNSUPPORTED_VERSION"
    assert alice.renew(b"") == ("UNSUPPORTED_VERSION", 0)
    assert alice.describe() == ("NONE", {})


# -- limits


def test_a_token_with_too_many_renewers_is_refused(running: BrokerThread, alice: Client) -> None:
    assert alice.create(*(f"User:{number}" for number in range(800)))[0] == "POLICY_VIOLATION"
    assert alice.create(f"User:{'x' * 300_000}")[0] == "POLICY_VIOLATION"
    renewers = tuple(f"User:{number}" for number in range(750))
    token = alice.created(*renewers)
    assert tokens_in(running)[token.id].renewers == alice.described()[token.id].renewers == renewers


def test_nobody_takes_the_place_of_others(
    running: BrokerThread, broker: Broker, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "MOST_BYTES_OF_REQUESTER", 2000)
    monkeypatch.setattr(delegation_tokens, "MOST_BYTES", 3500)
    first = [alice.created() for _ in range(3)]
    assert alice.create()[0] == "POLICY_VIOLATION"
    with broker.user("bob") as bob, broker.user("carol") as carol:
        for _ in range(3):
            bob.created()
        assert carol.create()[0] == "POLICY_VIOLATION"
    alice.expire(first[0].hmac)
    assert alice.renew(first[1].hmac).error == "NONE"
    assert alice.create()[0] == "NONE"
    assert len(tokens_in(running)) == 6


@pytest.mark.slow
def test_many_logins_by_a_token_at_a_time_cost_no_more_than_one(
    broker: Broker, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, made, make = Event(), [], token_credential

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        assert may_go_on.wait(10)
        return make(*arguments)

    monkeypatch.setattr(delegation_tokens, "token_credential", counted)
    token = alice.created()
    login = ScramLogin(SCRAM[0], token.id, base64.b64encode(token.hmac).decode(), extensions=",tokenauth=true")
    clients = [broker.unknown() for _ in range(20)]
    for client in clients:
        client.call(17, 1, {"mechanism": SCRAM[0]})
    sent = [client.send(36, 2, {"auth_bytes": login.first()}) for client in clients]
    # One that does not wait for the answer takes nothing from the others.
    clients.pop().close()
    assert alice.described()
    may_go_on.set()
    for client, number in zip(clients, sent, strict=False):
        answer = client.receive(36, 2, number)
        assert not client.call(36, 2, {"auth_bytes": login.final(answer.auth_bytes)}).error_code
        client.close()
    assert len(made) == 1


# -- what stays, and what is told


def test_tokens_stay_when_the_broker_is_started_again(tmp_path: Path, running: BrokerThread, alice: Client) -> None:
    token, removed = alice.created("User:bob"), alice.created()
    alice.expire(removed.hmac)
    running.stop()
    with serve(tmp_path) as again:
        broker = place(again)
        assert broker.logs_in(token)
        assert not broker.logs_in(removed)
        with broker.user("bob") as bob:
            assert bob.described() == {token.id: token}
            assert bob.renew(token.hmac).error == "NONE"
    with serve(tmp_path, delegation_token_secret_key="another") as other:
        assert not place(other).logs_in(token)


def test_secrets_are_told_to_nobody_else(
    tmp_path: Path, broker: Broker, alice: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = alice.created()
    assert broker.logs_in(token)
    assert not broker.logs_in(token._replace(hmac=token.hmac[::-1]))
    with broker.user("bob") as bob:
        bob.renew(token.hmac)
        # A request that is cut short closes the connection, and says why.
        bob.send(39, 2, {"hmac": token.hmac, "renew_period_ms": 0})
    with broker.stranger() as client:
        asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["delegation.token.secret.key"]}
        [result] = ask(client, "DescribeConfigs", 4, resources=[asked]).results
        assert [(one.value, one.is_sensitive) for one in result.configs] == [(None, True)]
        for name in ("delegation.token.secret.key", "listener.name.plaintext.delegation.token.secret.key"):
            changes = [{"name": name, "config_operation": 0, "value": "another"}]
            resource = {"resource_type": 4, "resource_name": "1", "configs": changes}
            [refused] = ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses
            assert refused.error_message == f"Cannot update these configs dynamically: [{name}]"
    files = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert token.id.encode() in files
    for secret in (token.hmac, base64.b64encode(token.hmac), SECRET_KEY.encode()):
        assert secret not in files
    for text in (repr(token.hmac), base64.b64encode(token.hmac).decode(), token.hmac.hex(), SECRET_KEY):
        assert text not in caplog.text


def test_the_secret_is_not_in_the_text_of_a_request(running: BrokerThread) -> None:
    assert "secret" not in repr(ChangeBody(b"secret", 1))
    with connect(running) as client:
        assert client.call(39, 1, {"hmac": b"", "renew_period_ms": 0}).expiry_timestamp_ms == -1


@pytest.mark.parametrize(("flag", "logs_in"), [("tokenauth=TRUE", True), ("TOKENAUTH=true", False)])
def test_the_flag_of_a_token_is_written_as_apache_kafka_has_it(
    broker: Broker, alice: Client, flag: str, logs_in: bool
) -> None:
    token = alice.created()
    login = ScramLogin(SCRAM[0], token.id, base64.b64encode(token.hmac).decode(), extensions=f",{flag}")
    with broker.unknown() as client:
        client.call(17, 1, {"mechanism": SCRAM[0]})
        first = client.call(36, 2, {"auth_bytes": login.first()})
        last = client.call(36, 2, {"auth_bytes": login.final(first.auth_bytes)})
        assert (not last.error_code) is logs_in


@pytest.mark.parametrize(("key", "encoded"), [("\U0001f600", "\U0001f600"), ("\ud800!", "?!")], ids=ascii)
def test_a_secret_key_is_encoded_as_java_does(tmp_path: Path, key: str, encoded: str) -> None:
    with serve(tmp_path, delegation_token_secret_key=key) as running, place(running).user("alice") as alice:
        token = alice.created()
    assert token.hmac == token_hmac(encoded.encode(), token.id)
