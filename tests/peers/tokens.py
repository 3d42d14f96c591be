"""Delegation tokens at a broker of Apache Kafka or of ours: clients that ask for them, and rules that both follow."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.errors import ProtocolError
from odradek.testing.wire import WireClient
from peers.scram import ScramLogin

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
HANDSHAKE, AUTHENTICATE, METADATA, CREATE_ACLS = 17, 36, 3, 30
SCRAM = "SCRAM-SHA-256", "SCRAM-SHA-512"
USERS = ("alice", "bob", "carol")
SECRET_KEY = "a secret key"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ALLOW, LITERAL, USER, DELEGATION_TOKEN, CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE_OPERATION = 3, 3, 7, 6, 13, 14, 8

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0"
CONFIG = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
    "listener.name.sasl.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
        + ";"
    ),
    **{
        f"listener.name.sasl.{one.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for one in SCRAM
    },
    "delegation.token.secret.key": SECRET_KEY,
    "connection.failed.authentication.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
"""Settings of a broker for these clients; the listeners PLAINTEXT and SASL are the test's."""

_T = TypeVar("_T")


class Token(NamedTuple):
    """What a broker says of a token; times are in ms."""

    id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued: int
    expires: int
    latest: int


class Changed(NamedTuple):
    """The answer to a change of a token."""

    error: str
    expires: int


def name_of(code: int) -> str:
    return ErrorCode(code).name.upper()


def until(condition: Callable[[], _T | None]) -> _T:
    """Waits until there is something: Apache Kafka's broker hears of a change after its controller has made it."""
    end = time.monotonic() + 30
    while (found := condition()) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


