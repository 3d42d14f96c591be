"""Home, the list of topics and a topic's page: over a folder, and over our broker."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import odradek
from odradek.console.app import create_app
from odradek.console.options import ConsoleOptions
from odradek.console.source import Source
from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.places.broker_transaction import CommittedPosition, Transaction
from odradek.records import Record
from odradek.records.compression import Codec
from odradek.storage.formats.producer_snapshot import ProducerSnapshotEntry
from odradek.storage.names import TopicPartition
from odradek.testing import Broker, allow
from peers.broker_thread import eventually
from peers.cpu import in_standards
from peers.kafka_fixture import KafkaFixture

MARKUP = "<script>alert(1)</script>\"'&"


def console(address: object, **options: object) -> TestClient:
    app = create_app(ConsoleOptions(str(address), **options))  # type: ignore[arg-type]
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def client(fixture_4_3_1: KafkaFixture) -> Iterator[TestClient]:
    with console(fixture_4_3_1.log_dir) as client:
        yield client


@pytest.mark.slow
def test_home_says_what_is_here(client: TestClient) -> None:
    page = client.get("/").text
    assert re.search(r"<dt>Topics</dt><dd><a href=\"/topics\">(\d+)<", page)
    eventually(lambda: "The largest topics" in client.get("/").text)


@pytest.mark.slow
def test_the_topics_are_listed_found_and_sorted(client: TestClient, fixture_4_3_1: KafkaFixture) -> None:
    page = client.get("/topics").text
    topics = {name.rpartition("-")[0] for name in fixture_4_3_1.consumed}
    assert all(f'href="/topics/{topic}"' in page for topic in topics)
    assert "__consumer_offsets" not in page
    assert "__consumer_offsets" in client.get("/topics?internal=1").text
    found = client.get("/topics?q=KEY").text
    assert ("keyed" in found, "compacted" in found) == (True, False)
    for sort in ("partitions", "size", "offsets", "last"):
        assert client.get("/topics", params={"sort": sort}).status_code == 200
    by_partitions = client.get("/topics?sort=partitions").text
    assert by_partitions.index('topics/keyed"') < by_partitions.index('topics/compacted"')


@pytest.mark.parametrize("query", ["sort=nothing", "page=-1", "page=x", "page=" + "9" * 30, "q=" + "x" * 2000])
def test_a_wrong_parameter_is_named(client: TestClient, query: str) -> None:
    answer = client.get(f"/topics?{query}")
    assert (answer.status_code, query.partition("=")[0] in answer.text) == (400, True)


@pytest.mark.slow
def test_a_topic_has_its_partitions_settings_and_segments(client: TestClient) -> None:
    page = client.get("/topics/keyed").text
    for partition in range(3):
        assert f'records?partition={partition}"' in page
    assert "Kafka's default" in html.unescape(page)
    assert "<svg" in page
    assert ("CreateTime" in page, "dataclass" in page) == (True, False)
    compacted = client.get("/topics/compacted").text
    assert "set for the topic" in compacted


@pytest.mark.slow
@pytest.mark.parametrize("path", ["nothing", "..", "%2e%2e", "keyed%2F..", "keyed-0", ".", "%00", "..%2f..%2fetc%2f"])
def test_paths_lead_to_topics_only(client: TestClient, path: str) -> None:
    for rest in ("", "/records", "/0/0"):
        answer = client.get(f"/topics/{path}{rest}", follow_redirects=True)
        # `..` is resolved by the client itself.
        assert answer.status_code == 404 or path in ("..", "%2e%2e", "."), answer.text
        assert "root:" not in answer.text


@pytest.mark.slow
def test_a_topic_of_more_partitions_than_a_page_looks_at_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.console.source.SUMMARISED", 3)
    monkeypatch.setattr("odradek.console.pages.topics.SUMMARISED", 3)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("wide", 5)
        logs["wide", 4].append([Record(None, b"")] * 7)
    with console(tmp_path / "data") as client:
        eventually(lambda: "being counted" not in client.get("/").text)
        page = client.get("/topics/wide").text
    assert "<dt>Partitions</dt><dd>5</dd>" in page
    assert "<dt>Offsets held</dt><dd>7</dd>" in page
    assert ("not here" in page, "And 2 more." in page) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["bootstrap.checkpoint", "meta.properties"])
def test_damaged_metadata_hide_nothing_else(tmp_path: Path, damaged: str) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"")] * 7)
    (tmp_path / "data" / damaged).write_bytes(b"damaged" * 9)
    with console(tmp_path / "data") as client:
        topic, cluster = client.get("/topics/t"), client.get("/cluster")
    assert (topic.status_code, cluster.status_code) == (200, 200)
    assert "<dt>Offsets held</dt><dd>7</dd>" in topic.text
    assert f"{damaged}" in cluster.text
    assert ("Its metadata cannot be read: " in topic.text) is (damaged == "bootstrap.checkpoint")


def test_what_a_folder_holds_is_never_markup(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"leader.replication.throttled.replicas": "*"})
        logs["t", 0].append([Record(b"k", b"v")])
    # A stranger's folder, named as no broker would allow.
    (tmp_path / "data" / "<b>x-0").mkdir()
    with console(tmp_path / "data") as client:
        for path in ("/", "/topics?q=" + MARKUP, "/topics", "/topics/" + MARKUP, "/topics?sort=" + MARKUP):
            page = client.get(path).text
            assert ("<script>alert" in page, "<b>x" in page) == (False, False), path


@pytest.mark.slow
def test_a_broker_is_shown_as_a_folder_is() -> None:
    with Broker() as broker:
        broker.create_topic("events", 2, config={"retention.ms": "1234567"})
        with console(f"kafka://{broker.bootstrap_servers}") as client:
            eventually(lambda: "events" in client.get("/").text)
            assert 'href="/topics/events"' in client.get("/topics").text
            page = client.get("/topics/events").text
            assert "1234567" in page
            assert page.count('class="n"><a href="/topics/events/records?partition=') == 2
            assert "the broker&#39;s file" in page or "Kafka&#39;s default" in page
            assert client.get("/topics/nothing").status_code == 404


@pytest.mark.slow
def test_a_reader_who_may_not_see_settings_sees_the_topic() -> None:
    # Who may read a topic may describe it, but not its settings.
    rules = [allow("alice", "READ", topic="events"), allow("alice", "DESCRIBE", cluster=True)]
    with Broker(users={"alice": "secret"}, acls=rules) as broker:
        broker.create_topic("events")
        config = {name: str(value) for name, value in broker.client_config("alice", "java").items()}
        with console(f"kafka://{broker.bootstrap_servers}", config=config) as client:
            page = client.get("/topics/events")
            assert (page.status_code, "the client may not read them" in page.text) == (200, True)


@pytest.mark.slow
def test_the_producers_of_a_folder_are_those_that_its_broker_tells() -> None:
    names = [TopicPartition("events", number) for number in range(2)]
    with Broker() as broker:
        broker.create_topic("events", 2)
        settings = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers})
        with BrokerClient(settings) as client, ExitStack() as stack:
            transaction = Transaction(client, "tx", "events", Codec.NONE)
            for name in names:
                transaction.begin()
                assert transaction.write(name, pa.record_batch({"value": pa.array([b"a", b"b"])})) == []
                if name.partition == 0:
                    transaction.commit(CommittedPosition(1))
            told = []
            for address in (f"kafka://{broker.bootstrap_servers}", str(broker.logs.path)):
                source = Source(ConsoleOptions(address))
                stack.callback(source.close)
                found = source.producers(names)
                assert all(last.is_whole for last in found.values())
                told.append({name: [_told(one) for one in last.producers] for name, last in found.items()})
                page = stack.enter_context(console(address)).get("/topics/events").text
                assert '<a href="/topics/events/1/0">0</a>' in page
        assert told[0] == told[1]
        assert [len(producers) for producers in told[0].values()] == [1, 1]


def _told(one: ProducerSnapshotEntry) -> tuple[int, ...]:
    since = one.current_transaction_first_offset
    return one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp, since


@pytest.mark.slow
@pytest.mark.laboratory  # a size, no rule
def test_ten_thousand_topics(leftovers_frozen: None, tmp_path: Path) -> None:
    with odradek.open(tmp_path / "one") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"k", b"v")])
    segment = (tmp_path / "one" / "t-0" / f"{0:020}.log").read_bytes()
    for number in range(10_000):
        folder = tmp_path / "many" / f"topic-{number}-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(segment)
    with console(tmp_path / "many") as client:
        client.get("/topics")
        pages: list[str] = []
        took = in_standards(lambda: pages.append(client.get("/topics").text), time.process_time)
    assert pages[0].count("<tr>") == 51
    assert took < 20
