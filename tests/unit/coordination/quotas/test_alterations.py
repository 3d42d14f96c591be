"""What may be changed of quotas, and how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

import pytest

from odradek.coordination.errors import RefusedError
from odradek.coordination.quotas.alterations import Alteration, Filter, altered
from odradek.messages.metadata.metadata_records import ClientQuotaRecord, QuotaEntity

ALICE = {"user": "alice"}
OF_ALICE = (QuotaEntity("user", "alice"),)


def changes(
    entity: Mapping[str, str | None], present: dict[str, float], **ops: float | None
) -> list[ClientQuotaRecord]:
    return altered(present, Alteration(entity, list(ops.items())), lambda name: name == "10.0.0.1")


def test_only_what_differs_is_written() -> None:
    present = {"producer_byte_rate": 5.0, "request_percentage": nan}
    assert changes(ALICE, present, producer_byte_rate=5.0, consumer_byte_rate=None) == []
    assert changes(ALICE, present, producer_byte_rate=None, consumer_byte_rate=7.0) == [
        ClientQuotaRecord(OF_ALICE, "producer_byte_rate", remove=True),
        ClientQuotaRecord(OF_ALICE, "consumer_byte_rate", 7.0),
    ]


@pytest.mark.parametrize(
    ("entity", "key", "value", "reason"),
    [
        (ALICE, "producer_byte_rate", 2.0**63, None),
        (ALICE, "producer_byte_rate", 2.0**64, "too large for a LONG"),
        *((ALICE, "producer_byte_rate", value, "must be a finite number") for value in (nan, inf, -inf)),
        (ALICE, "producer_byte_rate", 1.000_000_1, None),
        (ALICE, "producer_byte_rate", 1.000_1, "cannot be a fractional value"),
        (ALICE, "request_percentage", 0.001, None),
        (ALICE, "request_percentage", inf, "must be a finite number"),
        (ALICE, "controller_mutation_rate", -0.0, "must be greater than 0"),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key"),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 2.0**31 - 1, None),
        ({"ip": None}, "connection_creation_rate", 2.0**31, "too large for an INT"),
        ({"ip": "10.0.0.2"}, "connection_creation_rate", 1.0, "not a valid IP"),
        ({"ip": "10.0.0.1", "user": "alice"}, "connection_creation_rate", 1.0, "Invalid quota entity combination"),
        ({"client-id": ""}, "producer_byte_rate", 1.0, "Empty client-id"),
        ({"group": "g"}, "producer_byte_rate", 1.0, "Unhandled"),
        ({}, "producer_byte_rate", 1.0, "Invalid empty"),
    ],
)
def test_entities_keys_and_values_are_checked(
    entity: dict[str, str | None], key: str, value: float, reason: str | None
) -> None:
    if reason is None:
        assert [record.key for record in changes(entity, {}, **{key: value})] == [key]
    else:
        with pytest.raises(RefusedError, match=reason):
            changes(entity, {}, **{key: value})


def test_removals_are_not_checked_for_their_keys() -> None:
    assert changes(ALICE, {"old": 1.0}, old=None, older=None) == [ClientQuotaRecord(OF_ALICE, "old", remove=True)]


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, {"alice", "alice/app", "alice/*", "*/app", "app", "1.1.1.1"}),
        ([], True, set()),
        ([("user", 0, "alice")], False, {"alice", "alice/app", "alice/*"}),
        ([("user", 0, "alice")], True, {"alice"}),
        ([("user", 1, None)], False, {"*/app"}),
        ([("user", 2, None)], False, {"alice", "alice/app", "alice/*", "*/app"}),
        ([("user", 0, "alice"), ("client-id", 1, None)], True, {"alice/*"}),
        ([("user", 2, None), ("client-id", 0, "app")], False, {"alice/app", "*/app"}),
        ([("ip", 2, None)], True, {"1.1.1.1"}),
    ],
)
def test_filters_find_entities(components: list[tuple[str, int, str | None]], is_strict: bool, found: set[str]) -> None:
    entities: dict[str, dict[str, str | None]] = {
        "alice": {"user": "alice"},
        "alice/app": {"user": "alice", "client-id": "app"},
        "alice/*": {"user": "alice", "client-id": None},
        "*/app": {"user": None, "client-id": "app"},
        "app": {"client-id": "app"},
        "1.1.1.1": {"ip": "1.1.1.1"},
    }
    wanted = Filter(components, is_strict=is_strict)
    matched = {
        shown
        for shown, names in entities.items()
        if wanted.matches(frozenset(QuotaEntity(*one) for one in names.items()))
    }
    assert matched == found
