"""A pattern of topics that the broker looks for, not the consumer (KIP-848).

Source in Kafka: `SubscriptionPattern`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2's syntax, which matches whole names of topics: `events-[0-9]+`.

    For `consume(..., protocol="consumer")`: the broker looks for the topics, and finds new ones.
    """

    pattern: str
