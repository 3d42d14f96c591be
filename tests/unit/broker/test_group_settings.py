"""Settings of groups: those of a request are one change of the metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.running import BrokerThread
from odradek.errors import LogError
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.testing.wire import WireClient
from peers.requests import ask

GROUP = 32
KAFKA_STORAGE_ERROR = 56


def test_settings_of_many_groups_are_one_change_of_the_metadata(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 groups took as many syncs, and looks at all that there were: 16 seconds."""
    written: list[int] = []
    write = ClusterMetadata._write

    def counted(self: ClusterMetadata, records: Sequence[Any]) -> None:
        written.append(len(records))
        write(self, records)

    monkeypatch.setattr(ClusterMetadata, "_write", counted)
    config = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "46000"}
    wrong = {**config, "value": "1"}
    resources = [
        {"resource_type": GROUP, "resource_name": f"g{number}", "configs": [config if number != 7 else wrong]}
        for number in range(100)
    ]
    answers = ask(client, "IncrementalAlterConfigs", 1, resources=resources).responses
    assert [number for number, one in enumerate(answers) if int(one.error_code)] == [7]
    assert [one.resource_name for one in answers] == [f"g{number}" for number in range(100)]
    assert written == [99]
    assert sum(one.type == GROUP for one in running.broker.logs.metadata_image.configs) == 99

    def fail(self: ClusterMetadata, records: object) -> None:
        raise LogError("no room")

    # Where the write fails, none is altered.
    monkeypatch.setattr(ClusterMetadata, "_write", fail)
    config["value"] = "47000"
    answers = ask(client, "IncrementalAlterConfigs", 1, resources=resources).responses
    assert {int(one.error_code) for number, one in enumerate(answers) if number != 7} == {KAFKA_STORAGE_ERROR}
