"""What `/metrics` and `/healthz` tell of groups, disks and logs, and what the log tells of retention."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker import monitoring
from odradek.broker.errors import ApiError, code_of
from odradek.broker.monitoring import Monitoring
from odradek.broker.running import BrokerThread
from odradek.errors import CorruptRecordError, LogError
from odradek.records.kernels.objects import Record
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.group_requests import commit, find_coordinator
from peers.http import get, metrics
from peers.requests import ask, fetch_message


def write(running: BrokerThread, topic: str, partition: int, count: int) -> None:
    log = running.broker.logs[topic, partition]
    running.call(lambda: log.append([Record(value=b"v", timestamp=running.broker.clock.now_ms())] * count))


def test_the_lag_of_a_group_is_the_sum_of_a_topic(running: BrokerThread, client: WireClient, base: str) -> None:
    find_coordinator(client)
    running.call(lambda: running.broker.logs.create_topic("events", partitions=3))
    for partition in range(3):
        write(running, "events", partition, 10)
    assert commit(client, "words", {0: 4, 1: 10}) == [0, 0]
    assert commit(client, 'odd"\n', {2: 1}) == [0]
    assert commit(client, "ahead", {0: 10, 1: 17}) == [0, 0]
    assert commit(client, "partly", {0: 4, 1: 17}) == [0, 0]
    found = metrics(base)
    assert found['odradek_group_lag{group="ahead",topic="events"}'] == -7
    assert found['odradek_group_lag{group="partly",topic="events"}'] == 6
    assert found['odradek_group_lag{group="words",topic="events"}'] == 6
    assert found[r'odradek_group_lag{group="odd\"\n",topic="events"}'] == 9


def test_only_the_largest_lags_are_shown(
    running: BrokerThread, client: WireClient, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_MOST_LAGS", 2)
    find_coordinator(client)
    running.call(lambda: running.broker.logs.create_topic("events"))
    write(running, "events", 0, 10)
    for number in range(4):
        assert commit(client, f"g{number}", {0: number}) == [0]
    assert [name for name in metrics(base) if name.startswith("odradek_group_lag")] == [
        f'odradek_group_lag{{group="g{number}",topic="events"}}' for number in range(2)
    ]


def test_the_disk(running: BrokerThread, base: str) -> None:
    found = metrics(base)
    (path,) = running.broker.logs.places()
    free, total = (found[f'odradek_log_dir_{what}_bytes{{path="{path}"}}'] for what in ("free", "total"))
    assert 0 < free <= total


def test_partitions_that_are_offline_are_counted_and_not_healthy(running: BrokerThread, base: str) -> None:
    running.call(lambda: running.broker.logs.create_topic("events", partitions=2))
    logs = [running.broker.logs["events", number] for number in range(2)]
    assert (metrics(base)["odradek_offline_partitions"], get(f"{base}/healthz")) == (0, (200, "ok\n"))
    logs[1].guard.disk.failure = OSError(errno.EIO, "Input/output error")
    assert metrics(base)["odradek_offline_partitions"] == 1
    assert get(f"{base}/healthz") == (503, f"offline: {logs[1].path}\n")


def test_damage_is_counted_and_not_healthy(running: BrokerThread, base: str) -> None:
    running.call(lambda: running.broker.logs.create_topic("events", config={"cleanup.policy": "compact"}))
    assert metrics(base)["odradek_damaged_partitions"] == 0
    log = running.broker.logs["events", 0]
    log.cleaning.failure = LogError("is not damage")
    assert get(f"{base}/healthz")[0] == 200
    log.cleaning.failure = CorruptRecordError("checksum", path=log.path, position=7)
    assert metrics(base)["odradek_damaged_partitions"] == 1
    status, text = get(f"{base}/healthz")
    assert (status, text.startswith(f"damaged: {log.path}")) == (503, True)


@pytest.mark.parametrize("wrong", [b"\xff" * 100, bytes(100)])
def test_damage_that_a_fetch_meets_is_answered_logged_and_not_healthy(
    running: BrokerThread, client: WireClient, base: str, caplog: pytest.LogCaptureFixture, wrong: bytes
) -> None:
    running.call(lambda: running.broker.logs.create_topic("events"))
    log = running.broker.logs["events", 0]
    write(running, "events", 0, 100)
    segment = log.segments[-1]
    position = segment.size_bytes
    write(running, "events", 0, 100)
    with segment.path.open("r+b") as file:
        file.seek(position)
        right = file.read(100)
        file.seek(position)
        file.write(wrong)
    message = fetch_message(100, max_wait_ms=60_000, min_bytes=1 << 20)
    for _ in range(3):
        assert int(client.call(1, 12, message).responses[0].partitions[0].error_code) == 2
    told = f"{segment.path}, position {position}: no batch begins here"
    assert [told in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True]
    assert metrics(base)["odradek_damaged_partitions"] == 1
    assert get(f"{base}/healthz") == (503, f"damaged: {told}\n")
    # What was restored, or deleted, is damaged no longer.
    for data, status in ((right, 200), (wrong, 503)):
        with segment.path.open("r+b") as file:
            file.seek(position)
            file.write(data)
        assert get(f"{base}/healthz")[0] == status
    running.call(log.roll)
    log.delete_records(200)
    log.upkeep.delete_old_segments()
    assert get(f"{base}/healthz") == (200, "ok\n")


def test_what_retention_deletes_is_logged(running: BrokerThread, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    running.call(lambda: running.broker.logs.create_topic("events", config={"retention.ms": 1000}))
    write(running, "events", 0, 3)
    size_bytes = running.broker.logs["events", 0].size_bytes
    advance(running, 1_000_000)
    running.call(running.broker.logs.maintain)
    told = [one.getMessage() for one in caplog.records if one.name == "odradek.storage.directory.maintenance"]
    assert told == [
        f"events-0: deleted offsets 0 to 2, {size_bytes} bytes: its newest record is older than retention.ms"
    ]


@pytest.fixture
def damaged(kafka_groups: Path, tmp_path: Path) -> Path:
    """A log directory whose __consumer_offsets is damaged; returns the file."""
    folder = Path(shutil.copytree(kafka_groups / "log-dir", tmp_path / "data"))
    (path,) = (folder / "__consumer_offsets-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    return path


@pytest.mark.slow
def test_damage_that_a_coordinator_meets_is_not_healthy(damaged: Path) -> None:
    with start(damaged.parent.parent) as running:
        eventually(lambda: running.broker.groups.not_loaded())
        first, second = Monitoring(running.server)._problems()
    assert first == "not loaded: __consumer_offsets-0"
    assert second.startswith(f"damaged: {damaged}, position ")


@pytest.mark.slow
def test_groups_that_cannot_be_loaded_stay_so_and_nothing_is_kept_for_them(damaged: Path) -> None:
    with start(damaged.parent.parent) as running, connect(running) as client:
        groups = running.broker.groups
        eventually(lambda: groups.not_loaded())

        def load_another() -> list[int]:
            groups._task = asyncio.get_running_loop().create_task(groups._load_again(0, groups._task))
            return groups.not_loaded()

        assert running.call(load_another) == [0]
        eventually(lambda: groups._task is not None and groups._task.done())
        assert groups.not_loaded() == [0]
        with pytest.raises(ApiError) as error:
            groups.shard("any")
        assert code_of(error.value) == ErrorCode.not_coordinator
        (deleted,) = ask(client, "DeleteTopics", 6, topics=[{"name": "events", "topic_id": None}]).responses
        assert deleted.error_code == 0
        assert not groups._loading
