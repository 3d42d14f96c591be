from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import OptionError
from odradek.kafka import settings
from odradek.kafka.cluster import TlsStores
from odradek.kafka.settings import BrokerSettings

SERVERS = {"bootstrap.servers": "one:9092, two:9092"}


def test_takes_several_addresses() -> None:
    assert BrokerSettings.parse(SERVERS).bootstrap_servers == ("one:9092", "two:9092")


@pytest.mark.parametrize(
    ("options", "connection"),
    [
        ({"security.protocol": "SSL", "ssl.cafile": "/ca.pem"}, {"security_protocol": "SSL", "ssl_cafile": "/ca.pem"}),
        ({"ssl.truststore.location": "/ca.jks", "ssl.truststore.password": "x", "ssl.truststore.type": "JKS"},
         {"ssl_context": TlsStores({"ssl.truststore.location": "/ca.jks", "ssl.truststore.password": "x"}, True)}),
        ({"ssl.keystore.location": "/me.pem", "ssl.key.password": "x", "ssl.endpoint.identification.algorithm": ""},
         {"ssl_check_hostname": False,
          "ssl_context": TlsStores({"ssl.keystore.location": "/me.pem", "ssl.key.password": "x"}, False)}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}),
        ({"security.protocol": "ssl"}, {"security_protocol": "SSL"}),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'a.b.C required username="me" password="p\\"w";'},
         {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": 'p"w'}),
        ({"request.timeout.ms": "5000", "group.id": "mine"}, {"request_timeout_ms": 5000}),
    ],
)  # fmt: skip
def test_kafkas_names_become_those_of_kafka_python(options: dict[str, str], connection: dict[str, Any]) -> None:
    assert dict(BrokerSettings.parse({**SERVERS, **options}).connection) == connection


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bootstrap.servers": " "}, "names no broker"),
        ({**SERVERS, "auto.offset.reset": "latest"}, "startingOffsets says"),
        ({**SERVERS, "ssl.truststore.type": "BKS"}, "must be JKS, PKCS12 or PEM"),
        ({**SERVERS, "ssl.truststore.location": "/a", "ssl.certfile": "/b"}, "of two ways to name files"),
        ({**SERVERS, "sasl.jaas.config": "something required;"}, "must name a username and a password"),
        ({**SERVERS, "max.partition.fetch.bytes": "much"}, "must be a number"),
        ({**SERVERS, "secuirty.protocol": "SSL"}, "unknown option secuirty.protocol"),
        (
            {**SERVERS, "security.protocol": "SASL-SSL"},
            "security.protocol is one of PLAINTEXT, SSL, .*, not 'SASL-SSL'",
        ),
        ({**SERVERS, "request.timeout.ms": "soon"}, "request.timeout.ms must be a number, not 'soon'"),
        ({**SERVERS, "security.protocol": "SASL_SSL"}, "sasl.mechanism is missing, such as PLAIN"),
        (
            {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "=PLAIN needs a username, in sasl.ja",
        ),
        ({**SERVERS, "security.protocol": ""}, "security.protocol is one of PLAINTEXT, SSL"),
    ],
)
def test_names_what_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        BrokerSettings.parse(options)


def test_a_transaction_may_take_longer() -> None:
    assert BrokerSettings.parse(SERVERS).transaction_timeout_ms == 300_000
    assert BrokerSettings.parse({**SERVERS, "transaction.timeout.ms": "900000"}).transaction_timeout_ms == 900_000


def test_what_means_nothing_here_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    settings.tell_once.cache_clear()
    options = {**SERVERS, "session.timeout.ms": "45000", "partition.assignment.strategy": "x", "group.id": "g"}
    for _ in range(3):
        assert BrokerSettings.parse(options).connection == {}
    assert [record.getMessage() for record in caplog.records] == [
        "kafka.group.id has no effect here",
        "kafka.partition.assignment.strategy has no effect here",
        "kafka.session.timeout.ms has no effect here",
    ]
