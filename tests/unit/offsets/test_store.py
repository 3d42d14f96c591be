"""Positions, and the addresses of offset stores."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from odradek.errors import OffsetStoreError, OptionError
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position, Positions, decimal_offset, open_store, parse_address
from odradek.offsets.topic_keys import parse_text
from odradek.storage.names import TopicPartition


def test_an_address_is_taken_apart() -> None:
    address = parse_address("redis://me:pa%2Fss@host:6379/3?group=g&timeout_ms=70", {"group": "h"})
    assert (address.scheme, address.hosts, address.path) == ("redis", "host:6379", "/3")
    assert (address.user, address.password) == ("me", "pa/ss")
    assert address.take_timeout_ms() == 70
    assert address.take("group") == "h"
    address.refuse_the_rest()


def test_no_secret_is_in_what_is_printed() -> None:
    address = parse_address("kafka://me:secret@a:1,b:2/group?sasl.password=secret", {"ssl.password": "secret"})
    assert address.hosts == "a:1,b:2"
    assert "secret" not in address.text
    with pytest.raises(OffsetStoreError, match=r"sasl\.password") as caught:
        address.refuse_the_rest()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "offsets.json",
        "/offsets.json",
        "mysql://host/db",
        "file://",
        "file:///",
        "file:///folder/",
        "file://relative/offsets.json",
        "file:///offsets.json?unknown=1",
        "file:///offsets.json?timeout_ms=soon",
        "file:///offsets.json?timeout_ms=0",
        "file://[",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(OffsetStoreError):
        open_store(address)


@pytest.mark.parametrize("password", ["se/cret", "se#cret", "se?cret", "1/2", "12#cret", "#", "/"])
@pytest.mark.parametrize("at", ["redis://:{}@localhost:1/0?group=g", "kafka://bob:{}@localhost:9092/group"])
def test_what_must_be_escaped_is_told_and_not_shown(at: str, password: str) -> None:
    with pytest.raises(OffsetStoreError, match="a password or a path write %23 for #, %2F for / and %3F for") as caught:
        parse_address(at.format(password))
    assert "cret" not in str(caught.value)
    assert parse_address(at.format(quote(password, safe=""))).password == password


def test_other_signs_need_no_escape() -> None:
    assert parse_address("redis://:p@ss:w@host/0?group=me@home").password == "p@ss:w"
    assert parse_address("kafka://a:1,b:2/me@home").path == "/me@home"
    assert parse_address("kafka://a/me@home").path == "/me@home"
    assert parse_address("file:///a@b:c/offsets.json").path == "/a@b:c/offsets.json"
    assert parse_address("kafka://[::1]:9092/me").hosts == "[::1]:9092"


@pytest.mark.parametrize("hosts", ["localhost:port", "localhost:99999", "::1:2181", "localhost:2181,,b", ","])
def test_hosts_of_zookeeper_are_checked_before_anything_is_opened(hosts: str) -> None:
    with pytest.raises(OffsetStoreError, match=f"zookeeper://{hosts}/group: "):
        open_store(f"zookeeper://{hosts}/group")


def test_a_file_address(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space.json")
    assert isinstance(store, FileOffsetStore)
    assert store.path == tmp_path / "with space.json"


@pytest.mark.parametrize(("offset", "leader_epoch"), [(-1, None), (2**63, None), (0, -1), (0, 2**31)])
def test_a_position_that_kafka_cannot_hold(offset: int, leader_epoch: int | None) -> None:
    with pytest.raises(ValueError, match="must be between"):
        Position(offset, leader_epoch)


def test_a_position_holds_text_that_every_store_can_keep() -> None:
    for name in ("topic_id", "batch", "note"):
        with pytest.raises(ValueError, match=f"the {name} of a position must be text in UTF-8"):
            Position(0, **{name: "half of a character: \ud800"})  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "\ud800"])
def test_a_topic_that_no_store_can_keep(topic: str) -> None:
    with pytest.raises(OptionError, match="there can be no position of a partition 0 of a topic"):
        Positions({TopicPartition(topic, 0): Position(1)})


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_a_partition_that_kafka_cannot_have(partition: int) -> None:
    with pytest.raises(OptionError, match="there can be no position of a partition"):
        Positions({TopicPartition("events", partition): Position(1)})


@pytest.mark.parametrize(
    "data", [b"0:010", b"0:03,1:4", b"00:3", b'{"0": "03"}', b"0:+3", b"0:1_0", "0:\u0663".encode()]
)
def test_a_number_in_a_text_is_written_as_programs_write_it(data: bytes) -> None:
    with pytest.raises(OffsetStoreError, match="is no text of offsets"):
        parse_text(data, "redis://host/0, offsets")
    assert decimal_offset(b"010") == b"010"
    assert parse_text(b" 0:3, 1:10 ", "redis://host/0, offsets").offsets == {0: 3, 1: 10}


def test_positions_are_a_mapping() -> None:
    one, two = TopicPartition("a", 1), TopicPartition("b", 0)
    positions = Positions({one: Position(1)}, "v1")
    merged = positions.merged({two: Position(2)}, "v2")
    assert dict(positions) == {one: Position(1)}
    assert dict(merged) == {one: Position(1), two: Position(2)}
    assert (merged.version, len(merged), merged.offset(two), merged.offset(TopicPartition("c", 0))) == (
        "v2",
        2,
        2,
        None,
    )
    assert repr(merged) == ("Positions({a-1: 1, b-0: 2}, version='v2')")
