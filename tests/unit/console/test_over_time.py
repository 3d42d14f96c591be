"""Plots over time: what is sampled while a console runs, how little of it is kept, and how logs grew."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import odradek
from odradek.console import drawing, history
from odradek.console.app import create_app
from odradek.console.background import Background
from odradek.console.drawing import growth_plots
from odradek.console.history import GROUP, LAG, PARTITION, SIZE, History
from odradek.console.options import ConsoleOptions
from odradek.console.source import Source, Survey
from odradek.errors import LogError
from odradek.inspection.growth import Grown, grown_at, growth
from odradek.inspection.log_files import partition_folder
from odradek.records import Record
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.broker_thread import eventually
from peers.kafka_fixture import KafkaFixture

NOW = 30_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    minutes = [NOW]
    for module in (history, drawing):
        monkeypatch.setattr(module, "this_minute", lambda: minutes[0])
    return minutes


def group(name: str, *offsets: tuple[int, int]) -> dict[str, Any]:
    """Return a group as surveys have it: of each partition its position and its end."""
    rows = [
        {"topic": "t", "partition": number, "offset": offset, "log_end_offset": end, "lag": end - offset}
        for number, (offset, end) in enumerate(offsets)
    ]
    return {"group": name, "lag": sum(row["lag"] for row in rows), "offsets": rows}


def test_sizes_lags_and_what_was_passed_are_kept_by_the_minute(clock: list[int], tmp_path: Path) -> None:
    kept = History(tmp_path / "history")
    kept.note(100, 50, [group("a", (10, 20), (0, 7)), group("b", (20, 20))])
    kept.note(90, 60, [group("a", (15, 20), (4, 7))])
    clock[0] += 1
    kept.note(120, 60, None)
    for _ in range(2):
        assert kept.minutes(SIZE) == [(NOW, 100, 10), (NOW + 1, 120, 0)]
        assert kept.minutes(LAG) == [(NOW, 17, 0)]
        assert kept.minutes(GROUP, "a") == [(NOW, 17, 9)]
        assert kept.minutes(PARTITION, "a", "t", 1) == [(NOW, 7, 4)]
        assert kept.minutes(GROUP, "c") == []
        # Another console reads what this one has kept, but may not write meanwhile.
        with pytest.raises(LogError, match="another console"):
            History(tmp_path / "history")
        kept.close()
        kept = History(tmp_path / "history")
    kept.close()


@pytest.mark.slow
def test_it_is_bounded_in_groups_and_partitions(clock: list[int], tmp_path: Path) -> None:
    path = tmp_path / "history"
    kept = History(path)
    many = [group(f"g{number}", *[(0, number)] * 5) for number in range(300)]
    kept.note(1, 1, many)
    most = {kind: len(series) for kind, series in kept._series.items()}
    assert most == history._MOST
    # The groups with the most lag are kept, and the partitions with the most.
    assert kept.minutes(GROUP, "g299")
    assert kept.minutes(PARTITION, "g299", "t", 4)
    assert not kept.minutes(GROUP, "g1")
    # They stay while they are sampled, and make room an hour after they were deleted.
    clock[0] += 59
    kept.note(1, 1, [group("new", (0, 9))])
    assert not kept.minutes(GROUP, "new")
    clock[0] += 1
    kept.note(1, 1, [group("new", (0, 9))])
    assert kept.minutes(GROUP, "new") == [(NOW + 60, 9, 0)]
    assert path.stat().st_size <= 256 * 40_960
    kept.close()
    again = History(path)
    assert again.minutes(GROUP, "new") == [(NOW + 60, 9, 0)]
    again.close()


def test_the_file_is_never_one_of_a_log_directory_or_another_one(tmp_path: Path, fixture_4_3_1: KafkaFixture) -> None:
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "precious").write_bytes(b"the password of the safe: 1234")
    os.mkfifo(tmp_path / "fifo")
    for path, text in (
        (data / "history", "is within a log directory"),
        (data / "t-0" / "history", "is within a log directory"),
        (tmp_path / "link" / "history", "is within a log directory"),
        (fixture_4_3_1.log_dir / "history", "is within a log directory"),
        (tmp_path / "precious", "is no history"),
        (tmp_path / "fifo", "is no history"),
    ):
        with pytest.raises(LogError, match=text):
            History(path, data)
    assert (tmp_path / "precious").read_bytes() == b"the password of the safe: 1234"


def test_what_a_crash_has_torn_counts_for_nothing(clock: list[int], tmp_path: Path) -> None:
    path = tmp_path / "history"
    kept = History(path)
    kept.note(1, 1, [group("a", (0, 9))])
    kept.close()
    whole = path.read_bytes()
    for torn in (whole[:3], whole[:700], whole[: len(whole) // 2], whole[:40_960] + b"x" * 40_960):
        path.write_bytes(torn)
        kept = History(path)
        kept.note(1, 1, [group("a", (0, 9))])
        assert kept.minutes(GROUP, "a") == [(NOW, 9, 0)]
        kept.close()


def test_a_full_disk_ends_the_file_and_not_the_plots(clock: list[int], tmp_path: Path) -> None:
    kept = History(tmp_path / "history")

    class Full:
        path = tmp_path / "history"

        def write_at(self, position: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    kept._file = Full()  # type: ignore[assignment]
    for _ in range(2):
        kept.note(1, 1, [group("a", (0, 9))])
    assert kept.minutes(GROUP, "a") == [(NOW, 9, 0)]
    kept.close()


@pytest.mark.slow
def test_home_and_a_group_show_them(fixture_4_3_1: KafkaFixture) -> None:
    with TestClient(create_app(ConsoleOptions(str(fixture_4_3_1.log_dir))), base_url="http://localhost") as client:
        eventually(lambda: 'aria-label="Lag of all groups"' in client.get("/").text)
        (name,) = set(re.findall(r'href="/group\?id=([^"]*)"', client.get("/groups").text)[:1])
        assert 'aria-label="Lag"' in client.get(f"/group?id={name}").text


@pytest.mark.slow
def test_why_nothing_is_counted_is_told(
    fixture_4_3_1: KafkaFixture, monkeypatch: pytest.MonkeyPatch, clock: list[int]
) -> None:
    def fails(_: Source) -> Survey:
        raise PermissionError(13, "Permission denied", "/there/<b>")

    monkeypatch.setattr(Source, "_surveyed", fails)
    with TestClient(create_app(ConsoleOptions(str(fixture_4_3_1.log_dir))), base_url="http://localhost") as client:
        for path in ("/", "/groups"):
            assert "could not be counted: /there/&lt;b&gt;: Permission denied" in client.get(path).text


def test_positions_are_not_kept_between_surveys(fixture_4_3_1: KafkaFixture) -> None:
    with closing(Source(ConsoleOptions(str(fixture_4_3_1.log_dir)))) as source:
        survey = source.survey(9)
        assert survey is not None
        kept = survey.groups[0]
        (one,) = source.groups([kept["group"]])
    assert "offsets" not in kept
    assert kept["members"] == len(one["members"])
    assert set(kept["lags"]) == {row["topic"] for row in one["offsets"]}
    assert sum(kept["lags"].values()) == kept["lag"] == one["lag"]


def test_what_was_found_is_looked_for_again_within_minutes_and_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now, finds = [0.0], iter(range(9))
    monkeypatch.setattr("odradek.console.background.time", SimpleNamespace(monotonic=lambda: now[0]))

    def find() -> int:
        # A broker that does not answer, for instance.
        now[0] += 60
        return next(finds)

    found = Background(find, "test", 5.0)
    assert found.get(9) == 0
    now[0] += 239
    assert found.get(9) == 0
    found.forget()
    assert found.get(9) == 1
    now[0] += 241
    eventually(lambda: found.get() == 2)
    found.close(9)


# -- how logs grew


def test_a_log_grew_as_its_indexes_say(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"segment.bytes": "1048576", "index.interval.bytes": "16384"})
        for second in range(60):
            logs["t", 0].append([Record(None, bytes(50_000), timestamp=1_000 * second)])
    folder = partition_folder(tmp_path / "data" / "t-0")
    found = growth(folder)
    assert found[0] == (0, 0, 0)
    assert found[-1] == (59_000, 60, sum(one.path.stat().st_size for one in folder.segments))
    assert found == sorted(found)
    # A record a second, at each of these times.
    assert len(found) > 20
    assert all(abs(one.offset - one.timestamp / 1000) <= 2 for one in found)
    assert len(growth(folder, most=4)) < 10
    middle, late = grown_at(found, [29_500, 99_000])
    assert abs(middle.offset - 29.5) <= 2
    assert late == (99_000, 60, found[-1].size_bytes)
    names = [TopicPartition("t", 0)] * 2
    rate, size = growth_plots(tmp_path / "data", names, None, None)
    assert "at least 2" in rate
    assert "Size" in size
    assert growth_plots(tmp_path / "data", names, 70_000, None) == []


def test_times_that_go_back_and_missing_ones_harm_nothing(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"", timestamp=5_000)])
        logs["t", 0].append([Record(None, b"", timestamp=1_000)])
    found = growth(partition_folder(tmp_path / "data" / "t-0"))
    assert [one.timestamp for one in found] == sorted(one.timestamp for one in found)
    assert growth_plots(tmp_path / "data", [TopicPartition("t", 0)], None, None) == []
    (tmp_path / "empty-0").mkdir()
    assert growth(partition_folder(tmp_path / "empty-0")) == []
    assert growth_plots(tmp_path, [TopicPartition("empty", 0), TopicPartition("missing", 0)], None, None) == []
    assert grown_at([Grown(1, 2, 3)], [0.0]) == [(0, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("times", [(253_402_300_799_999, 253_402_300_800_000), ((1 << 63) - 2, (1 << 63) - 1), (0, 1)])
def test_times_that_no_plot_can_tell_apart_are_drawn(tmp_path: Path, times: tuple[int, int]) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
        for time in times:
            logs["t", 0].append([Record(None, b"", timestamp=time)])
    assert len(growth_plots(tmp_path / "data", [TopicPartition("t", 0)], None, None)) == 2
    with TestClient(create_app(ConsoleOptions(str(tmp_path / "data"))), base_url="http://localhost") as client:
        assert client.get("/topics/t").status_code == 200
        assert client.get(f"/topics/t?since={times[0]}&until={times[1]}").status_code == 200


@pytest.mark.slow
def test_a_broker_is_asked_for_the_last_day() -> None:
    with Broker() as broker:
        broker.create_topic("events", 2)
        with TestClient(
            create_app(ConsoleOptions(f"kafka://{broker.bootstrap_servers}")), base_url="http://localhost"
        ) as client:
            page = client.get("/topics/events").text
            assert 'aria-label="Offsets written per second, by the times of records"' in page
            assert client.get("/topics/events?since=soon").status_code == 400
            assert client.get(f"/topics/events?since={(1 << 63) - 2}&until={(1 << 63) - 1}").status_code == 200
