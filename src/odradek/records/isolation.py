"""Which records of transactions a consumer is given.

Source in Kafka: `IsolationLevel`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from odradek.errors import OptionError

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}
"""The numbers of the levels in requests."""


_LEVELS = tuple(ISOLATION_LEVELS)


def check_isolation(isolation: str, name: str = "isolation") -> None:
    """Check that an isolation level exists; the error names the option.

    Raises:
        OptionError: It does not.
    """
    if isolation not in _LEVELS:
        raise OptionError(f"{name} is read_uncommitted or read_committed, not {isolation!r}")
