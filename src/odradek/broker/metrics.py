"""What a broker counts as it works: plain numbers, which `odradek.broker.monitoring` shows.

Source in Kafka: `RequestChannelMetrics`, `BrokerTopicMetrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

LATENCY_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the classes that answers are counted in by the time they took."""


class ApiMetrics:
    """What was counted of one API.

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
    """

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections = 0
        self.apis: defaultdict[str, ApiMetrics] = defaultdict(ApiMetrics)

    def answered(self, api: str, seconds: float) -> None:
        """Count an answer."""
        found = self.apis[api]
        found.seconds += seconds
        found.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1

    def failed(self, api: str, code: int) -> None:
        """Count an error in an answer."""
        self.apis[api].errors[code] += 1

    def count_errors(self, api: str, message: Mapping[str, Any]) -> None:
        """Count the errors in an answer, also of its parts: dictionaries, and lists or tuples of them."""
        for name, value in message.items():
            if name == "error_code":
                if value:
                    self.failed(api, int(value))
            elif isinstance(value, list | tuple):
                for part in value:
                    # Each answer is gone through: this is a fraction of the time that the abstract types take.
                    if not isinstance(part, dict):
                        break
                    self.count_errors(api, part)
            elif isinstance(value, dict):
                self.count_errors(api, value)
