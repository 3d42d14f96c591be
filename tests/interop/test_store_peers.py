"""Redis and ZooKeeper as the offset stores meet them: set and get, over a kill and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peers.process import PATIENCE
from peers.redis import RedisServer
from peers.zookeeper import ZooKeeperServer

redis = pytest.importorskip("redis")
kazoo_client = pytest.importorskip("kazoo.client")


def test_redis_keeps_what_it_acknowledged(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.set("place", b"\x00\xff") is True
    redis_server.kill()
    assert not redis_server.running
    redis_server.start()

    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get("place") == b"\x00\xff"
        client.set("place", b"2")
    redis_server.restart()

    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get("place") == b"2"


def test_zookeeper_keeps_what_it_acknowledged(zookeeper_server: ZooKeeperServer) -> None:
    def value(client: Any) -> bytes:
        found: bytes = client.get("/consumers/g/offsets/t/0")[0]
        return found

    client = kazoo_client.KazooClient(zookeeper_server.hosts, timeout=5)
    client.start(timeout=20 * PATIENCE)
    try:
        client.create("/consumers/g/offsets/t/0", b"41", makepath=True)
        assert value(client) == b"41"
        zookeeper_server.kill()
        zookeeper_server.start()
        assert client.retry(value, client) == b"41"
        client.retry(client.set, "/consumers/g/offsets/t/0", b"42")
        zookeeper_server.restart()
        assert client.retry(value, client) == b"42"
    finally:
        client.stop()
        client.close()


def test_a_server_that_cannot_start_says_why(tmp_path: Path, redis_server: RedisServer) -> None:
    second = RedisServer(tmp_path / "second", port=redis_server.port)

    with pytest.raises(RuntimeError, match="is in use"):
        second.start()
    assert not second.running
