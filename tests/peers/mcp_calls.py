"""A call of each tool for agents, over a folder or broker with the topic `events`."""

from __future__ import annotations

from typing import Any

TOKEN = "a-token"
CALLS: dict[str, dict[str, Any]] = {
    "topics": {},
    "describe": {"topic": "events"},
    "find": {"topic": "events", "pattern": "v1"},
    "get": {"topic": "events", "partition": 0, "offset": 1},
    "tail": {"topic": "events"},
    "aggregate": {"topic": "events", "group_by": ["key"]},
    "explain": {"topic": "events", "partition": 0, "offset": 1},
    "verify": {},
    "groups_and_lag": {},
    "transactions": {},
}
