"""Subscriptions of client metrics (KIP-714): what they cost, and that they stay."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configs.client_metrics_keys import check_client_metrics_config
from odradek.broker.errors import ApiError
from odradek.testing.wire import WireClient
from peers.broker_thread import connect, start
from peers.cpu import in_standards
from peers.requests import ask

CLIENT_METRICS = 16
MOST_CHARACTERS = (1 << 15) - 1


def _alter(client: WireClient, name: str, **settings: str) -> int:
    configs = [{"name": key, "config_operation": 0, "value": value} for key, value in settings.items()]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
    return int(ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses[0].error_code)


def _described(client: WireClient, name: str) -> dict[str, Any]:
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": None}
    (found,) = ask(client, "DescribeConfigs", 4, resources=[resource]).results
    return {one.name: one.value for one in found.configs}


@pytest.mark.slow
def test_a_subscription_outlives_the_broker(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with start(folder) as running, connect(running) as client:
        assert _alter(client, "all", metrics="*", match="client_software_name=librdkafka") == 0
    with start(folder) as running, connect(running) as client:
        wanted = {"interval.ms": "300000", "match": "client_software_name=librdkafka", "metrics": "*"}
        assert _described(client, "all") == wanted
        (listed,) = ask(client, "ListConfigResources", 0).config_resources
        assert listed.resource_name == "all"


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", ["a{1000}", ".*", "(?=a)", "(a+)+$", r"\pN"])
def test_many_patterns_take_no_time(leftovers_frozen: None, pattern: str) -> None:
    words: list[str] = []
    while len(",".join(words)) < MOST_CHARACTERS - 50:
        words.append(f"client_id={len(words)}{pattern}")

    def check() -> None:
        with pytest.raises(ApiError) if pattern in {"(?=a)", r"\pN"} else nullcontext():
            check_client_metrics_config("many", {"match": ",".join(words)})

    assert in_standards(check) < 20
