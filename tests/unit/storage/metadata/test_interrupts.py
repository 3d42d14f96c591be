"""Whatever ends a change early, at whatever bytecode: it has happened or it has not, and the next one goes on."""

from __future__ import annotations

import gc
import os
import random
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import odradek
from crash.interrupter import count, interrupted
from odradek.errors import LogError
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, load_metadata
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from peers.topic_settings import alter_topic

pytestmark = pytest.mark.usefixtures("real_locks")

CASES = 40
SEGMENT = f"{METADATA_DIRECTORY}/{0:020d}.log"


def state(image: MetadataImage) -> object:
    return (
        sorted((name, str(topic.topic_id), sorted(topic.partitions)) for name, topic in image.topics.items()),
        image.configs,
        image.next_producer_id,
    )


@pytest.fixture(autouse=True)
def collect_files() -> Iterator[None]:
    """Collect the files that were interrupted between `open` and `with` here, not in a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=["bootstrap", "log"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "log":
        path: Path = request.getfixturevalue("kafka_metadata")
        return path
    format_log_directory(tmp_path / "new", new_meta_properties(node_id=1))
    return tmp_path / "new"


def change(metadata: ClusterMetadata, number: int) -> None:
    """Make, grow, change and delete a topic of this number, one thing a number."""
    name = f"t{number // 5}"
    match number % 5:
        case 0:
            metadata.create_topic(name, 2, {"retention.ms": "5"})
        case 1:
            metadata.create_partitions({name: 4})
        case 2:
            alter_topic(metadata, name, {"retention.ms": None, "segment.ms": str(number)})
        case 3:
            metadata.take_producer_ids(10)
        case 4:
            metadata.delete_topics([name])


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_an_exception_at_any_bytecode_leaves_a_change_done_or_not_done(directory: Path, twice: bool) -> None:
    rng = random.Random(7)
    metadata = ClusterMetadata(directory)
    number = done = undone = 0
    counts: dict[int, int] = {}
    for case in range(CASES):
        action = partial(change, metadata, number)
        if number % 5 not in counts:
            counts[number % 5] = count(action)
            number += 1
            continue
        before = state(metadata.image)
        # The first third of the bytecodes only reads; the interesting ones are few, and near the end.
        after = (
            rng.randrange(1, counts[number % 5])
            if case % 2
            else rng.randrange(counts[number % 5] // 2, counts[number % 5])
        )
        outcome = interrupted(action, after, again=rng.randrange(1, 60) if twice else 0)
        assert outcome.arrived or not outcome.error, outcome.error
        found = state(metadata.image)
        fresh = load_metadata(directory)
        assert found == state(fresh.image), f"after {after} bytecodes memory and disk differ"
        assert fresh.tail is None or fresh.tail.damage is None
        if found == before:
            undone += 1
            action()
            assert state(metadata.image) != before
        else:
            done += 1
        number += 1
    assert done + undone > CASES // 2
    assert undone
    assert state(ClusterMetadata(directory).image) == state(metadata.image)


class HalfWriter(FileSystem):
    """Writes half of what it is given, and fails; then it can do nothing any more until `mend`."""

    def __init__(self) -> None:
        self.is_broken = False
        self.error: BaseException | None = None

    def open(self, path: Path) -> WritableFile:
        return HalfFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), self)


class HalfFile(WritableFile):
    def __init__(self, path: Path, descriptor: int, files: HalfWriter) -> None:
        super().__init__(path, descriptor)
        self._files = files

    def write(self, data: Any) -> None:
        if self._files.error is not None:
            super().write(data[: len(data) // 2])
            self._files.is_broken = True
            raise self._files.error
        super().write(data)

    def truncate(self, size: int) -> None:
        if self._files.is_broken:
            raise OSError(5, "Input/output error", str(self.path))
        super().truncate(size)


@pytest.mark.sampled
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
def test_half_a_batch_is_never_in_front_of_the_next_one(kafka_metadata: Path, error: BaseException) -> None:
    files = HalfWriter()
    metadata = ClusterMetadata(kafka_metadata, files=files)
    path = kafka_metadata / SEGMENT
    size = path.stat().st_size
    files.error = error
    with pytest.raises(type(error)):
        metadata.create_topic("half")
    assert path.stat().st_size > size, "nor could it be taken back"
    with pytest.raises(OSError, match="Input/output error"):
        # Nothing is said of what nobody knows.
        _ = metadata.image
    files.error, files.is_broken = None, False

    assert "half" not in metadata.image.topics
    assert path.stat().st_size == size
    assert {(action.path, action.position) for action in metadata.report.actions} == {(path, size)}
    metadata.create_topic("next")
    assert "next" in ClusterMetadata(kafka_metadata).image.topics


@pytest.mark.slow
def test_a_directory_whose_metadata_end_in_half_a_batch_is_not_closed_as_a_clean_one(kafka_metadata: Path) -> None:
    files = HalfWriter()
    path = kafka_metadata / SEGMENT
    size = path.stat().st_size
    with odradek.open(kafka_metadata, files=files) as logs:
        files.error = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            logs.create_topic("half")
        files.error, files.is_broken = None, False
    assert path.stat().st_size == size, "taken back when it is closed"
    assert (kafka_metadata / CLEAN_SHUTDOWN_MARKER).exists()
    logs = odradek.open(kafka_metadata, files=files)
    files.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        logs.create_topic("half")
    files.error = None
    with pytest.raises(LogError, match="Input/output error"):
        logs.close()
    assert not (kafka_metadata / CLEAN_SHUTDOWN_MARKER).exists()
    assert path.stat().st_size > size
    with odradek.open(kafka_metadata) as logs:
        assert [(action.path, action.position) for action in logs.report.actions] == [(path, size)]
        assert "half" not in logs.topics()


@pytest.mark.slow
def test_a_change_of_bootstrap_that_fails_alters_nothing_in_memory(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties())
    files = HalfWriter()
    metadata = ClusterMetadata(tmp_path, files=files)
    metadata.create_topic("kept")
    before = (tmp_path / "bootstrap.checkpoint").read_bytes()
    files.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        metadata.create_topic("failing")
    files.error, files.is_broken = None, False
    assert set(metadata.image.topics) == {"kept"}
    assert (tmp_path / "bootstrap.checkpoint").read_bytes() == before
    metadata.create_topic("next")
    assert set(load_metadata(tmp_path).image.topics) == {"kept", "next"}
