"""What Kafka's own tool makes of each corruption: the last column of the table of docs/damage.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from flips import damage_table
from peers.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop


def test_kafkas_tool_says_what_the_table_says(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    documented = {row[0].strip("`"): row[-1] for row in damage_table.rows()}
    found = {name: damage_table.kafkas(name, tmp_path / name, kafka_tools) for name in damage_table.vectors()}
    assert found == documented
