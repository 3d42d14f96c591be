"""What the tests share: the log directories that real Kafka brokers wrote, unpacked once a run."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parent / "vectors"


@dataclass(frozen=True)
class KafkaFixture:
    """One archive of `tests/vectors`: log directories of a real broker, and what real readers saw in them."""

    version: str
    path: Path

    @property
    def log_dir(self) -> Path:
        """The log directory as an orderly shutdown left it."""
        return self.path / "log-dir"

    @property
    def log_dir_unclean(self) -> Path:
        """The same log directory as a crash left it."""
        return self.path / "log-dir-unclean"

    def _json(self, name: str) -> Any:
        return json.loads((self.path / name).read_text(encoding="utf-8"))

    @cached_property
    def consumed(self) -> dict[str, dict[str, Any]]:
        """What a `read_uncommitted` consumer was given, by `topic-partition`; byte strings are base64."""
        return self._json("consumed-read_uncommitted.json")

    @cached_property
    def consumed_committed(self) -> dict[str, dict[str, Any]]:
        """What a `read_committed` consumer was given."""
        return self._json("consumed-read_committed.json")

    @cached_property
    def offsets_for_times(self) -> list[dict[str, Any]]:
        """What ListOffsets answered."""
        return self._json("offsets-for-times.json")

    @cached_property
    def topics(self) -> dict[str, dict[str, Any]]:
        """The topics as they were created."""
        return self._json("topics.json")

    @property
    def dump(self) -> Path:
        """The folder of what Kafka's own dump tool printed, a file a partition."""
        return self.path / "dump"


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
