from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.spark.progress import offsets_behind_latest
from odradek.storage.names import TopicPartition


@pytest.mark.parametrize("form", [json.dumps, dict])
def test_offsets_behind_latest(form: Any) -> None:
    ends = {"a": {"0": 5, "1": 9, "topic_id": "x", "leader_epochs": {"0": 3}}, "gone": {"0": 7}}
    latest = {"a": {"0": 12, "1": 9, "2": 3, "topic_id": "x"}}
    sources = [
        {"endOffset": form(ends), "latestOffset": form(latest)},
        {"endOffset": "17", "latestOffset": "20"},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": "no JSON", "latestOffset": "null"},
    ]
    assert offsets_behind_latest({"sources": sources}) == {TopicPartition("a", 0): 7, TopicPartition("a", 1): 0}


def test_before_the_first_batch_nothing_is_known() -> None:
    assert offsets_behind_latest(None) == {}
