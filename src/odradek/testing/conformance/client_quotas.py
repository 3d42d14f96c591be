"""Quotas of clients (KIP-546): which may be set, how they are found, and how a client above its own is answered."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from odradek.broker.protocol import encode_request
from odradek.testing.api_names import api_key_of
from odradek.testing.conformance.target import Target, batch, expect, expect_error
from odradek.testing.wire import WireClient

Entity: TypeAlias = Mapping[str, str | None]

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_PRODUCED, _FETCHED, _CREATED = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
_MOST_RECORDS = 10_000
_WINDOWS_S = 10
_SIZE_BYTES = 4


def entry(entity: Entity, **ops: float | None) -> Mapping[str, Any]:
    """Return what is asked of an entity: values, or None to remove one."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in ops.items()
        ],
    }


def _alter(target: Target, *entries: Mapping[str, Any], validate_only: bool = False) -> list[tuple[str, str | None]]:
    answer = target.call("AlterClientQuotas", entries=list(entries), validate_only=validate_only)
    return [(ErrorCode(one.error_code).name.upper(), one.error_message) for one in answer.entries]


def _set(target: Target, entity: Entity, **ops: float | None) -> None:
    expect("altered", _alter(target, entry(entity, **ops)), [("NONE", None)])
    wanted = {key: value for key, value in ops.items() if value is not None}

    def is_set() -> bool | None:
        found = _found(target, *((kind, 1 if name is None else 0, name) for kind, name in entity.items()), strict=True)
        present = found.get(frozenset(entity.items()), {})
        return True if all(present.get(key) == wanted.get(key) for key in ops) else None

    target.until("the quota is described", is_set)
    target.pause()


