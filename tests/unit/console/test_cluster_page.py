"""The page of the cluster, and the groups on the page of a topic: over a folder as over its broker, without secrets."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.records import Record
from odradek.testing import Broker, allow


def page_of(address: object, path: str, config: dict[str, str] | None = None) -> str:
    app = create_app(ConsoleOptions(str(address), config or {}))
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get(path)
        assert page.status_code == 200
        return html.unescape(re.sub(r"<[^>]*>", " ", page.text))


@pytest.fixture(scope="module")
def broker() -> Any:
    acls = [allow("alice", "READ", topic="events"), allow("<i>bob", "ALL", cluster=True)]
    with Broker(users={"alice": "p", "<i>bob": "p"}, acls=acls, listeners=["SASL_PLAINTEXT"]) as broker:
        broker.create_topic("events")
        broker.logs["events", 0].append([Record(b"k", b"v")] * 7)
        broker.commit_offsets("g", {("events", 0): 3})
        secrets = {"ssl.keystore.password": "s3cret", "listener.name.a.ssl.key.password": "s3cret"}
        broker.logs.metadata.alter_broker_config({"log.retention.ms": "1234567", **secrets})
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "broker"])
def test_the_cluster(broker: Broker, kind: str) -> None:
    folder = broker.logs.path
    config = {} if kind == "folder" else broker.client_config("<i>bob", "java")
    address = folder if kind == "folder" else f"kafka://{config.pop('bootstrap.servers')}"
    text = page_of(address, "/cluster", config)
    assert (folder / "meta.properties").read_text().partition("cluster.id=")[2].split()[0] in text
    assert re.search(r"log.retention.ms\s+1234567\s+set for the broker", text)
    assert re.search(r"ssl.keystore.password\s+not shown", text)
    assert "s3cret" not in text
    assert re.search(r"User:alice\s+\*\s+ALLOW\s+READ\s+TOPIC\s+events", text)
    assert "alice (SCRAM-SHA-512)" in text
    assert "log.retention.ms" not in page_of(address, "/cluster?q=keystore", config)


def test_what_a_broker_refuses_is_told(broker: Broker) -> None:
    config = broker.client_config("alice", "java")
    text = page_of(f"kafka://{config.pop('bootstrap.servers')}", "/cluster", config)
    assert "Not known: " in text
    assert "CLUSTER_AUTHORIZATION_FAILED" in text


@pytest.mark.slow
def test_a_topic_has_the_groups_that_read_it(broker: Broker) -> None:
    text = page_of(broker.logs.path, "/topics/events")
    assert re.search(r"Lag here\s+g\s+\w+\s+Empty\s+4\s", text)
