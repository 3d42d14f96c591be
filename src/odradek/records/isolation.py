"""Which records a consumer is given of those that a transaction wrote.

Source in Kafka: `IsolationLevel`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from odradek.errors import OptionError

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}
"""The numbers by which requests name them."""


def check_isolation(isolation: str) -> None:
    """Raise where there is no such level.

    Raises:
        OptionError: There is none.
    """
    if isolation not in ISOLATION_LEVELS:
        raise OptionError(f"isolation is read_uncommitted or read_committed, not {isolation!r}")