class Client(WireClient):
    """A client, which may have logged in."""

    def log_in_by_plain(self, name: str) -> Client:
        """Logs in by a password."""
        self.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = self.call(AUTHENTICATE, 2, {"auth_bytes": f"\0{name}\0{name}-secret".encode()})
        assert not answer.error_code, answer
        return self

    def log_in_by_token(self, token_id: str, hmac: bytes, mechanism: str = SCRAM[0], flag: str = "true") -> Any:
        """Logs in by a token; returns the last answer."""
        password = base64.b64encode(hmac).decode()
        login = ScramLogin(mechanism, token_id, password, extensions=f",tokenauth={flag}" if flag else "")
        assert not self.call(HANDSHAKE, 1, {"mechanism": mechanism}).error_code
        answer = self.call(AUTHENTICATE, 2, {"auth_bytes": login.first()})
        if answer.error_code:
            return answer
        answer = self.call(AUTHENTICATE, 2, {"auth_bytes": login.final(answer.auth_bytes)})
        assert answer.error_code or answer.auth_bytes == login.expected
        return answer

    def is_served(self) -> bool:
        """Returns whether another request is answered."""
        try:
            return bool(self.call(METADATA, 12, {"topics": []}).brokers)
        except (ProtocolError, ConnectionError):
            return False

    def create(
        self, *renewers: str, owner: str = "", lifetime_ms: int = -1, kind: str = "User", version: int = 3
    ) -> tuple[str, Token]:
        """Asks for a token; returns the error and the token."""
        ones = [dict(zip(("principal_type", "principal_name"), one.split(":", 1), strict=True)) for one in renewers]
        owner_fields = {"owner_principal_type": kind if owner else None, "owner_principal_name": owner or None}
        fields = {**owner_fields, "renewers": ones, "max_lifetime_ms": lifetime_ms}
        found = self.call(CREATE, version, fields)
        requester = ""
        if version >= 3:
            requester = f"{found.token_requester_principal_type}:{found.token_requester_principal_name}"
        times = found.issue_timestamp_ms, found.expiry_timestamp_ms, found.max_timestamp_ms
        named = f"{found.principal_type}:{found.principal_name}"
        return name_of(found.error_code), Token(found.token_id, found.hmac, named, requester, renewers, *times)

    def created(self, *renewers: str, **options: Any) -> Token:
        """Creates a token, and waits until it is known."""
        error, token = self.create(*renewers, **options)
        assert error == "NONE"
        until(lambda: token if token.id in self.described() or token.requester != token.owner else None)
        return token

    def renew(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> Changed:
        """Renews a token."""
        found = self.call(RENEW, version, {"hmac": hmac, "renew_period_ms": period_ms})
        return Changed(name_of(found.error_code), found.expiry_timestamp_ms)

    def expire(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> Changed:
        """Lets a token expire."""
        found = self.call(EXPIRE, version, {"hmac": hmac, "expiry_time_period_ms": period_ms})
        return Changed(name_of(found.error_code), found.expiry_timestamp_ms)

    def describe(self, owners: Iterable[str] | None = None, version: int = 3) -> tuple[str, dict[str, Token]]:
        """Asks for tokens; returns the error, and the tokens by their ids."""
        asked = None
        if owners is not None:
            asked = [dict(zip(("principal_type", "principal_name"), one.split(":", 1), strict=True)) for one in owners]
        answer = self.call(DESCRIBE, version, {"owners": asked})
        found = {}
        for one in answer.tokens:
            requester = ""
            if version >= 3:
                requester = f"{one.token_requester_principal_type}:{one.token_requester_principal_name}"
            renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in one.renewers)
            times = one.issue_timestamp, one.expiry_timestamp, one.max_timestamp
            named = f"{one.principal_type}:{one.principal_name}"
            found[one.token_id] = Token(one.token_id, one.hmac, named, requester, renewers, *times)
        assert len(found) == len(answer.tokens)
        return name_of(answer.error_code), found

    def described(self, *owners: str) -> dict[str, Token]:
        """Returns tokens by their ids."""
        error, found = self.describe(owners or None)
        assert error == "NONE"
        return found


class Broker(NamedTuple):
    """Where a broker is.

    Attributes:
        port: Where nobody logs in, and everybody may do everything.
        sasl_port: Where users log in.
        pause: Lets seconds pass.
    """

    port: int
    sasl_port: int
    pause: Callable[[float], None] = time.sleep

    def stranger(self) -> Client:
        """Returns a client that has not logged in, and need not."""
        return Client("127.0.0.1", self.port)

    def unknown(self) -> Client:
        """Returns a client that is to log in."""
        return Client("127.0.0.1", self.sasl_port)

    def user(self, name: str) -> Client:
        """Returns a client of a user."""
        return self.unknown().log_in_by_plain(name)

    def allow(self, user: str, operation: int, kind: int, name: str) -> None:
        """Allows a user something."""
        acl = {"resource_type": kind, "resource_name": name, "resource_pattern_type": LITERAL, "host": "*"}
        acl |= {"principal": f"User:{user}", "operation": operation, "permission_type": ALLOW}
        with self.stranger() as client:
            assert not client.call(CREATE_ACLS, 3, {"creations": [acl]}).results[0].error_code

    def logs_in(self, token: Token, **options: Any) -> bool:
        """Returns whether a client logs in by a token and is served."""
        with self.unknown() as client:
            answer = client.log_in_by_token(token.id, token.hmac, **options)
            return not answer.error_code and client.is_served()


# -- the rules


def _found(client: Client, token_id: str) -> Token | None:
    return client.described().get(token_id)


def a_user_gets_a_token_and_logs_in_by_it(broker: Broker) -> None:
    with broker.user("alice") as alice:
        token = alice.created("User:bob", "User:carol")
        assert token.owner == token.requester == "User:alice"
        assert token.latest - token.issued == 7 * DAY_MS
        assert token.expires - token.issued == DAY_MS
        assert len(token.hmac) == 64
        assert alice.described()[token.id] == token
    for mechanism in SCRAM:
        with broker.unknown() as client:
            answer = client.log_in_by_token(token.id, token.hmac, mechanism)
            assert not answer.error_code
            assert 0 < answer.session_lifetime.total_seconds() <= DAY_MS / 1000
            assert client.is_served()


def each_version_is_answered(broker: Broker) -> None:
    with broker.user("alice") as alice:
        for version in (1, 2, 3):
            error, token = alice.create("User:bob", version=version)
            assert (error, token.owner) == ("NONE", "User:alice")
            wanted = until(partial(_found, alice, token.id))
            assert wanted.requester == "User:alice"
            error, found = alice.describe(version=version)
            assert (error, found[token.id]) == ("NONE", wanted._replace(requester=token.requester))
            assert alice.renew(token.hmac, version=min(version, 2)).error == "NONE"
            assert alice.expire(token.hmac, version=min(version, 2)).error == "NONE"


def a_wrong_secret_or_a_flag_that_is_missing_lets_nobody_in(broker: Broker) -> None:
    with broker.user("alice") as alice:
        token = alice.created()
    for wrong in (token._replace(hmac=bytes(64)), token._replace(hmac=b""), token._replace(id="A" * 22)):
        assert not broker.logs_in(wrong)
    for flag in ("", "false", "1"):
        assert not broker.logs_in(token, flag=flag)
    assert broker.logs_in(token, flag="TRUE")
    assert not broker.logs_in(token._replace(id="alice", hmac=b"alice-secret"))


def tokens_make_no_tokens(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.unknown() as client:
        token = alice.created()
        assert not client.log_in_by_token(token.id, token.hmac).error_code
        error, refused = client.create()
        assert error == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
        assert refused == Token("", b"", "User:alice", "User:alice", (), -1, -1, -1)
        assert client.renew(token.hmac) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1)
        assert client.expire(token.hmac) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1)
        assert client.describe() == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", {})


