"""Addresses that no broker can have are refused before anything waits for them."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kafka import errors

from odradek.arguments import is_broker
from odradek.errors import BrokerUnavailableError, OffsetStoreError, OptionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.servers import check_known, parse_servers
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import open_store
from odradek.places.opening import open_place

NEVER_MS = "999999999"


@pytest.mark.parametrize(
    "text", ["a:1", "localhost", "127.0.0.1:65535", "[::1]:9092", "[fe80::1%eth0]:9092", "a:1, b:2,", "PLAINTEXT://a:1"]
)
def test_addresses_of_brokers(text: str) -> None:
    assert ",".join(parse_servers(text)) == text.replace(" ", "").rstrip(",")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:0", "1 to 65535"),
        ("a:65536", "1 to 65535"),
        ("a:" + "9" * 5000, "1 to 65535"),
        ("a:x", "HOST:PORT"),
        ("a:-1", "HOST:PORT"),
        ("a:\u0663", "HOST:PORT"),
        ("a:", "HOST:PORT"),
        (":9092", "HOST:PORT"),
        ("my host:9092", "HOST:PORT"),
        ("a:1,b c:2", "'b c:2' is not"),
        ("::1:9092", "in brackets"),
        ("[1:2]:9092", "IPv6 address"),
        (" , ", "names no broker"),
    ],
)
def test_addresses_that_no_broker_can_have(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_servers(text)
    with pytest.raises(OptionError, match=reason):
        BrokerSettings.parse({"bootstrap.servers": text})
    if text.strip(" ,"):
        with pytest.raises(OffsetStoreError, match=reason):
            open_store(f"kafka://{text}/group")


def test_hosts_that_are_all_unknown_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[object]:
        if host == "known":
            return []
        raise socket.gaierror(socket.EAI_AGAIN if host == "later" else socket.EAI_NONAME, "no")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    check_known(["nowhere:1", "known:1"])
    check_known(["nowhere:1", "later:1"])
    with pytest.raises(errors.KafkaConfigurationError, match="unknown host: nowhere, neither"):
        check_known(["nowhere:1", "neither:1"])
    client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": "nowhere:1", "default.api.timeout.ms": NEVER_MS}))
    with pytest.raises(BrokerUnavailableError, match="unknown host: nowhere"):
        client.attempt("asking", client.nodes)


@pytest.mark.parametrize("address", ["KAFKA://localhost:1", "kafka:/localhost:1", "kafka:localhost:1", "kafka://"])
def test_a_misspelt_address_of_a_broker_is_no_path(address: str) -> None:
    assert is_broker(address)
    if not address.startswith("KAFKA"):
        with pytest.raises(OptionError, match=r"kafka://host:port"):
            open_place(address)
