"""Which records a consumer is given of those that a transaction wrote.

Source in Kafka: `IsolationLevel`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}
"""The numbers by which requests name them."""
