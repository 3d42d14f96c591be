"""Logins of our client by OAUTHBEARER with a token of a file."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from kafka.errors import KafkaConfigurationError

from odradek.errors import OptionError
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.token_file import TokenFile

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
LOGIN = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
    "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.FileJwtRetriever",
    "sasl.oauthbearer.token.endpoint.url": "file:///run/the%20token",
}


def test_kafka_s_settings_name_the_file() -> None:
    connection = BrokerSettings.parse(LOGIN).connection
    provider = connection["sasl_oauth_token_provider"]
    assert provider == TokenFile(Path("/run/the token"))
    assert pickle.loads(pickle.dumps(provider)) == provider
    assert {name: value for name, value in connection.items() if value is not provider} == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
    }


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ("needs a file with a token", {"sasl.oauthbearer.token.endpoint.url": "https://login.test/token"}),
        ("needs a file with a token", {"sasl.oauthbearer.token.endpoint.url": ""}),
        ("needs a file with a token", {"sasl.oauthbearer.token.endpoint.url": "file://elsewhere/token"}),
        ("sasl.login.callback.handler.class is one of", {"sasl.login.callback.handler.class": "org.example.Login"}),
        ("sasl.oauthbearer.jwt.retriever.class is one of", {"sasl.oauthbearer.jwt.retriever.class": "org.example.R"}),
        ("unknown option sasl.oauthbearer.scope", {"sasl.oauthbearer.scope": "read"}),
    ],
)
def test_other_ways_to_get_a_token_are_refused(said: str, changed: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=said):
        BrokerSettings.parse(LOGIN | changed)


def test_the_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" a.b-_~+/.c==\n")
    provider = TokenFile(path)
    assert provider.token() == "a.b-_~+/.c=="
    path.write_text("d")
    assert provider.token() == "d"


@pytest.mark.parametrize("data", [b"", b" ", b"a b", b"a\x01b", b"\xff", b"a\nb", b"a" * (1 << 17), None])
def test_what_is_no_token_is_never_shown(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "token"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(KafkaConfigurationError, match=r"has no token|cannot be read") as refused:
        TokenFile(path).token()
    assert str(path) in str(refused.value)
    assert "a b" not in str(refused.value)
