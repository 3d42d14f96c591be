"""Which settings of groups have bounds among the broker's settings, and whether the broker's own are within them.

    group.share.session.timeout.ms            what a group has that names none
    group.share.{min,max}.session.timeout.ms  what a group may name

Source in Kafka: `GroupCoordinatorConfig`, `ShareGroupConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from odradek.errors import InvalidConfigError

_OF_EACH = ("heartbeat.interval.ms", "session.timeout.ms")
_LAST = "assignment.interval.ms"

BOUNDED: Mapping[str, tuple[str, ...]] = {
    "consumer": (*_OF_EACH, _LAST),
    "share": (*_OF_EACH, "record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks", _LAST),
    "streams": _OF_EACH,
}
"""The settings by the type of a group, in the order of Kafka's checks; `streams` has others after these."""


class _Settings(Protocol):
    def __getitem__(self, name: str) -> Any: ...


def bounds_of(group_type: str, kind: str) -> tuple[str, str]:
    """Return the names of the broker's settings that say the lowest and the highest value."""
    return f"group.{group_type}.min.{kind}", f"group.{group_type}.max.{kind}"


def check_group_bounds(config: _Settings, group_type: str) -> None:
    """Check whether the broker's settings of a type of groups fit together.

    Raises:
        InvalidConfigError: They do not.
    """
    for kind in BOUNDED[group_type]:
        name, (low, high) = f"group.{group_type}.{kind}", bounds_of(group_type, kind)
        if not config[low] <= config[name] <= config[high]:
            raise InvalidConfigError(name, f"{config[name]} is not between {low} and {high}")
    session, heartbeat = f"group.{group_type}.session.timeout.ms", f"group.{group_type}.heartbeat.interval.ms"
    if config[session] <= config[heartbeat]:
        raise InvalidConfigError(session, f"must be greater than {heartbeat}")
