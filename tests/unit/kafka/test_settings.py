from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import OptionError
from odradek.kafka.settings import BrokerSettings

SERVERS = {"bootstrap.servers": "one:9092, two:9092"}


def test_takes_several_addresses() -> None:
    assert BrokerSettings.parse(SERVERS).bootstrap_servers == ("one:9092", "two:9092")


@pytest.mark.parametrize(
    ("options", "connection"),
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem"},
         {"security_protocol": "SSL", "ssl_cafile": "/ca.pem"}),
        ({"ssl.keystore.location": "/me.pem", "ssl.key.password": "x", "ssl.keystore.type": "PEM"},
         {"ssl_certfile": "/me.pem", "ssl_keyfile": "/me.pem", "ssl_password": "x"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}),
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
        ({**SERVERS, "ssl.truststore.type": "JKS"}, "must be PEM"),
        ({**SERVERS, "sasl.jaas.config": "something required;"}, "must name a username and a password"),
        ({**SERVERS, "max.partition.fetch.bytes": "much"}, "must be a number"),
        ({**SERVERS, "secuirty.protocol": "SSL"}, "unknown option secuirty.protocol"),
    ],
)
def test_names_what_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        BrokerSettings.parse(options)
