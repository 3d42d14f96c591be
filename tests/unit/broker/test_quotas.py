"""Clients above their quotas: they are told for how long they have to wait, and kept waiting; others are not."""

from __future__ import annotations

import math
import socket
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.clock import Clock
from odradek.broker.protocol import encode_request
from odradek.broker.quotas.addresses import AddressQuotas, host_addresses, resolver
from odradek.broker.quotas.usages import Usages
from odradek.broker.running import BrokerThread
from odradek.coordination.quotas.rates import Rate, TokenBucket, Windows
from odradek.errors import OdradekError, ProtocolError
from odradek.messages.metadata.metadata_records import ClientQuotaRecord, QuotaEntity
from odradek.testing.conformance.client_quotas import entry
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.cpu import in_standards
from peers.requests import ask, batch, fetch_message, message, new_topic, produce_message, produced

MB = 1_000_000
SIZE = 200_000
APP = {"client-id": "app"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with start(tmp_path / "data", **{"connections.max.idle.ms": -1}) as running:
        running.broker.logs.create_topic("events")
        yield running


@pytest.fixture
def client(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running, client_id="app") as client:
        yield client


@pytest.fixture
def other(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running, client_id="other") as other:
        yield other


def alter(client: WireClient, entity: Mapping[str, str | None], **ops: float | None) -> Any:
    (answer,) = ask(client, "AlterClientQuotas", 1, entries=[entry(entity, **ops)], validate_only=False).entries
    return answer


def throttled_ms(answer: Any) -> int:
    return int(answer.throttle_time.total_seconds() * 1000 + 0.5)


def produce(client: WireClient, size: int = SIZE) -> int:
    answer = client.call(0, 9, produce_message(batch(b"x" * size)))
    assert produced(answer)[0] == 0
    return throttled_ms(answer)


def muted(running: BrokerThread) -> int:
    return running.call(lambda: running.broker.throttling.muted_connections)


def unmute(running: BrokerThread, after_ms: int) -> None:
    advance(running, after_ms / 1000)
    eventually(lambda: not muted(running))


@pytest.mark.slow
def test_a_producer_gets_its_quota_and_others_are_not_touched(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=MB)
    clock, sent = running.broker.clock, 0
    begun = clock.elapsed_ms()
    # Ten seconds' worth may come at once: a period of the windows is left out, and ten of them are measured.
    while (elapsed := clock.elapsed_ms() - begun) < 121_000:
        sent += SIZE if elapsed >= 11_000 else 0
        advance(running, produce(client) / 1000 + 0.001)
    assert sent / 110 == pytest.approx(MB, rel=0.05)
    assert [produce(other) for _ in range(80)] == [0] * 80


@pytest.mark.slow
def test_a_consumer_gets_its_quota_and_others_are_not_touched(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    produce(other)
    alter(other, APP, consumer_byte_rate=MB)
    clock, received = running.broker.clock, 0
    begun = clock.elapsed_ms()

    def fetch(from_: WireClient) -> tuple[int, int]:
        answer = from_.call(1, 12, fetch_message())
        records = [one.records for topic in answer.responses for one in topic.partitions]
        return throttled_ms(answer), sum(map(len, records))

    while (elapsed := clock.elapsed_ms() - begun) < 121_000:
        wait_ms, size = fetch(client)
        assert bool(size) != bool(wait_ms)
        received += size if elapsed >= 11_000 else 0
        advance(running, wait_ms / 1000 + 0.001)
    assert received / 110 == pytest.approx(MB, rel=0.05)
    assert all(fetch(other)[0] == 0 for _ in range(80))


def test_a_throttled_connection_is_answered_at_once_and_then_muted(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=1000)
    wait_ms = produce(client)
    assert wait_ms == pytest.approx(SIZE - 10_000, abs=500)
    assert muted(running) == 1
    sent = [client.send(18, 0, {}) for _ in range(3)]
    client.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.receive_frame()
    client.socket.settimeout(30)
    unmute(running, wait_ms)
    for one in sent:
        assert client.receive(18, 0, one).error_code == 0


def test_requests_that_came_together_wait_too(running: BrokerThread, client: WireClient, other: WireClient) -> None:
    """Also those that the broker had received before it throttled the first one."""
    alter(other, APP, producer_byte_rate=1000)
    first = client.send(0, 9, produce_message(batch(b"x" * 20_000)))
    second = client.send(18, 0, {})
    wait_ms = throttled_ms(client.receive(0, 9, first))
    client.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.receive_frame()
    client.socket.settimeout(30)
    unmute(running, wait_ms)
    client.receive(18, 0, second)


@pytest.mark.slow
def test_each_new_connection_of_a_client_waits_longer(running: BrokerThread, other: WireClient) -> None:
    alter(other, APP, producer_byte_rate=1000)
    times = []
    for _ in range(3):
        with connect(running, client_id="app") as client:
            times.append(produce(client))
    assert times == sorted(times)
    assert times[2] - times[0] > 350_000
    # Nobody remembers a connection that was closed, once it is noticed.
    unmute(running, times[2])


def test_a_client_that_does_not_read_while_it_is_muted_harms_nobody(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, request_percentage=1e-6)
    client.socket.setblocking(False)
    sent, requests = 0, encode_request(18, 0, 1, "app", {}) * 10_000
    try:
        while sent < 64 << 20:
            sent += client.socket.send(requests)
    except BlockingIOError:
        pass
    assert sent < 64 << 20
    assert ask(other, "ApiVersions", 3).error_code == 0
    (connection,) = [
        one for one in running.call(lambda: list(running.server.connections)) if one in running.broker.throttling._muted
    ]
    assert len(connection._waiting) < 10_000


def test_a_muted_connection_does_not_delay_the_end(running: BrokerThread, client: WireClient) -> None:
    alter(client, APP, producer_byte_rate=1)
    assert produce(client) > 10_000_000
    client.send(18, 0, {})
    # Otherwise the test itself would not end.
    running.stop()
    with pytest.raises((ProtocolError, ConnectionError)):
        client.receive_frame()


def test_a_producer_that_wants_no_answers_is_muted(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=1000, request_percentage=1e-9)
    client.send(0, 9, produce_message(batch(b"x" * SIZE), acks=0))
    eventually(lambda: muted(running) == 1)


def test_a_session_goes_on_after_it_was_throttled(running: BrokerThread, client: WireClient, other: WireClient) -> None:
    produce(other, 5000)
    alter(other, APP, consumer_byte_rate=600)
    begun = client.call(1, 12, fetch_message(session_id=0, session_epoch=0))
    assert (throttled_ms(begun), len(begun.responses)) == (0, 1)
    again = fetch_message(session_id=begun.session_id, session_epoch=1)
    throttled = client.call(1, 12, again)
    assert (throttled_ms(throttled) > 0, throttled.session_id, throttled.responses) == (True, begun.session_id, ())
    unmute(running, 60_000)
    later = client.call(1, 12, {**again, "topics": [], "session_epoch": 2})
    assert (throttled_ms(later), len(later.responses)) == (0, 1)


def test_a_full_fetch_that_is_throttled_begins_no_session(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    produce(other, 100)
    # A Fetch that does not wait for anything takes time, too.
    assert other.call(1, 12, fetch_message()).responses
    alter(other, APP, request_percentage=1e-9)
    answer = client.call(1, 12, fetch_message(session_id=0, session_epoch=0))
    assert (throttled_ms(answer), answer.session_id, answer.responses) == (1000, 0, ())
    assert running.call(lambda: len(running.broker.fetch_sessions)) == 0


def test_time_on_the_event_loop_counts_and_waiting_does_not(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, request_percentage=50)
    # It waits for records, for longer than its quota.
    answer = client.send(1, 12, fetch_message(max_wait_ms=20_000))
    eventually(lambda: running.call(lambda: len(running.broker.clock._timers)) > 0)
    advance(running, 20)
    assert throttled_ms(client.receive(1, 12, answer)) == 0
    alter(other, APP, request_percentage=1e-9)
    assert throttled_ms(client.call(3, 9, message("Metadata", topics=[]))) == 1000


@pytest.mark.parametrize(("version", "is_strict"), [(7, True), (5, False)])
def test_creations_above_the_quota_are_refused_or_delayed(
    running: BrokerThread, client: WireClient, other: WireClient, version: int, is_strict: bool
) -> None:
    alter(other, APP, controller_mutation_rate=1)
    topics = [new_topic("a", 12), new_topic("b", 3), new_topic("c", 3)]
    answer = ask(client, "CreateTopics", version, topics=topics)
    codes = [one.error_code for one in answer.topics]
    assert codes == ([0, 89, 89] if is_strict else [0, 0, 0])
    assert throttled_ms(answer) == pytest.approx(1000 if is_strict else 7000, abs=200)
    assert set(running.broker.logs.metadata_image.topics) >= ({"a"} if is_strict else {"a", "b", "c"})
    assert ("b" in running.broker.logs.metadata_image.topics) != is_strict


def test_deletions_and_new_partitions_count(running: BrokerThread, client: WireClient, other: WireClient) -> None:
    running.broker.logs.create_topic("a", partitions=12)
    alter(other, APP, controller_mutation_rate=1)
    more = [{"name": "events", "count": 13, "assignments": None}]
    assert ask(client, "CreatePartitions", 3, topics=more).results[0].error_code == 0
    more = [{"name": "events", "count": 14, "assignments": None}]
    refused = ask(client, "CreatePartitions", 3, topics=more)
    assert refused.results[0].error_code == 89
    assert throttled_ms(refused) == pytest.approx(1000, abs=200)
    unmute(running, 1500)
    assert ask(client, "DeleteTopics", 5, topic_names=["a"]).responses[0].error_code == 0
    refused = ask(client, "DeleteTopics", 5, topic_names=["events"])
    assert (refused.responses[0].error_code, refused.responses[0].error_message) == (89, None)
    assert "events" in running.broker.logs.metadata_image.topics


def test_topics_that_are_only_named_count_as_creations(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, controller_mutation_rate=0.1)
    topics = [{"name": name, "topic_id": None} for name in ("a", "b", "c")]
    answer = ask(client, "Metadata", 9, topics=topics, allow_auto_topic_creation=True)
    assert [one.error_code for one in answer.topics] == [0, 0, 3]


# -- addresses


def connected(running: BrokerThread) -> bool:
    try:
        with connect(running) as client:
            return bool(ask(client, "ApiVersions", 0).api_keys)
    except (OdradekError, OSError):
        return False


@pytest.mark.slow
def test_an_address_that_connects_too_often_is_kept_waiting(running: BrokerThread, client: WireClient) -> None:
    alter(client, {"ip": "localhost"}, connection_creation_rate=1)
    assert [connected(running) for _ in range(10)] == [True] * 10
    with connect(running) as late:
        late.socket.settimeout(0.05)
        late.send(18, 0, {})
        with pytest.raises(TimeoutError):
            late.receive_frame()
        advance(running, 1.1)
        late.socket.settimeout(30)
        with pytest.raises((ProtocolError, ConnectionError)):
            late.receive_frame()
    advance(running, 11)
    assert connected(running)
    alter(client, {"ip": "localhost"}, connection_creation_rate=None)
    assert all(connected(running) for _ in range(30))


def test_connections_that_are_kept_waiting_have_few_descriptors(tmp_path: Path) -> None:
    with ExitStack() as kept, start(tmp_path / "data", **{"socket.listen.backlog.size": 500}) as running:
        with connect(running) as client:
            alter(client, {"ip": None}, connection_creation_rate=1)
        acceptor, most = running.server._acceptor, 0
        for _ in range(150):
            kept.enter_context(connect(running))
            most = max(most, running.call(lambda: len(acceptor._closed_later)))
        assert most == 100
        running.stop()
        assert not acceptor._closed_later


def test_the_quota_of_an_address_counts_before_the_default() -> None:
    quotas = AddressQuotas(Clock(), Windows())
    quotas.set({"ip": None}, {"connection_creation_rate": math.nan}, {})
    quotas.set({"ip": "host"}, {"connection_creation_rate": 2.0**31 - 1}, {"host": "10.0.0.1"})
    assert [quotas.throttle_ms("10.0.0.1") for _ in range(100)] == [0] * 100
    assert quotas.throttle_ms("10.0.0.2") == 1000
    quotas.set({"ip": None}, {}, {})
    assert quotas.throttle_ms("10.0.0.2") == 0


# -- what hostile clients try


def test_clients_that_come_and_go_are_forgotten() -> None:
    clock, made = Clock(), 0
    windows = Windows()
    usages = Usages(lambda: Rate(windows), clock, windows.all_ms)
    for _ in range(20):
        for _ in range(500):
            made, now_ms = made + 1, usages.now_ms()
            usages.of(("", f"client-{made}"), 1.0, now_ms).record(1, 1.0, now_ms)
        clock.advance(2)
    assert len(usages) <= 3500
    clock.advance(12)
    assert len(usages) == 0


def test_a_client_in_debt_is_not_forgotten() -> None:
    clock, windows = Clock(), Windows()
    usages = Usages(lambda: TokenBucket(windows), clock, windows.all_ms)
    usages.of("app", 1.0, usages.now_ms()).record(100, 1.0, usages.now_ms())
    clock.advance(80)
    assert usages.of("app", 1.0, usages.now_ms()).throttle_ms(1.0, usages.now_ms()) == pytest.approx(9000, abs=100)
    clock.advance(40)
    clock.advance(12)
    assert len(usages) == 0


def test_long_names_have_short_keys(running: BrokerThread, other: WireClient) -> None:
    alter(other, {"client-id": None}, producer_byte_rate=1000)
    with connect(running, client_id="x" * 32_767) as client, connect(running, client_id="x" * 32_766) as like:
        first = produce(client)
        assert produce(like) == pytest.approx(first, abs=100)
    keys = running.call(lambda: list(running.broker.quotas.produce.usages._all))
    assert all(len(str(key)) < 200 for key in keys)


@pytest.mark.parametrize("name", ["x" * 32_767, "x" * 65_536, "\x00", "é" * 16_000])
def test_names_of_any_length_are_taken_or_refused(running: BrokerThread, client: WireClient, name: str) -> None:
    entries = [entry({"user": name, "client-id": name}, producer_byte_rate=1.0, consumer_byte_rate=2.0)]
    asked = {"entries": entries, "validate_only": False}
    try:
        taken = client.call(49, 1, asked).entries[0].error_code == 0
    except (OdradekError, OSError):
        taken = False
    assert taken == (len(name.encode()) <= 32_767)
    with connect(running) as again:
        found = ask(again, "DescribeClientQuotas", 1, components=[], strict=False)
    assert [one.entity[0].entity_name for one in found.entries] == [name] * taken
    running.stop()
    with start(running.broker.logs.path) as after:
        assert len(after.broker.logs.metadata_image.client_quotas) == taken


@pytest.mark.slow
def test_too_many_entities_in_one_request_are_refused(client: WireClient, other: WireClient) -> None:
    entries = [entry({"client-id": str(number)}, producer_byte_rate=1e9) for number in range(100_000)]
    answer = ask(client, "AlterClientQuotas", 1, entries=entries[:25_000], validate_only=False)
    assert {one.error_code for one in answer.entries} == {44}
    # No request may have as many items as that.
    with pytest.raises((ProtocolError, ConnectionError)):
        ask(client, "AlterClientQuotas", 1, entries=entries, validate_only=False)
    assert ask(other, "DescribeClientQuotas", 1, components=[], strict=False).entries == ()


def test_jumps_of_the_clock_only_end_what_is_muted(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=1000)
    for _ in range(3):
        assert produce(client) > 100_000
        unmute(running, 1_000_000_000)
    assert produce(client, 1000) == 0


def test_a_client_that_disconnects_is_forgotten_when_its_time_is_over(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=1000)
    wait_ms = produce(client)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    unmute(running, wait_ms)
    eventually(lambda: len(running.call(lambda: list(running.server.connections))) == 1)


def test_clients_that_have_gone_while_they_were_muted_are_idle_ones(tmp_path: Path) -> None:
    with start(tmp_path / "data", **{"connections.max.idle.ms": 60_000}) as running:
        running.broker.logs.create_topic("events")
        with connect(running) as other:
            alter(other, APP, producer_byte_rate=1)
        for _ in range(5):
            with connect(running, client_id="app") as client:
                assert produce(client) > 1_000_000
        assert muted(running) == 5
        advance(running, 61)
        eventually(lambda: not muted(running) and not running.call(lambda: len(running.server.connections)))


@pytest.mark.parametrize("end", ["close", "half", "reset"])
def test_a_client_that_goes_while_it_is_muted_leaves_its_descriptor_within_seconds(tmp_path: Path, end: str) -> None:
    with start(tmp_path / "data", **{"connections.max.idle.ms": -1}) as running, connect(running) as other:
        running.broker.logs.create_topic("events")
        alter(other, APP, producer_byte_rate=1)
        client, stays = (connect(running, client_id="app") for _ in range(2))
        for one in (client, stays):
            assert produce(one) > 1_000_000
        if end == "reset":
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if end == "half":
            client.socket.shutdown(socket.SHUT_WR)
        else:
            client.close()
        advance(running, 5)
        eventually(lambda: running.call(lambda: len(running.server.connections)) == 2)
        assert muted(running) == 1
        client.close()
        stays.close()


def test_what_a_muted_client_sent_before_it_went_is_not_lost(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    alter(other, APP, producer_byte_rate=1)
    produce(client)
    for _ in range(50):
        client.send(0, 9, produce_message(batch(b"x" * 1000), acks=0))
    client.close()
    # Else the broker looks again 5 s later.
    eventually(lambda: running.call(lambda: any(one.is_client_gone for one in running.server.connections)))
    advance(running, 5)
    eventually(lambda: not muted(running) and running.broker.logs["events", 0].log_end_offset == 51)


def test_a_client_takes_little_memory() -> None:
    """Each request may come from another one."""
    clock, windows = Clock(), Windows()
    usages = Usages(lambda: Rate(windows), clock, windows.all_ms)
    tracemalloc.start()
    for number in range(1000):
        usages.of(number, 1.0, 0).record(1, 1.0, 0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 1000 < 600


# -- the metadata


@pytest.mark.slow
def test_quotas_are_kept_over_a_restart(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running, connect(running) as client:
        running.broker.logs.create_topic("events")
        assert alter(client, APP, producer_byte_rate=1000, request_percentage=5).error_code == 0
        assert alter(client, APP, request_percentage=None).error_code == 0
        assert alter(client, {"ip": None}, connection_creation_rate=1).error_code == 0
    with start(tmp_path / "data") as running, connect(running, client_id="app") as client:
        assert produce(client) > 0
        assert [connected(running) for _ in range(10)] == [True] * 9 + [False]
        image = running.broker.logs.metadata_image
        assert sorted(map(str, image.client_quotas.values())) == [
            "{'connection_creation_rate': 1.0}",
            "{'producer_byte_rate': 1000.0}",
        ]


def test_without_quotas_produce_goes_the_short_way(running: BrokerThread, client: WireClient) -> None:
    assert produce(client) == 0
    assert not running.broker.quotas.is_active
    alter(client, {"ip": "10.0.0.1"}, connection_creation_rate=1)
    assert not running.broker.quotas.is_active
    alter(client, APP, producer_byte_rate=1)
    assert running.broker.quotas.is_active
    alter(client, APP, producer_byte_rate=None)
    assert not running.broker.quotas.is_active


# -- users


WITH_LOGIN = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";'
    ),
}


def test_a_user_has_one_quota_for_all_client_ids(tmp_path: Path) -> None:
    with start(tmp_path / "data", **WITH_LOGIN) as running, connect(running) as admin:
        running.broker.logs.create_topic("events")
        alter(admin, {"user": "alice"}, producer_byte_rate=10_000)
        alter(admin, {"user": "bob"}, request_percentage=1e-9)

        def log_in(user: str, client_id: str) -> WireClient:
            client = connect(running, "SASL_PLAINTEXT", client_id=client_id)
            assert client.call(17, 1, {"mechanism": "PLAIN"}).error_code == 0
            answer = client.call(36, 2, {"auth_bytes": f"\0{user}\0{user[0]}".encode()})
            assert answer.error_code == 0
            return client

        with log_in("alice", "first") as first, log_in("alice", "second") as second:
            assert produce(first, 90_000) == 0
            assert produce(second, 90_000) == pytest.approx(8000, abs=500)
        assert produce(admin) == 0
        # As in Kafka, to log in does not count.
        with log_in("bob", "third") as third:
            assert muted(running) == 1
            assert throttled_ms(ask(third, "ApiVersions", 3)) == 1000


@pytest.mark.slow
def test_who_has_not_logged_in_uses_up_nothing(tmp_path: Path) -> None:
    """Everybody may give the client id of another."""
    with start(tmp_path / "data", **WITH_LOGIN) as running, connect(running) as admin:
        alter(admin, APP, request_percentage=1e-9)
        with connect(running, "SASL_PLAINTEXT", client_id="app") as foe:
            assert throttled_ms(foe.call(18, 3, message("ApiVersions"))) == 0
            assert foe.call(17, 1, {"mechanism": "PLAIN"}).error_code == 0
            assert foe.call(36, 2, {"auth_bytes": b"\0alice\0wrong"}).error_code == 58
        assert muted(running) == 0
        assert running.call(lambda: len(running.broker.quotas.request.usages)) == 0


# -- what only damaged metadata, or another version, may hold


@pytest.mark.sampled
@pytest.mark.parametrize("value", [0.0, -1.0, -math.inf])
@pytest.mark.parametrize(
    "key", ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
)
def test_a_quota_that_is_not_above_zero_throttles_and_breaks_nothing(tmp_path: Path, key: str, value: float) -> None:
    with start(tmp_path / "data") as running:
        running.broker.logs.create_topic("events")
        running.broker.logs.metadata.alter_client_quotas(
            [ClientQuotaRecord((QuotaEntity("client-id", "app"),), key, value)]
        )
    with start(tmp_path / "data") as running:

        def connected_anew() -> WireClient:
            return connect(running, client_id="app")

        with connect(running) as other:
            assert produce(other) == 0
        with connected_anew() as client:
            is_throttled = produce(client) > 0
        with connected_anew() as client:
            is_throttled |= throttled_ms(client.call(1, 12, fetch_message())) > 0
        with connected_anew() as client:
            topics = [new_topic("a", 1)]
            assert ask(client, "CreateTopics", 7, topics=topics).topics[0].error_code == 0
        with connected_anew() as client:
            answer = ask(client, "CreateTopics", 7, topics=[new_topic("b", 1)])
            is_throttled |= throttled_ms(answer) > 0
        assert is_throttled


def test_any_number_is_a_quota_of_an_address() -> None:
    quotas = AddressQuotas(Clock(), Windows())
    for value, throttle_ms in (0.0, 1000), (-1.0, 1000), (-math.inf, 1000), (math.inf, 0), (1e308, 0):
        quotas.set({"ip": None}, {"connection_creation_rate": value}, {})
        assert quotas.throttle_ms("10.0.0.1") == throttle_ms, value


def test_hosts_of_kept_quotas_that_have_no_address_are_told(caplog: pytest.LogCaptureFixture) -> None:
    entities = [frozenset({QuotaEntity("ip", name)}) for name in ("::ffff:10.0.0.1", "no such host!", "10.0.0.2")]
    assert host_addresses(entities) == {"::ffff:10.0.0.1": "10.0.0.1", "10.0.0.2": "10.0.0.2"}
    assert "no such host!" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["é" * 16_000, "a" * 32_767, "a.\0", "é" * 60 + "."])
def test_names_that_are_no_hosts_cost_little(name: str) -> None:
    assert resolver()(name) is None
    assert in_standards(lambda: resolver()(name)) < 5


@pytest.mark.slow
def test_a_client_of_many_names_costs_a_bounded_memory() -> None:
    """Each in a debt that lasts for long."""
    clock, windows = Clock(), Windows()
    usages = Usages(lambda: TokenBucket(windows), clock, windows.all_ms)
    for number in range(101_000):
        usages.of(number, 1.0, 0).record(1e9, 1.0, 0)
    assert len(usages) == 100_000
    assert usages.of(100_999, 1.0, 0).throttle_ms(1.0, 0) > 0


def test_clients_without_quotas_go_the_short_way(
    running: BrokerThread, client: WireClient, other: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(other, APP, producer_byte_rate=1e9, consumer_byte_rate=1e9, request_percentage=1e9)
    counted: list[str] = []
    throttled = running.broker.throttling.throttled

    def noted(request: Any, begin: Any) -> Any:
        counted.append(request.client_id)
        return throttled(request, begin)

    monkeypatch.setattr(running.broker.throttling, "throttled", noted)
    produce(other)
    other.call(1, 12, fetch_message())
    assert counted == []
    produce(client)
    assert counted == ["app"]
