"""Which quota counts for a client."""

from __future__ import annotations

from math import inf, nan

import pytest

from odradek.coordination.quotas.limits import Limit, Limits

EVERY: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "alice", "client-id": "app"}, ("alice", "app")),
    ({"user": "alice", "client-id": None}, ("alice", "app")),
    ({"user": "alice"}, ("alice", "")),
    ({"user": None, "client-id": "app"}, ("alice", "app")),
    ({"user": None, "client-id": None}, ("alice", "app")),
    ({"user": None}, ("alice", "")),
    ({"client-id": "app"}, ("", "app")),
    ({"client-id": None}, ("", "app")),
]
"""All kinds of entities in the order of Kafka's precedence, and who shares such a quota."""


def test_the_most_specific_quota_counts() -> None:
    limits = Limits()
    for quota, (names, sharers) in reversed(list(enumerate(EVERY, 1))):
        limits.set(names, quota)
        assert limits.of("alice", "app") == Limit(sharers, quota)
    for names, _ in EVERY:
        limits.set(names, None)
    assert not limits
    assert limits.of("alice", "app") is None


@pytest.mark.parametrize("names", [names for names, _ in EVERY if "client-id" in names])
def test_a_client_without_an_id_has_no_quota_of_client_ids(names: dict[str, str | None]) -> None:
    limits = Limits()
    limits.set(names, 5.0)
    assert limits.of("alice", "") is None


def test_others_have_their_own_quotas_or_none() -> None:
    limits = Limits()
    limits.set({"user": "alice"}, 5.0)
    limits.set({"client-id": "app"}, 7.0)
    assert limits.of("bob", "app") == Limit(("", "app"), 7.0)
    assert limits.of("bob", "other") is None


@pytest.mark.parametrize("value", [nan, inf])
def test_values_that_are_no_numbers_limit_nobody_but_count(value: float) -> None:
    limits = Limits()
    limits.set({"client-id": "app"}, 7.0)
    limits.set({"user": "alice"}, value)
    assert limits.of("alice", "app") == Limit(("alice", ""), inf)
