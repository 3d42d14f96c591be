"""Every change of the metadata has happened or has not, wherever the program is killed or the power cut."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, load_metadata
from odradek.testing.faults import FaultyFileSystem
from peers.topic_settings import alter_topic

CUTS = 2


class Moment(NamedTuple):
    """What the metadata says once so many operations are done."""

    operations: int
    state: object


def state(image: MetadataImage) -> object:
    return (
        sorted((name, len(topic.partitions), str(topic.topic_id)) for name, topic in image.topics.items()),
        sorted((name, sorted(image.topic_config(name).items())) for name in image.topics),
        image.next_producer_id,
    )


def change(metadata: ClusterMetadata, rng: random.Random, made: list[str]) -> None:
    """Make one change."""
    what = rng.choice(("create", "create", "grow", "alter", "delete", "ids"))
    if what == "create" or not made:
        made.append(f"topic-{len(metadata.image.topics)}-{rng.getrandbits(24)}")
        metadata.create_topic(made[-1], rng.randint(1, 4), {"retention.ms": str(rng.randint(1, 1000))})
    elif what == "grow":
        name = rng.choice(made)
        metadata.create_partitions({name: len(metadata.image.topics[name].partitions) + rng.randint(1, 3)})
    elif what == "alter":
        alter_topic(metadata, rng.choice(made), {"segment.ms": str(rng.randint(1, 1000)), "retention.ms": None})
    elif what == "delete":
        metadata.delete_topics([made.pop(rng.randrange(len(made)))])
    else:
        metadata.take_producer_ids(rng.randint(1, 1000))


@pytest.fixture
def bootstrap_only(tmp_path: Path) -> Path:
    path = tmp_path / "live/data"
    format_log_directory(path, new_meta_properties())
    return path


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("folder", ["bootstrap_only", "kafka_metadata"])
@pytest.mark.parametrize("seed", range(2))
def test_a_change_has_happened_or_not(folder: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    directory: Path = request.getfixturevalue(folder)
    files = FaultyFileSystem(tmp_path / "live", seed)
    rng = random.Random(seed)
    metadata = ClusterMetadata(directory, files=files)
    made: list[str] = []
    moments = [Moment(0, state(metadata.image))]
    for _ in range(6):
        change(metadata, rng, made)
        moments.append(Moment(len(files.history), state(metadata.image)))
    assert files.unrecorded() == []
    for operations, found in _cuts(files, tmp_path):
        done = max(number for number, moment in enumerate(moments) if moment.operations <= operations)
        may_be = [moment.state for moment in moments[done : done + 2]]
        assert state(load_metadata(found / "data").image) in may_be, f"after {operations} operations\n{files}"
        again = ClusterMetadata(found / "data", is_clean=False)
        again.create_topic("and-on-it-goes")
        assert "and-on-it-goes" in load_metadata(found / "data").image.topics


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["sync", "write", "rename", "sync_directory", "create"])
@pytest.mark.parametrize("folder", ["bootstrap_only", "kafka_metadata"])
def test_a_change_that_fails_has_happened_or_not(
    folder: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory: Path = request.getfixturevalue(folder)
    files = FaultyFileSystem(tmp_path / "live", 1)
    metadata = ClusterMetadata(directory, files=files)
    metadata.create_topic("before")
    before, done = state(metadata.image), len(files.history)
    files.fail(kind)  # type: ignore[arg-type]
    try:
        metadata.create_topic("failing")
    except OSError:
        assert state(metadata.image) == state(load_metadata(directory).image)
        assert state(metadata.image) == before or (folder, kind) == ("bootstrap_only", "sync_directory")
    else:
        assert kind in {"rename", "sync_directory", "create"}, "one that it does not need"
    for operations, found in _cuts(files, tmp_path):
        if operations >= done:
            topics = load_metadata(found / "data").image.topics
            assert "before" in topics, f"after {operations} operations\n{files}"
            assert set(topics) - set(metadata.image.topics) <= {"failing"}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_what_a_failed_sync_left_in_memory_is_on_the_disk_before_it_counts(
    kafka_metadata: Path, tmp_path: Path, seed: int
) -> None:
    files = FaultyFileSystem(tmp_path / "live", seed)
    metadata = ClusterMetadata(kafka_metadata, files=files)
    files.fail("sync", at=METADATA_DIRECTORY)
    files.fail("truncate", at=METADATA_DIRECTORY)
    with pytest.raises(OSError, match="Input/output error"):
        metadata.create_topic("failing")
    assert "failing" in metadata.image.topics
    assert all("failing" in topics for topics in _after_power_cuts(files, tmp_path))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_after_a_crash_is_on_the_disk_before_it_counts(
    kafka_metadata: Path, tmp_path: Path, seed: int
) -> None:
    files = FaultyFileSystem(tmp_path / "live", seed)
    metadata = ClusterMetadata(kafka_metadata, files=files)
    metadata.create_topic("before")
    for kind in ("sync", "truncate"):
        files.fail(kind, at=METADATA_DIRECTORY)
    with pytest.raises(OSError, match="Input/output error"):
        metadata.create_topic("failing")
    # The program is killed before it reads the metadata again.
    files.repair()
    again = ClusterMetadata(kafka_metadata, is_clean=False, files=files)
    assert "failing" in again.image.topics
    assert all({"before", "failing"} <= topics for topics in _after_power_cuts(files, tmp_path))


@pytest.mark.slow
def test_formatting_leaves_a_folder_that_is_formatted_or_not(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    files = FaultyFileSystem(tmp_path / "live")
    meta = new_meta_properties()
    format_log_directory(files.root / "data", meta, files=files)
    done = len(files.history)
    for operations, found in _cuts(files, tmp_path):
        try:
            metadata = ClusterMetadata(found / "data")
        except FileNotFoundError:
            metadata = None
        if metadata is None or metadata.meta is None:
            assert operations < done, f"after {operations} operations\n{files}"
            format_log_directory(found / "data", meta)
            metadata = ClusterMetadata(found / "data")
        assert metadata.meta == meta
        metadata.create_topic("first")
        assert list(load_metadata(found / "data").image.topics) == ["first"]


def _after_power_cuts(files: FaultyFileSystem, tmp_path: Path) -> list[set[str]]:
    """Return the topics that power cuts after the last operation leave."""
    done = len(files.history)
    return [set(load_metadata(found / "data").image.topics) for _, found in _cuts(files, tmp_path, start=done)]


def _cuts(files: FaultyFileSystem, tmp_path: Path, start: int = 0) -> Iterator[tuple[int, Path]]:
    """Give the folders that kills and power cuts at every operation from `start` on leave."""
    path = tmp_path / "found"
    for operations, disk in files.replays():
        if operations < start:
            continue
        torn = files.history[operations] if operations < len(files.history) else None
        for cut in (None, *range(CUTS)):
            path.mkdir()
            if cut is None:
                disk.kill(path, torn, 0)
            else:
                disk.cut_power(path, cut)
            yield operations, path
            shutil.rmtree(path)
