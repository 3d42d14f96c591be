"""The same tokens at Apache Kafka and at our broker, which have the same key set and the same settings.

Each is taken by both, or refused by both with the same text; where ours is stricter, it says so here.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from joserfc import jwk, jws

from odradek.broker.oauth_settings import OAUTHBEARER_MODULE
from odradek.broker.running import BrokerThread
from odradek.errors import ProtocolError
from odradek.testing.tokens import TokenProvider
from odradek.testing.wire import WireClient
from peers.kafka import QUICK_START, KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import free_port

PROVIDER, RSA, LARGE = TokenProvider(), TokenProvider("RS256", key_id="rsa"), TokenProvider("ES512", key_id="large")
SECRET = {"kty": "oct", "kid": "secret", "k": base64.urlsafe_b64encode(b"s" * 64).decode().rstrip("=")}
INVALID = '{"status":"invalid_token"}'
REFUSED = [
    f"sasl_authentication_failed: {text}"
    for text in (
        INVALID,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
    )
]


def now_s() -> int:
    # Asked for each token: a worker may have read this module long before its turn comes.
    return int(time.time())


def secret_signed(kid: str | None, algorithm: str = "HS256", secret: bytes = b"s" * 64) -> str:
    claims = {"sub": "alice", "iss": PROVIDER.issuer, "aud": "kafka", "iat": now_s(), "exp": now_s() + 6000}
    header = {"alg": algorithm} | ({} if kid is None else {"kid": kid})
    key = jwk.OctKey.import_key(secret)
    return jws.serialize_compact(header, json.dumps(claims), key, algorithms=[algorithm])


def unsigned(algorithm: str) -> str:
    claims = {"sub": "alice", "iss": PROVIDER.issuer, "aud": "kafka", "iat": now_s(), "exp": now_s() + 6000}
    parts = [json.dumps(one).encode() for one in ({"alg": algorithm}, claims)]
    return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts) + "."


def text_of(**claims: Any) -> bytes:
    given = {"sub": "alice", "iss": PROVIDER.issuer, "aud": "kafka", "iat": now_s(), "exp": now_s() + 6000} | claims
    return json.dumps(given).encode()


T = PROVIDER.token


def tokens() -> dict[str, str]:
    return {
        "plain": T("alice"),
        "RS256": RSA.token("alice"),
        "ES512": LARGE.token("alice"),
        "without a key id": T("alice", header={"kid": None}),
        "without a key id, RSA": RSA.token("alice", header={"kid": None}),
        "with an unknown key id": T("alice", header={"kid": "x"}),
        "with the key id of another kind": T("alice", header={"kid": "rsa"}),
        "with an empty key id": T("alice", header={"kid": ""}),
        "with another type": T("alice", header={"typ": "at+jwt"}),
        "with unknown header": T("alice", header={"nonce": "x"}),
        "with a key address": T("alice", header={"jku": "http://127.0.0.1:1/"}),
        "of a stranger": TokenProvider().token("alice"),
        "expired": T("alice", expires_in_s=-40),
        "expired within the skew": T("alice", expires_in_s=-10),
        "exp missing": T("alice", exp=None),
        "exp text": T("alice", exp=str(now_s() + 6000)),
        "exp fraction": T("alice", exp=now_s() + 6000.5),
        "exp negative": T("alice", exp=-5),
        "exp bool": T("alice", exp=True),
        "exp list": T("alice", exp=[now_s() + 6000]),
        "iat missing": T("alice", iat=None),
        "iat text": T("alice", iat="x"),
        "iat in the future": T("alice", iat=now_s() + 300),
        "iat after exp": T("alice", iat=now_s() + 4000),
        "iat negative": T("alice", iat=-5),
        "nbf in the future": T("alice", nbf=now_s() + 300),
        "nbf within the skew": T("alice", nbf=now_s() + 10),
        "nbf after exp": T("alice", nbf=now_s() + 4000),
        "nbf text": T("alice", nbf="x"),
        "aud other": T("alice", aud="other"),
        "aud list": T("alice", aud=["x", "kafka"]),
        "aud empty": T("alice", aud=[]),
        "aud missing": T("alice", aud=None),
        "aud number": T("alice", aud=7),
        "aud numbers": T("alice", aud=["kafka", 7]),
        "iss other": T("alice", iss="https://other.test"),
        "iss missing": T("alice", iss=None),
        "iss number": T("alice", iss=7),
        "jti": T("alice", jti="7"),
        "jti number": T("alice", jti=7),
        "sub missing": T("alice", sub=None),
        "sub empty": T("alice", sub=""),
        "sub blank": T("alice", sub=" \t"),
        "sub with blanks": T("alice", sub="  alice "),
        "sub number": T("alice", sub=7),
        "sub list": T("alice", sub=["alice"]),
        "sub object": T("alice", sub={"a": "alice"}),
        "scope": T("alice", scope="read write"),
        "scope list": T("alice", scope=["read", "write"]),
        "scope twice": T("alice", scope=["read", " read"]),
        "scope empty": T("alice", scope=""),
        "scope with an empty one": T("alice", scope=["read", ""]),
        "scope numbers": T("alice", scope=[7]),
        "scope number": T("alice", scope=7),
        "scope null": PROVIDER.sign(text_of(scope=None)),
        "repeated claim": PROVIDER.sign(text_of()[:-1] + b', "sub": "root"}'),
        "NaN": PROVIDER.sign(text_of()[:-1] + b', "exp": NaN}'),
        "no JSON": PROVIDER.sign(b"alice"),
        "JSON list": PROVIDER.sign(b'["alice"]'),
        "empty payload": PROVIDER.sign(b""),
        "deep": PROVIDER.sign(text_of()[:-1] + b', "a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        "crit": T("alice", header={"crit": ["exp"], "exp": 1}),
        "none": unsigned("none"),
        "None": unsigned("None"),
        "public key as secret": secret_signed("rsa", secret=json.dumps(RSA.public_key).encode()),
        "PEM as secret": secret_signed("rsa", secret=base64.b64encode(RSA._key.as_pem(private=False))),
        "a secret of the key set": secret_signed("secret"),
        "two parts": "e30.e30",
        "four parts": T("alice") + ".e30",
        "no token": "nonsense",
        "signature cut": T("alice")[:-4],
        "signature empty": T("alice").rpartition(".")[0] + ".",
    }


FIRST = b"n,,\x01auth=Bearer "


def messages() -> dict[str, bytes]:
    return {
        "authorization id": b"n,a=alice,\x01auth=Bearer " + T("alice").encode() + b"\x01\x01",
        "other authorization id": b"n,a=bob,\x01auth=Bearer " + T("alice").encode() + b"\x01\x01",
        "trimmed user": b"n,a=alice,\x01auth=Bearer " + T(" alice ").encode() + b"\x01\x01",
        "extensions": FIRST + T("alice").encode() + b"\x01traceId=7 8\x01logicalCluster=x\x01\x01",
        "scheme in capitals": b"n,,\x01auth=BEARER  " + T("alice").encode() + b"\x01\x01",
        "other scheme": b"n,,\x01auth=Basic " + T("alice").encode() + b"\x01\x01",
        "no auth": b"n,,\x01traceId=7\x01\x01",
        "nothing": b"n,,\x01\x01",
        "no end": FIRST + T("alice").encode() + b"\x01",
        "channel binding": b"y,,\x01auth=Bearer " + T("alice").encode() + b"\x01\x01",
        "wrong extension": FIRST + T("alice").encode() + b"\x01a1=7\x01\x01",
        "empty extension": FIRST + T("alice").encode() + b"\x01a=\x01\x01",
        "plain": b"\0alice\0secret",
        "only the acknowledgement": b"\x01",
    }


STRICTER = {
    # Kafka signs with secrets of the key set, too.
    "a secret of the key set": "taken for 6000 s",
    "deep": "taken for 6000 s",
    # Kafka fails in both, and says nothing.
    "other scheme": "closed",
    "scope numbers": "closed",
}
"""What Apache Kafka does where ours refuses."""


OPEN = {
    "listener.name.open.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.open.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
    # The first one is for a token that Kafka makes for itself.
    'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorPrincipalClaimName="name" '
    'unsecuredValidatorRequiredScope="read write" '
    'unsecuredValidatorAllowableClockSkewMs="5000";',
}
"""A listener that takes tokens without a signature."""


class Ports(NamedTuple):
    """The ports of the listeners of a broker."""

    secured: int
    unsecured: int


def open_token(**claims: Any) -> str:
    given = {"name": "alice", "scope": ["read", "write"], "exp": now_s() + 6000} | claims
    text = json.dumps({name: value for name, value in given.items() if value is not ...}).encode()
    return PROVIDER.sign(text, alg="none", kid=None).rpartition(".")[0] + "."


def open_tokens() -> dict[str, str]:
    return {
        "plain": open_token(),
        "with all": open_token(iat=now_s(), iss="any", aud=["any"], sub="bob"),
        "with a signature": PROVIDER.sign(text_of(name="alice", scope=["read", "write"])),
        "with none and a signature": PROVIDER.sign(text_of(name="alice", scope=["read", "write"]), alg="none"),
        "with None": PROVIDER.sign(text_of(name="alice"), alg="None").rpartition(".")[0] + ".",
        "scopes in a text": open_token(scope="read write"),
        "one scope": open_token(scope=["read"]),
        "no scope": open_token(scope=...),
        "more scopes": open_token(scope=["write", " read", "", "all"]),
        "expired": open_token(exp=now_s() - 6),
        "no exp": open_token(exp=...),
        "exp text": open_token(exp="x"),
        "issued in the future": open_token(iat=now_s() + 500),
        "issued after its end": open_token(iat=now_s() - 7, exp=now_s() - 8),
        "no name": open_token(name=...),
        "blank name": open_token(name=" "),
        "number as name": open_token(name=7),
    }


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps({"keys": [PROVIDER.public_key, RSA.public_key, LARGE.public_key, SECRET]}))
    return path


def settings(key_file: Path) -> dict[str, str]:
    return PROVIDER.broker_settings(key_file) | {"connection.failed.authentication.delay.ms": "0"}


@pytest.fixture(scope="module")
def at_kafka(kafka_tools: KafkaTools, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={key_file.as_uri()}"
    broker = KafkaBroker(kafka_tools, tmp_path_factory.mktemp("kafka") / "data", jvm_options=[*QUICK_START, allowed])
    secured, unsecured = free_port(), free_port()
    for name in ("listeners", "advertised.listeners"):
        broker.config[name] += f",SASL_PLAINTEXT://127.0.0.1:{secured},OPEN://127.0.0.1:{unsecured}"
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT"
    broker.config |= settings(key_file) | OPEN | {"listener.security.protocol.map": protocols}
    with broker:
        yield Ports(secured, unsecured)


@pytest.fixture(scope="module")
def at_ours(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    config = settings(key_file) | OPEN | {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,OPEN://127.0.0.1:0"}
    config["listener.security.protocol.map"] = "SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT"
    path = tmp_path_factory.mktemp("ours") / "data"
    with BrokerThread(path, config, sync="off", background=False, unsecured_tokens=True) as running:
        yield Ports(*(running.endpoint(name).port for name in ("SASL_PLAINTEXT", "OPEN")))


def outcome(port: int, message: bytes) -> str:
    with WireClient("127.0.0.1", port) as client:
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        try:
            answer = client.call(36, 2, {"auth_bytes": message})
            if answer.error_code == 0 and answer.auth_bytes:
                told = answer.auth_bytes.decode()
                answer = client.call(36, 2, {"auth_bytes": b"\x01"})
                assert answer.error_message == told
        except (ProtocolError, ConnectionError):
            return "closed"
        if answer.error_code:
            return f"{answer.error_code.name}: {answer.error_message}"
        left_s = answer.session_lifetime.total_seconds()
        return f"taken for {round(left_s, -3):.0f} s"


def test_both_take_and_refuse_the_same(at_kafka: Ports, at_ours: Ports) -> None:
    cases = {name: FIRST + token.encode() + b"\x01\x01" for name, token in tokens().items()} | messages()
    by_kafka = {name: outcome(at_kafka.secured, message) for name, message in cases.items()}
    by_us = {name: outcome(at_ours.secured, message) for name, message in cases.items()}
    assert {name: (by_us[name], found) for name, found in by_kafka.items() if by_us[name] != found} == {
        name: (REFUSED[name == "other scheme"], found) for name, found in STRICTER.items()
    }
    taken = [name for name, found in by_us.items() if found.startswith("taken")]
    assert 15 < len(taken) < len(cases) - 40


def test_both_take_the_same_tokens_without_a_signature(at_kafka: Ports, at_ours: Ports) -> None:
    cases = open_tokens()
    found = [
        {name: outcome(at.unsecured, FIRST + text.encode() + b"\x01\x01") for name, text in cases.items()}
        for at in (at_kafka, at_ours)
    ]
    assert found[1] == found[0]
    assert [name for name, one in found[1].items() if one.startswith("taken")] == ["plain", "with all", "more scopes"]
    assert found[1]["one scope"].endswith('{"status":"insufficient_scope", "scope":"[read, write]"}')