def _found(
    target: Target, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = target.call("DescribeClientQuotas", components=asked, strict=strict)
    expect_error("described", answer.error_code, "NONE")
    return {
        frozenset((one.entity_type, one.entity_name) for one in found.entity): {
            value.key: value.value for value in found.values
        }
        for found in answer.entries
    }


def quotas_are_set_changed_and_removed(target: Target) -> None:
    """Quotas of a client id can be set, changed and removed; removing one that is not there is no error."""
    entity = {"client-id": target.name()}
    _set(target, entity, producer_byte_rate=1e9, request_percentage=99.5)
    _set(target, entity, producer_byte_rate=2e9, request_percentage=None, consumer_byte_rate=None)
    found = _found(target, ("client-id", _EXACT, entity["client-id"]))
    expect("the quotas", found, {frozenset(entity.items()): {_PRODUCED: 2e9}})
    _set(target, entity, producer_byte_rate=None)
    expect("after", _found(target, ("client-id", _EXACT, entity["client-id"])), {})


def entities_have_one_or_two_types(target: Target) -> None:
    """A user, a client id, both, and an address may have quotas; the default of one type may be in a pair."""
    name = target.name()
    address = f"10.{time.time_ns() % 200}.3.4"
    entities: Sequence[Entity] = (
        {"user": name},
        {"client-id": name},
        {"user": name, "client-id": name},
        {"user": name, "client-id": None},
        {"user": None, "client-id": name},
    )
    try:
        _set(target, {"ip": address}, connection_creation_rate=1e6)
        for entity in entities:
            _set(target, entity, producer_byte_rate=1e9)
        found = _found(target, ("user", _EXACT, name))
        expect("of the user", set(found), {frozenset(one.items()) for one in entities if one.get("user") == name})
        strict = _found(target, ("user", _EXACT, name), strict=True)
        expect("of the user alone", set(strict), {frozenset({("user", name)})})
        default = _found(target, ("user", _EXACT, name), ("client-id", _DEFAULT, None))
        expect("with the default", set(default), {frozenset({("user", name), ("client-id", None)})})
        of_any = _found(target, ("user", _SPECIFIED, None), ("client-id", _EXACT, name), strict=True)
        pairs = {frozenset(one.items()) for one in entities if len(one) == 2 and one["client-id"] == name}
        expect("of any user", set(of_any), pairs)
        expect("all", {frozenset(one.items()) for one in entities} <= set(_found(target)), True)
        expect("strict, and nothing", _found(target, strict=True), {})
    finally:
        for entity in entities:
            _set(target, entity, producer_byte_rate=None)
        _set(target, {"ip": address}, connection_creation_rate=None)


def wrong_filters_are_refused(target: Target) -> None:
    """A filter with a type twice, without a type, or with a name where there must be none is INVALID_REQUEST."""
    wrong: Sequence[tuple[Sequence[tuple[str, int, str | None]], str]] = (
        ([("", _EXACT, "a")], "INVALID_REQUEST"),
        ([("user", _EXACT, "a"), ("user", _DEFAULT, None)], "INVALID_REQUEST"),
        ([("group", _EXACT, "a")], "UNSUPPORTED_VERSION"),
        ([("user", _EXACT, None)], "INVALID_REQUEST"),
        ([("user", _DEFAULT, "a")], "INVALID_REQUEST"),
        ([("user", _SPECIFIED, "a")], "INVALID_REQUEST"),
        ([("user", 3, None)], "INVALID_REQUEST"),
        ([("user", _EXACT, "a"), ("ip", _EXACT, "127.0.0.1")], "INVALID_REQUEST"),
    )
    for components, error in wrong:
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = target.call("DescribeClientQuotas", components=asked, strict=False)
        expect_error(repr(components), answer.error_code, error)
        expect("entries", answer.entries, None)


def wrong_alterations_are_refused(target: Target) -> None:
    """Wrong entities, keys and values are INVALID_REQUEST, with the reason, and nothing of the entity changes."""
    name = target.name()
    user = {"client-id": name}
    wrong: Sequence[tuple[Mapping[str, Any], str]] = (
        (entry({}, producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (entry({"group": name}, producer_byte_rate=1.0), "Unhandled client quota entity type: group"),
        (entry({"user": ""}, producer_byte_rate=1.0), "Empty user not supported"),
        (
            entry({"ip": "no such host!"}, connection_creation_rate=1.0),
            "no such host! is not a valid IP or resolvable host.",
        ),
        (entry(user, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (entry(user, producer_byte_rate=0.0), "Quota producer_byte_rate must be greater than 0"),
        (entry(user, request_percentage=-1.0), "Quota request_percentage must be greater than 0"),
        (entry(user, producer_byte_rate=1.5), "producer_byte_rate cannot be a fractional value."),
        (entry(user, producer_byte_rate=1e19), "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            entry({"ip": "10.0.0.1"}, connection_creation_rate=2.0**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    )
    for asked, reason in wrong:
        expect(repr(asked), _alter(target, asked), [("INVALID_REQUEST", reason)])
    both = entry({"ip": "10.0.0.1", "user": name}, connection_creation_rate=1.0)
    expect("with an address", [code for code, _ in _alter(target, both)], ["INVALID_REQUEST"])
    mixed = entry(user, consumer_byte_rate=5.0, producer_byte_rate=-1.0)
    expect("one of two", [code for code, _ in _alter(target, mixed)], ["INVALID_REQUEST"])
    expect("what is set", _found(target, ("client-id", _EXACT, name)), {})


def some_entities_change_though_others_do_not(target: Target) -> None:
    """Each entity of a request changes or has its own error."""
    good, bad = ({"client-id": target.name()} for _ in range(2))
    answers = _alter(target, entry(bad, nonsense=1.0), entry(good, producer_byte_rate=1e9))
    expect("the errors", sorted(code for code, _ in answers), ["INVALID_REQUEST", "NONE"])
    _set(target, good, producer_byte_rate=1e9)
    expect("the other", _found(target, ("client-id", _EXACT, bad["client-id"])), {})
    _set(target, good, producer_byte_rate=None)


def an_entity_that_is_named_twice_has_an_error_but_changes(target: Target) -> None:
    """Of an entity that a request names twice, the first is done, and the answer is an error."""
    entity = {"client-id": target.name()}
    answers = _alter(target, entry(entity, producer_byte_rate=1e9), entry(entity, consumer_byte_rate=1e9))
    reason = f"Ignoring duplicate entity ClientQuotaEntity(entries={{client-id={entity['client-id']}}})"
    expect("the answer", answers, [("INVALID_REQUEST", reason)])
    wanted = {frozenset(entity.items()): {_PRODUCED: 1e9}}
    target.until(
        "the first is done", lambda: _found(target, ("client-id", _EXACT, entity["client-id"])) == wanted or None
    )
    _set(target, entity, producer_byte_rate=None)


def a_key_that_is_named_twice_is_refused(target: Target) -> None:
    """An entity with a key twice does not change."""
    entity = {"client-id": target.name()}
    asked = entry(entity, producer_byte_rate=1e9)
    twice = {**asked, "ops": [*asked["ops"], *asked["ops"]]}
    expect("the answer", [code for code, _ in _alter(target, twice)], ["INVALID_REQUEST"])
    expect("what is set", _found(target, ("client-id", _EXACT, entity["client-id"])), {})


def a_request_may_only_be_checked(target: Target) -> None:
    """With `validate_only` a request is answered, but changes nothing."""
    entity = {"client-id": target.name()}
    expect("good", _alter(target, entry(entity, producer_byte_rate=1e9), validate_only=True), [("NONE", None)])
    bad = _alter(target, entry(entity, producer_byte_rate=0.5), validate_only=True)
    expect("bad", [code for code, _ in bad], ["INVALID_REQUEST"])
    expect("what is set", _found(target, ("client-id", _EXACT, entity["client-id"])), {})


def values_that_are_no_numbers_are_refused(target: Target) -> None:
    """NaN and infinity are INVALID_REQUEST."""
    target.needs_newest()
    for value in (math.nan, math.inf, -math.inf):
        answer = _alter(target, entry({"client-id": target.name()}, request_percentage=value))
        expect(f"{value}", answer, [("INVALID_REQUEST", "Quota request_percentage must be a finite number")])


def too_many_changes_are_refused(target: Target) -> None:
    """More than 10,000 changes in a request are POLICY_VIOLATION, of all entities, and nothing changes."""
    name = target.name()
    entries = [entry({"client-id": f"{name}-{number}"}, producer_byte_rate=1e9) for number in range(_MOST_RECORDS + 1)]
    answers = _alter(target, *entries)
    expect("how many", len(answers), len(entries))
    expect("the errors", {code for code, _ in answers}, {"POLICY_VIOLATION"})
    expect("what is set", _found(target, ("client-id", _EXACT, f"{name}-0")), {})


# -- what clients are answered


def _produce(target: Target, client: WireClient, topic: str, size: int, version: int = 9) -> tuple[int, int]:
    """Return for how many milliseconds a Produce request is throttled, and its size."""
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"x" * size)}]}],
    }
    answer = target.call("Produce", version, client=client, **fields)
    expect_error("produced", answer.responses[0].partition_responses[0].error_code, "NONE")
    size_bytes = len(encode_request(api_key_of("Produce"), version, 0, client.client_id, fields)) - _SIZE_BYTES
    return _milliseconds(answer), size_bytes


def _milliseconds(answer: Any) -> int:
    return int(answer.throttle_time.total_seconds() * 1000 + 0.5)


def _over(size: int, quota: float) -> int:
    """Return for how long a new client is throttled that has used so much at once."""
    return math.floor((size / _WINDOWS_S - quota) / quota * _WINDOWS_S * 1000 + 0.5)


def a_producer_is_throttled(target: Target) -> None:
    """A producer above its quota gets the time that brings its rate back, at once, and its connection is muted."""
    client = target.connect(client_id=target.name())
    topic, entity = target.topic(), {"client-id": client.client_id}
    _set(target, entity, producer_byte_rate=2000.0)
    begun = time.monotonic()
    throttle_ms, size = _produce(target, client, topic.name, 20_400)
    expect("answered at once", time.monotonic() - begun < 2, True)
    expect("the throttle time", throttle_ms, _over(size, 2000))
    begun = time.monotonic()
    target.call("ApiVersions", 0, client=client)
    waited_ms = (time.monotonic() - begun) * 1000
    expect("it is muted", throttle_ms * 0.7 < waited_ms < throttle_ms + 2000, True)
    begun = time.monotonic()
    expect("another client", _produce(target, target.client, topic.name, 30_000)[0], 0)
    _set(target, entity, producer_byte_rate=None)
    expect("without a quota", _produce(target, client, topic.name, 30_000)[0], 0)


def a_consumer_that_is_throttled_gets_nothing(target: Target) -> None:
    """A Fetch above its client's quota has an empty answer with the time, and does not count."""
    client = target.connect(client_id=target.name())
    topic, entity = target.topic(), {"client-id": client.client_id}
    target.produced(topic, batch(b"x" * 9000))
    _set(target, entity, consumer_byte_rate=1000.0)
    fetch = target.fetch_fields(topic, 0)
    first = target.call("Fetch", 12, client=client, **fetch)
    expect("the first throttle time", _milliseconds(first), 0)
    expect("its records", len(first.responses), 1)
    second = target.call("Fetch", 12, client=client, **fetch)
    expect("is throttled", 7000 < _milliseconds(second) < 9500, True)
    expect("is empty", len(second.responses), 0)
    again = target.call("Fetch", 12, client=target.connect(client_id=client.client_id), **fetch)
    expect("on another connection", abs(_milliseconds(again) - _milliseconds(second)) < 700, True)
    _set(target, entity, consumer_byte_rate=None)


def a_session_is_not_begun_by_a_throttled_fetch(target: Target) -> None:
    """A full Fetch that is throttled begins no session; in a session, the same is answered later."""
    client = target.connect(client_id=target.name())
    topic, entity = target.topic(), {"client-id": client.client_id}
    target.produced(topic, batch(b"x" * 2000))
    _set(target, entity, consumer_byte_rate=250.0)
    fetch = target.fetch_fields(topic, 0)
    begun = target.call("Fetch", 12, client=client, **{**fetch, "session_id": 0, "session_epoch": 0})
    expect("its throttle time", _milliseconds(begun), 0)
    expect("it has a session", begun.session_id != 0, True)
    later = {**fetch, "session_id": begun.session_id, "session_epoch": 1}
    throttled = target.call("Fetch", 12, client=client, **later)
    expect("is throttled", _milliseconds(throttled) > 0, True)
    expect("is empty", (throttled.session_id, len(throttled.responses)), (begun.session_id, 0))
    full = target.call(
        "Fetch", 12, client=target.connect(client_id=client.client_id), **{**fetch, "session_id": 0, "session_epoch": 0}
    )
    expect("has no session", (_milliseconds(full) > 0, full.session_id, len(full.responses)), (True, 0, 0))
    _set(target, entity, consumer_byte_rate=None)
    goes_on = target.call(
        "Fetch",
        12,
        client=target.connect(client_id=client.client_id),
        **{**fetch, "topics": [], "session_id": begun.session_id, "session_epoch": 2},
    )
    expect("is answered later", len(goes_on.responses), 1)


def the_most_specific_quota_counts(target: Target) -> None:
    """A quota of a user and a client id counts before one of any user and the client id, and that before the latter."""
    topic, name = target.topic(), target.name()
    entities: Sequence[tuple[Entity, float]] = (
        ({"client-id": name}, 200.0),
        ({"user": None, "client-id": name}, 400.0),
        ({"user": "ANONYMOUS", "client-id": name}, 800.0),
    )
    for entity, quota in entities:
        _set(target, entity, producer_byte_rate=quota)
        seen = target.connect(client_id=name)
        throttle_ms, size = _produce(target, seen, topic.name, 20_000)
        # What was produced under a quota of another kind may count, or not.
        times = [_over(size * count, quota) for count in (1, 2, 3)]
        expect(f"{entity}", any(0.95 * one < throttle_ms < 1.02 * one for one in times), True)
    for entity, _ in entities:
        _set(target, entity, producer_byte_rate=None)


def _create(target: Target, client: WireClient, version: int, partitions: int) -> Any:
    topic = {
        "name": target.name(),
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return target.call("CreateTopics", version, client=client, topics=[topic], validate_only=True)


def creations_above_the_quota_are_refused(target: Target) -> None:
    """A client that has used up its partitions gets THROTTLING_QUOTA_EXCEEDED, and an old one is only throttled."""
    client, old = (target.connect(client_id=target.name()) for _ in range(2))
    for one in (client, old):
        _set(target, {"client-id": one.client_id}, controller_mutation_rate=1.0)
    first = _create(target, client, 7, 13)
    expect("the first", (first.topics[0].error_code, _milliseconds(first)), (0, 0))
    second = _create(target, target.connect(client_id=client.client_id), 7, 1)
    expect_error("the second", second.topics[0].error_code, "THROTTLING_QUOTA_EXCEEDED")
    expect("its message", second.topics[0].error_message, None)
    expect("its throttle time", 500 < _milliseconds(second) <= 2000, True)
    before = _create(target, old, 5, 13)
    expect_error("of an old client", before.topics[0].error_code, "NONE")
    expect("its throttle time", 1500 < _milliseconds(before) <= 2000, True)
    for one in (client, old):
        _set(target, {"client-id": one.client_id}, controller_mutation_rate=None)
