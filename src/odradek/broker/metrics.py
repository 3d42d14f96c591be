"""What a broker counts as it works: plain numbers, which `odradek.broker.monitoring` shows.

Source in Kafka: `RequestChannelMetrics`, `BrokerTopicMetrics`, `ShareGroupMetrics`, `SharePartitionMetrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

LATENCY_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the buckets in which answers are counted by the time that they took."""


class ApiMetrics:
    """The counts of one API.

    Attributes:
        seconds: How long all answers took together, waiting for records included.
        counts: How many answers fell between the bounds.
        errors: How many errors were answered, by Kafka's codes.
    """

    __slots__ = ("counts", "errors", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.errors: Counter[int] = Counter()


class Metrics:
    """What was counted since the broker began.

    Attributes:
        received_bytes: What clients sent.
        sent_bytes: What clients were sent.
        connections: How many connections were accepted.
        apis: What was counted of each API, by its name.
        acknowledged: How many records members of share groups acknowledged, by the number of the type.
        lock_timeouts: How many records members of share groups had for too long.
    """

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections = 0
        self.apis: defaultdict[str, ApiMetrics] = defaultdict(ApiMetrics)
        self.acknowledged: Counter[int] = Counter()
        self.lock_timeouts = 0

    def answered(self, api: str, seconds: float) -> None:
        """Count an answer."""
        found = self.apis[api]
        found.seconds += seconds
        found.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1

    def failed(self, api: str, code: int) -> None:
        """Count an error in an answer."""
        self.apis[api].errors[code] += 1

    def acknowledgement(self, first_offset: int, last_offset: int, types: Sequence[int]) -> None:
        """Count what became of records: one type for all of them, or one for each."""
        if len(types) == 1:
            self.acknowledged[types[0]] += last_offset - first_offset + 1
        else:
            self.acknowledged.update(types)

    def lock_timed_out(self, count: int) -> None:
        """Count records that a member had for too long."""
        self.lock_timeouts += count

    def count_errors(self, api: str, codes: Collection[int]) -> None:
        """Count the errors in an answer."""
        if codes:
            self.apis[api].errors.update(codes)


def errors_in(message: Mapping[str, Any]) -> list[int]:
    """Return the codes of the errors in an answer, also of its parts: dictionaries, and lists or tuples of them."""
    found: list[int] = []
    _collect_errors(message, found)
    return found


def _collect_errors(message: Mapping[str, Any], found: list[int]) -> None:
    for name, value in message.items():
        if name == "error_code":
            if value:
                found.append(int(value))
        elif isinstance(value, list | tuple):
            for part in value:
                # Every answer passes here, and this takes a fraction of the time of a check against the abstract types.
                if not isinstance(part, dict):
                    break
                _collect_errors(part, found)
        elif isinstance(value, dict):
            _collect_errors(value, found)
