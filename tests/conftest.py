"""What the tests share: the log directories that real Kafka brokers wrote, unpacked once a run."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from peers.kafka_fixture import KafkaFixture

pytest_plugins = ["peers.fixtures", "crash.options"]

VECTORS = Path(__file__).parent / "vectors"


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
    return request.getfixturevalue(name)


@pytest.fixture
def writable_log_dir(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> Path:
    """A private copy of the clean 4.3.1 log directory."""
    return Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "log-dir"))
