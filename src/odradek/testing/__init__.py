"""For the tests of those who use Odradek or Kafka: a broker in the process, faults, its time, and conformance suites.

odradek.testing.Broker    a broker that Kafka's clients connect to; the pytest plugin has it as the fixture `kafka`
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; the pytest plugin is imported by every run of pytest
if TYPE_CHECKING:
    from typing import Any

    from odradek.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.testing.broker import Broker

    globals()[name] = Broker
    return Broker