def nobody_gets_a_token_without_a_login(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.stranger() as client:
        token = alice.created()
        assert client.create()[0] == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
        assert client.create(owner="bob")[1].owner == "User:bob"
        assert client.renew(token.hmac) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1)
        assert client.expire(token.hmac) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1)
        assert client.describe() == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", {})


def who_may_create_tokens_for_others(broker: Broker) -> None:
    with broker.user("alice") as alice:
        error, refused = alice.create(owner="carol")
        assert error == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        assert refused == Token("", b"", "User:carol", "User:alice", (), -1, -1, -1)
        assert alice.create(owner="alice")[0] == "NONE"
        broker.allow("alice", CREATE_TOKENS, USER, "User:carol")
        error, token = until(lambda: found if (found := alice.create(owner="carol"))[0] == "NONE" else None)
        assert (token.owner, token.requester) == ("User:carol", "User:alice")
        assert until(lambda: alice.described().get(token.id)) == token
        # Who asked for a token may see it, but not renew it.
        assert alice.renew(token.hmac).error == "DELEGATION_TOKEN_OWNER_MISMATCH"
        assert alice.expire(token.hmac).error == "DELEGATION_TOKEN_OWNER_MISMATCH"
        assert alice.create(owner="dave")[0] == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    with broker.user("carol") as carol, broker.unknown() as client:
        assert carol.described()[token.id] == token
        assert not client.log_in_by_token(token.id, token.hmac).error_code
        assert client.create()[1].owner == "User:carol"
        assert carol.renew(token.hmac).error == "NONE"


def a_renewer_is_a_user(broker: Broker) -> None:
    with broker.user("alice") as alice:
        for renewers in (("Group:bob",), ("User:bob", "user:carol"), (":bob",)):
            error, refused = alice.create(*renewers)
            assert error == "INVALID_PRINCIPAL_TYPE"
            assert refused._replace(renewers=()) == Token("", b"", "User:alice", "User:alice", (), -1, -1, -1)


