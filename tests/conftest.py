"""What the tests share: the log directories that real Kafka brokers wrote, unpacked once a run."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.storage import file_lock
from odradek.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.locks import Rank, check_lock_order, create_lock
from peers.kafka_fixture import KafkaFixture

pytest_plugins = ["peers.fixtures", "crash.options"]

# A lock that is taken out of order raises, in every test.
check_lock_order(True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the first case of each `sampled` test among the quick tests, and mark the others slow."""
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            function = item.nodeid.partition("[")[0]
            if function in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(function)


@pytest.fixture
def real_locks() -> Iterator[None]:
    """Use the real locks, which no exception can leave locked; those that check their order are Python code."""
    check_lock_order(False)
    # This one was made with its module.
    kept, file_lock._register.lock = file_lock._register.lock, create_lock(Rank.REGISTER)
    yield
    file_lock._register.lock = kept
    check_lock_order(True)


VECTORS = Path(__file__).parent / "vectors"

SmallLogDirectory = Callable[..., Path]
"""Makes a private copy of some partitions; see the fixture `small_log_dir`."""


def _unpack(version: str, tmp_path_factory: pytest.TempPathFactory) -> KafkaFixture:
    path = tmp_path_factory.mktemp(f"kafka-{version}")
    with tarfile.open(VECTORS / f"kafka-{version}.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return KafkaFixture(version, path)


@pytest.fixture(scope="session")
def fixture_4_3_1(tmp_path_factory: pytest.TempPathFactory) -> KafkaFixture:
    """What Apache Kafka 4.3.1 wrote. Read-only: copy a folder before changing it."""
    return _unpack("4.3.1", tmp_path_factory)


@pytest.fixture(scope="session")
def fixture_2_8_2(tmp_path_factory: pytest.TempPathFactory) -> KafkaFixture:
    """What Apache Kafka 2.8.2 wrote, v0 and v1 messages among it. Read-only."""
    return _unpack("2.8.2", tmp_path_factory)


@pytest.fixture(scope="session", params=["4.3.1", "2.8.2"])
def kafka_fixture(request: pytest.FixtureRequest) -> KafkaFixture:
    """Each fixture in turn."""
    name = f"fixture_{request.param.replace('.', '_')}"
    found: KafkaFixture = request.getfixturevalue(name)
    return found


@pytest.fixture
def writable_log_dir(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> Path:
    """A private copy of the clean 4.3.1 log directory."""
    return Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "log-dir"))


@pytest.fixture
def small_log_dir(fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture, tmp_path: Path) -> SmallLogDirectory:
    """Makes a private copy of some partitions, with the metadata: `small_log_dir("keyed-0", version="4.3.1")`."""

    def make(*partitions: str, version: str = "4.3.1", clean: bool = True) -> Path:
        fixture = fixture_4_3_1 if version == "4.3.1" else fixture_2_8_2
        source = fixture.log_dir if clean else fixture.log_dir_unclean
        root = tmp_path / "data"
        root.mkdir()
        wanted = [source / name for name in partitions]
        if version == "4.3.1":
            wanted.append(source / "__cluster_metadata-0")
        for path in {*(path for path in source.iterdir() if path.is_file()), *wanted}:
            if path.is_dir():
                shutil.copytree(path, root / path.name)
            else:
                shutil.copy(path, root / path.name)
        for path in root.glob("*-offset-checkpoint"):
            offsets = read_offset_checkpoint(path)
            write_offset_checkpoint(path, {name: offset for name, offset in offsets.items() if str(name) in partitions})
        for path in root.rglob("*"):
            # Snapshots of the metadata log cannot be written to.
            path.chmod(0o755 if path.is_dir() else 0o644)
        return root

    return make
