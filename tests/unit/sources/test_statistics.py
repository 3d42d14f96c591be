"""Statistics of logs: against what consumers read and what the headers of the batches say."""

from __future__ import annotations

import base64
import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from flips.breakage import cut, flip_bit
from odradek.inspection.statistics.distinct_keys import estimate, united
from odradek.inspection.statistics.log_statistics import LogStatistics, class_start
from odradek.inspection.statistics.timeline import Timeline
from odradek.records import scan_batches
from odradek.records.kernels.tally import RecordTally
from odradek.sources.statistics import log_statistics
from odradek.testing import Broker
from peers import command
from peers.kafka_fixture import KafkaFixture

SmallLogDirectory = Callable[..., Path]


run = partial(command.run, "stat")


@pytest.mark.sampled
@pytest.mark.parametrize("decode", [False, True])
def test_what_consumers_read(kafka_fixture: KafkaFixture, decode: bool) -> None:
    seen = set()
    for log in log_statistics(kafka_fixture.log_dir, decode=decode):
        name = f"{log.topic}-{log.partition}"
        seen.add(name)
        folder = kafka_fixture.log_dir / name
        headers = [header for path in sorted(folder.glob("*.log")) for header in scan_batches(path.read_bytes())]
        assert log.batches == len(headers)
        assert log.size_bytes == sum(header.size_bytes for header in headers)
        assert log.segments == len(list(folder.glob("*.log")))
        assert not log.findings
        stamps = [header.max_timestamp for header in headers if not header.is_control and header.max_timestamp >= 0]
        assert (log.least_timestamp, log.greatest_timestamp) == (min(stamps, default=None), max(stamps, default=None))
        assert log.late_batches == sum(stamp < max(stamps[:number]) for number, stamp in enumerate(stamps) if number)
        consumed = kafka_fixture.consumed[name]
        assert log.end_offset == consumed["highWatermark"]
        if "compacted" in name and not decode:
            # How many records a compacted wrapper of v0 or v1 holds, its header does not say.
            continue
        if "truncated" not in name:
            assert log.records == len(consumed["records"])
        assert log.control_batches == sum(header.is_control for header in headers)
        if log.content is not None and "truncated" not in name:
            records = consumed["records"]
            keys = [record["key"] for record in records]
            assert log.content.null_keys == keys.count(None)
            assert log.content.null_values == [record["value"] for record in records].count(None)
            assert log.content.value_bytes == sum(len(base64.b64decode(record["value"] or "")) for record in records)
            assert log.content.distinct_keys == pytest.approx(len(set(keys) - {None}), rel=0.02, abs=1)
    assert seen == {name for name in kafka_fixture.consumed if not name.startswith("__")}


def test_gaps_and_sizes_of_a_compacted_log(fixture_4_3_1: KafkaFixture) -> None:
    [log] = log_statistics(fixture_4_3_1.log_dir / "compacted-0")
    assert log.missing_offsets == 1202 - log.records
    assert log.records == len(fixture_4_3_1.consumed["compacted-0"]["records"])
    segments = sorted((fixture_4_3_1.log_dir / "compacted-0").glob("*.log"))
    headers = [header for path in segments for header in scan_batches(path.read_bytes())]
    jumps = sum(after.base_offset > before.next_offset for before, after in itertools.pairwise(headers))
    assert log.gaps == jumps + (headers[0].base_offset > 0)
    sizes = sorted(header.size_bytes for header in headers)
    assert log.largest_batch is not None
    assert log.largest_batch.size_bytes == sizes[-1]
    for share in (0.5, 0.9):
        exact = sizes[int(share * len(sizes))]
        assert log.size_quantile(share) == pytest.approx(exact, rel=0.25)