def who_may_see_tokens(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.user("bob") as bob, broker.user("carol") as carol:
        own, shared = alice.created(), alice.created("User:bob")
        assert {own.id, shared.id} <= alice.described().keys()
        assert own.id not in bob.described()
        assert bob.described()[shared.id] == shared
        assert bob.described("User:alice").keys() & {own.id, shared.id} == {shared.id}
        assert alice.described("User:bob").keys() & {own.id, shared.id} == {shared.id}
        assert alice.describe([]) == ("NONE", {})
        assert not carol.described("User:alice").keys() & {own.id, shared.id}
        broker.allow("carol", DESCRIBE_OPERATION, DELEGATION_TOKEN, own.id)
        until(lambda: own.id if carol.described().get(own.id) == own else None)
        assert shared.id not in carol.described()
        broker.allow("carol", DESCRIBE_TOKENS, USER, "User:alice")
        until(lambda: own.id if carol.described().keys() >= {own.id, shared.id} else None)


def who_may_renew_tokens(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.user("bob") as bob, broker.user("carol") as carol:
        token = alice.created("User:bob")
        assert alice.renew(token.hmac).error == "NONE"
        assert bob.renew(token.hmac).error == "NONE"
        assert carol.renew(token.hmac) == ("DELEGATION_TOKEN_OWNER_MISMATCH", 0)
        assert carol.expire(token.hmac) == ("DELEGATION_TOKEN_OWNER_MISMATCH", 0)
        assert bob.expire(token.hmac, HOUR_MS).error == "NONE"
        assert bob.expire(token.hmac).error == "NONE"


def lifetimes_have_limits(broker: Broker) -> None:
    with broker.user("alice") as alice:
        for lifetime in (-1, 0, -(2**63), 2**63 - 1, 8 * DAY_MS):
            _, token = alice.create(lifetime_ms=lifetime)
            assert (token.latest - token.issued, token.expires - token.issued) == (7 * DAY_MS, DAY_MS), lifetime
        token = alice.created(lifetime_ms=HOUR_MS)
        assert token.latest - token.issued == token.expires - token.issued == HOUR_MS
        # It is not renewed beyond its end.
        for period in (-1, 0, -(2**63), 2**63 - 1, DAY_MS):
            assert alice.renew(token.hmac, period) == ("NONE", token.latest), period
        for period in (2**63 - 1, DAY_MS):
            assert alice.expire(token.hmac, period) == ("NONE", token.latest), period
        changed = alice.renew(token.hmac, HOUR_MS // 2)
        assert changed.error == "NONE"
        assert changed.expires < token.latest
        until(lambda: token if alice.described()[token.id].expires == changed.expires else None)


def a_token_that_has_expired_is_not_renewed(broker: Broker) -> None:
    with broker.user("alice") as alice:
        token = alice.created()
        changed = alice.expire(token.hmac, 0)
        assert changed.error == "NONE"
        # Until Apache Kafka's broker has heard of it, and in the millisecond in which it expires, it can be renewed.
        until(lambda: token if alice.described()[token.id].expires == changed.expires else None)
        until(lambda: token if time.time() * 1000 >= changed.expires + 1 else None)
        assert alice.renew(token.hmac) == ("DELEGATION_TOKEN_EXPIRED", 0)
        assert alice.expire(token.hmac, HOUR_MS) == ("DELEGATION_TOKEN_EXPIRED", 0)
        assert not broker.logs_in(token)
        # It is there until it is looked for, or removed.
        assert alice.described()[token.id].expires == changed.expires
        assert alice.expire(token.hmac).error == "NONE"
        until(lambda: token if token.id not in alice.described() else None)


def a_token_that_is_removed_is_not_there(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.unknown() as client:
        token = alice.created()
        assert broker.logs_in(token)
        assert not client.log_in_by_token(token.id, token.hmac).error_code
        assert alice.expire(token.hmac, -(2**63)).error == "NONE"
        until(lambda: token if token.id not in alice.described() else None)
        assert not broker.logs_in(token)
        # Whoever is logged in stays.
        assert client.is_served()
        for hmac in (token.hmac, b"", bytes(64), b"a" * 10_000):
            assert alice.renew(hmac) == ("DELEGATION_TOKEN_NOT_FOUND", 0)
            assert alice.expire(hmac) == ("DELEGATION_TOKEN_NOT_FOUND", 0)


def a_client_logs_in_again_by_a_token_of_its_user(broker: Broker) -> None:
    with broker.user("alice") as alice, broker.user("bob") as bob, broker.unknown() as client:
        first, second, others = alice.created(), alice.created(), bob.created()
        assert not client.log_in_by_token(first.id, first.hmac).error_code
        # Kafka wants a second between two logins of a connection.
        broker.pause(1.1)
        assert not client.log_in_by_token(second.id, second.hmac).error_code
        broker.pause(1.1)
        assert client.log_in_by_token(others.id, others.hmac).error_code == ErrorCode.sasl_authentication_failed


RULES: list[Callable[[Broker], None]] = [
    a_user_gets_a_token_and_logs_in_by_it,
    each_version_is_answered,
    a_wrong_secret_or_a_flag_that_is_missing_lets_nobody_in,
    tokens_make_no_tokens,
    nobody_gets_a_token_without_a_login,
    who_may_create_tokens_for_others,
    a_renewer_is_a_user,
    who_may_see_tokens,
    who_may_renew_tokens,
    lifetimes_have_limits,
    a_token_that_has_expired_is_not_renewed,
    a_token_that_is_removed_is_not_there,
    a_client_logs_in_again_by_a_token_of_its_user,
]
