"""What is inside an archive of `tests/vectors`, once unpacked: `tests/vectors/README.md` lists the contents."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from odradek.records import Record
from odradek.storage.names import TopicPartition


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
        content: dict[str, dict[str, Any]] = self._json("consumed-read_uncommitted.json")
        return content

    @cached_property
    def consumed_committed(self) -> dict[str, dict[str, Any]]:
        """What a `read_committed` consumer was given."""
        content: dict[str, dict[str, Any]] = self._json("consumed-read_committed.json")
        return content

    @property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Where the broker said that logs start. The unclean folder has no checkpoint that says so yet."""
        found = {}
        for name, consumed in self.consumed.items():
            topic, _, partition = name.rpartition("-")
            found[TopicPartition(topic, int(partition))] = consumed["logStartOffset"]
        return found

    @cached_property
    def offsets_for_times(self) -> list[dict[str, Any]]:
        """What ListOffsets answered."""
        content: list[dict[str, Any]] = self._json("offsets-for-times.json")
        return content

    @cached_property
    def topics(self) -> dict[str, dict[str, Any]]:
        """The topics as they were created."""
        content: dict[str, dict[str, Any]] = self._json("topics.json")
        return content

    @property
    def dump(self) -> Path:
        """The folder of what Kafka's own dump tool printed, a file a partition."""
        return self.path / "dump"

    def records(self, topic_partition: str, isolation: str = "read_uncommitted") -> list[Record]:
        """What a consumer was given of `topic-partition`, as our records."""
        consumed = self.consumed if isolation == "read_uncommitted" else self.consumed_committed
        return [consumed_record(row) for row in consumed[topic_partition]["records"]]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def consumed_record(row: dict[str, Any]) -> Record:
    """A row of what Kafka's consumer was given, as our record."""
    return Record(
        _bytes(row["key"]),
        _bytes(row["value"]),
        [(name, _bytes(value)) for name, value in row["headers"]],
        None if row["timestamp"] == -1 else row["timestamp"],
        row["offset"],
        None if row["timestampType"] == "NoTimestampType" else row["timestampType"],
    )
