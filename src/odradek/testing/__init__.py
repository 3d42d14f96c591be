"""For the tests of those who use Odradek or Kafka: a broker in the process, faults, its time, and conformance suites.

    odradek.testing.Broker          a broker that Kafka's clients connect to; the fixture `kafka` of the pytest plugin
    odradek.testing.allow, .deny    its access control lists

The conformance suites are modules of their own.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; the pytest plugin is imported by every run of pytest
if TYPE_CHECKING:
    from typing import Any

    from odradek.testing.broker import Broker
    from odradek.testing.security import allow, deny

__all__ = ["Broker", "allow", "deny"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from odradek.testing.broker import Broker
        from odradek.testing.security import allow, deny
    except ModuleNotFoundError as error:
        from odradek.extras import missing_package

        raise ModuleNotFoundError(f"odradek.testing.{name}: {missing_package(error)}", name=error.name) from error
    globals().update(Broker=Broker, allow=allow, deny=deny)
    return globals()[name]