@pytest.mark.sampled
@pytest.mark.parametrize("count", [0, 1, 60, 5_000, 100_000])
def test_different_keys_are_counted_to_two_percent(count: int) -> None:
    tally, other = RecordTally(), RecordTally()
    for number in range(count):
        for twice in range(2):
            tally.add_message(b"key %d" % number, 0, 1, number, twice)
        other.add_message(b"key %d" % (number + count // 2), 0, 1, number, 0)
    assert estimate(tally.registers) == pytest.approx(count, rel=0.02)
    both = united(tally.registers, other.registers)
    assert estimate(both) == pytest.approx(count + count // 2, rel=0.02, abs=1)


def test_the_largest_records_come_first() -> None:
    tally = RecordTally()
    sizes = random.Random(7).sample(range(1, 10_000), 100)
    for offset, size in enumerate(sizes):
        tally.add_message(None, -1, size, offset, -1)
    expected = sorted(((size, offset) for offset, size in enumerate(sizes)), reverse=True)
    assert tally.largest == expected[:10]


def test_classes_of_sizes_have_no_holes() -> None:
    starts = [class_start(number) for number in range(8, 120)]
    assert starts == sorted(set(starts))
    assert all(after / before <= 1.25 for before, after in itertools.pairwise(starts))


@pytest.mark.slow
def test_a_timeline_keeps_its_sums_however_long() -> None:
    whole, parts = Timeline(), [Timeline(), Timeline()]
    rng = random.Random(3)
    for number in range(5_000):
        timestamp, size = rng.randrange(1 << 44), rng.randrange(1000)
        for line in (whole, parts[number % 2]):
            line.add([(timestamp // line.width_ms, size, 1)])
    parts[0].merge(parts[1])
    for line in (whole, parts[0]):
        assert len(line.stretches) <= 1024
        assert sum(stretch.records for stretch in line.stretches) == 5_000
    assert whole.stretches == parts[0].stretches


@pytest.mark.parametrize("decode", [False, True])
def test_damage_is_stepped_over(small_log_dir: SmallLogDirectory, decode: bool) -> None:
    root = small_log_dir("v2-none-0")
    [whole] = log_statistics(root, decode=decode)
    segments = sorted((root / "v2-none-0").glob("*.log"))
    headers = list(scan_batches(segments[1].read_bytes()))
    # Its length goes beyond the file, which is seen without its checksum.
    flip_bit(segments[1], headers[2].position + 9, 4)
    cut(segments[-1], segments[-1].stat().st_size - 1)
    lost = [headers[2], list(scan_batches((segments[-1]).read_bytes()))[-1]]
    [log] = log_statistics(root, decode=decode)
    assert [finding.path for finding in log.findings] == [segments[1], segments[-1]]
    assert log.findings[0].position == headers[2].position
    assert log.batches == whole.batches - 2
    assert lost[0].records_count < whole.records - log.records
    result = run(root, "--format", "jsonl")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.slow
def test_a_broker_says_the_same(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    root = Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "data"))
    expected = [_numbers(log) for log in log_statistics(root, topics="v2-*", decode=True)]
    with Broker(root) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        found = [_numbers(log) for log in log_statistics(address, topics="v2-*", decode=True)]
        assert run(f"{address}/keyed").stdout == run(root, "--topic", "keyed").stdout
    assert found == expected


def _numbers(log: LogStatistics) -> dict[str, object]:
    """A broker does not say how many segments there are."""
    numbers = {name: getattr(log, name) for name in LogStatistics.__slots__ if name not in {"segments", "timeline"}}
    return numbers | {"stretches": log.timeline.stretches}


@pytest.mark.slow
def test_the_command_line(fixture_4_3_1: KafkaFixture) -> None:
    result = run(fixture_4_3_1.log_dir, "--topic", "keyed", "--format", "jsonl", "--records")
    assert result.exit_code == 0
    *partitions, topic = map(json.loads, result.stdout.splitlines())
    assert [line["partition"] for line in partitions] == [0, 1, 2]
    assert (topic["partition"], topic["partitions"]) == (None, 3)
    for name in ("records", "batches", "bytes", "gaps", "null_keys", "late_records"):
        assert topic[name] == sum(line[name] for line in partitions)
    assert sum(stretch[2] for stretch in topic["stretches"]) == topic["records"] == 1200
    assert topic["largest_records"][0] == max(
        (line["largest_records"][0] for line in partitions), key=lambda large: large["bytes"]
    )
    only = run(fixture_4_3_1.log_dir, "--topic", "keyed", "--partition", "1", "--format", "jsonl", "--records")
    assert json.loads(only.stdout.splitlines()[0]) == partitions[1]
    text = run(fixture_4_3_1.log_dir, "--topic", "keyed").stdout
    assert text.startswith("keyed: 3 partitions, 1,200 records, 1,200 batches, 269.1 kB\n")
    assert run(fixture_4_3_1.log_dir, "--topic", "no-such").exit_code == 3
    assert run(fixture_4_3_1.log_dir / "meta.properties").exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")])
def test_the_example_draws_them(fixture_2_8_2: KafkaFixture, tmp_path: Path, form: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    # Among them is a topic without times, and an empty one.
    lines = run(fixture_2_8_2.log_dir, "--format", "jsonl").stdout
    picture = tmp_path / f"picture.{form}"
    example = Path(__file__).parents[3] / "examples/plot_stat.py"
    subprocess.run([sys.executable, example, picture], input=lines, text=True, check=True, timeout=60)
    assert picture.read_bytes().startswith(magic)
