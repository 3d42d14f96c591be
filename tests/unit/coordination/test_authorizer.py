"""What access control lists allow: by a table of cases, and beside a plain reading of the rules."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.coordination.authorization import authorizer
from odradek.coordination.authorization.acls import (
    Acl,
    AclFilter,
    AclIndex,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    of_codes,
)
from odradek.coordination.authorization.authorizer import Authorizer
from peers.mutants import ACL_FAULTS, Edit, plant

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALICE, HOST = "User:alice", "10.0.0.1"


def acl(
    name: str,
    operation: Operation = READ,
    pattern: PatternType = LITERAL,
    permission: PermissionType = ALLOW,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def allowed(acls: Sequence[Acl], operation: Operation, name: str = "orders-1", **options: bool) -> bool:
    return bool(Authorizer(acls, (), **options).operations(ALICE, HOST, TOPIC, name) >> operation & 1)


@pytest.mark.parametrize(
    ("acls", "operation", "is_allowed"),
    [
        ([], READ, False),
        ([acl("orders-1")], READ, True),
        ([acl("orders-1")], DESCRIBE, True),
        ([acl("orders-1")], WRITE, False),
        ([acl("orders-1", Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([acl("orders-1", Operation.ALTER_CONFIGS)], DESCRIBE, False),
        ([acl("orders-1", Operation.CREATE)], DESCRIBE, False),
        ([acl("orders-1", ALL)], Operation.TWO_PHASE_COMMIT, True),
        ([acl("orders")], READ, False),
        ([acl("orders", pattern=PREFIXED)], READ, True),
        ([acl("orders-1", pattern=PREFIXED)], READ, True),
        ([acl("orders-12", pattern=PREFIXED)], READ, False),
        ([acl("*")], READ, True),
        ([acl("*", pattern=PREFIXED)], READ, False),
        ([acl("orders-1", principal="User:*")], READ, True),
        ([acl("orders-1", principal="Group:alice")], READ, False),
        ([acl("orders-1", host=HOST)], READ, True),
        ([acl("orders-1", host="10.0.0.2")], READ, False),
        ([acl("orders-1", kind=GROUP)], READ, False),
        # A denial comes first, wherever it stands, and does not deny what the operation implies.
        ([acl("orders-1"), acl("*", permission=DENY)], READ, False),
        ([acl("*"), acl("o", pattern=PREFIXED, permission=DENY, principal="User:*")], READ, False),
        ([acl("orders-1"), acl("orders-1", permission=DENY)], DESCRIBE, True),
        ([acl("orders-1"), acl("orders-1", DESCRIBE, permission=DENY)], READ, True),
        ([acl("orders-1"), acl("orders-1", ALL, permission=DENY)], DESCRIBE, False),
    ],
)
def test_what_acls_allow(acls: list[Acl], operation: Operation, is_allowed: bool) -> None:
    assert allowed(acls, operation) is is_allowed


def test_where_no_acl_is_about_a_resource_the_setting_decides() -> None:
    others = [acl("other"), acl("orders-1", kind=GROUP)]
    assert allowed(others, READ, allow_if_none=True)
    assert not allowed([*others, acl("orders", WRITE, PREFIXED, principal="User:bob")], READ, allow_if_none=True)
    assert not allowed([acl("*", principal="User:bob")], READ, allow_if_none=True)


def test_a_super_user_is_denied_nothing() -> None:
    authorizer = Authorizer([acl("*", ALL, permission=DENY, principal="User:*")], {ALICE})
    assert authorizer.operations(ALICE, HOST, TOPIC, "orders-1") >> READ & 1
    assert not authorizer.operations("User:bob", HOST, TOPIC, "orders-1") >> READ & 1
    assert authorizer.may_with_any(ALICE, HOST, WRITE, TOPIC)


@pytest.mark.parametrize(
    ("acls", "may_write"),
    [
        ([], False),
        ([acl("a", WRITE)], True),
        ([acl("a", ALL, PREFIXED)], True),
        ([acl("a", READ)], False),
        ([acl("a", WRITE, kind=GROUP)], False),
        ([acl("a", WRITE), acl("a", WRITE, permission=DENY)], False),
        ([acl("a", WRITE, PREFIXED), acl("a", WRITE, permission=DENY)], True),
        ([acl("abc", WRITE), acl("ab", WRITE, PREFIXED, DENY)], False),
        ([acl("a", WRITE), acl("*", WRITE, permission=DENY)], False),
        ([acl("*", WRITE), acl("a", WRITE, PREFIXED, DENY)], True),
        ([acl("*", WRITE, permission=DENY, host="10.0.0.9"), acl("a", WRITE)], True),
    ],
)
def test_who_may_write_to_some_topic(acls: list[Acl], may_write: bool) -> None:
    assert Authorizer(acls, ()).may_with_any(ALICE, HOST, WRITE, TOPIC) is may_write


def plainly(acls: list[Acl], principal: str, host: str, kind: ResourceType, name: str, operation: Operation) -> bool:
    """Returns what Kafka's documentation says, one ACL after the other."""
    about = [
        one
        for one in acls
        if one.resource_type == kind
        and ((name.startswith(one.resource_name)) if one.pattern_type is PREFIXED else one.resource_name in (name, "*"))
    ]
    own = [one for one in about if one.principal in (principal, "User:*") and one.host in (host, "*")]
    if any(one.permission_type is DENY and one.operation in (operation, ALL) for one in own):
        return False
    implied = {
        DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    enough = {operation, ALL} | implied.get(operation, set())
    return any(one.permission_type is ALLOW and one.operation in enough for one in own)


def random_acl(chance: random.Random) -> Acl:
    return acl(
        chance.choice(["a", "ab", "abc", "abd", "b", "*", "bcd"]),
        chance.choice([one for one in Operation if one > Operation.ANY]),
        chance.choice([LITERAL, PREFIXED]),
        chance.choice([ALLOW, ALLOW, DENY]),
        chance.choice([ALICE, "User:bob", "User:*", "Group:alice"]),
        chance.choice(["*", HOST, "10.0.0.2"]),
        chance.choice([TOPIC, GROUP]),
    )


def differs(seed: int) -> str:
    """Returns where random ACLs allow something else than by a plain reading; nothing if nowhere."""
    chance = random.Random(seed)
    acls = [random_acl(chance) for _ in range(chance.randint(0, 30))]
    authorizer = Authorizer(acls, ())
    for _ in range(300):
        who, host = chance.choice([ALICE, "User:bob", "User:carol"]), chance.choice([HOST, "10.0.0.2", "10.0.0.3"])
        kind, name = chance.choice([TOPIC, GROUP]), chance.choice(["a", "ab", "abc", "abcd", "b", "c", "*"])
        operation = chance.choice([one for one in Operation if one > ALL])
        found = bool(authorizer.operations(who, host, kind, name) >> operation & 1)
        if found != plainly(acls, who, host, kind, name, operation):
            return f"{(who, host, kind, name, operation)}: {found} by {acls}"
    return ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_random_acls_allow_what_a_plain_reading_allows(seed: int) -> None:
    assert differs(seed) == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", ACL_FAULTS, ids=lambda one: one.old)
def test_the_plain_reading_sees_planted_faults(fault: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fault, monkeypatch)
    assert any(map(differs, range(20)))


def test_a_thousand_acls_cost_as_much_as_ten() -> None:
    def cost(count: int) -> float:
        acls = [acl(f"topic-{number:05}", READ, PREFIXED if number % 2 else LITERAL) for number in range(count)]
        authorizer = Authorizer(acls, ())
        times = []
        for turn in range(5):
            begun = time.thread_time()
            for number in range(500):
                authorizer.operations(ALICE, HOST, TOPIC, f"topic-{number:05}-{turn}")
            times.append(time.thread_time() - begun)
        return min(times)

    assert cost(1000) < 5 * cost(10)


@pytest.mark.slow
def test_what_is_remembered_is_bounded() -> None:
    authorizer = Authorizer([acl("a", pattern=PREFIXED)], ())
    for number in range(25_000):
        authorizer.operations(ALICE, HOST, TOPIC, f"a{number}")
        authorizer.may_with_any(f"User:{number}", HOST, READ, TOPIC)
    authorizer.operations(ALICE, HOST, GROUP, "x" * 1000)
    assert len(authorizer._found) <= 10_000 >= len(authorizer._found_any)
    assert max(len(name) for *_, name in authorizer._found) < 1000


# -- filters


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        (PatternType.ANY, None, {"l:a", "l:ab", "l:*", "p:a", "p:b"}),
        (PatternType.ANY, "a", {"l:a", "p:a"}),
        (LITERAL, "a", {"l:a"}),
        (LITERAL, "*", {"l:*"}),
        (PREFIXED, "a", {"p:a"}),
        (PREFIXED, None, {"p:a", "p:b"}),
        (PatternType.MATCH, "ab", {"l:ab", "l:*", "p:a"}),
        (PatternType.MATCH, None, {"l:a", "l:ab", "l:*", "p:a", "p:b"}),
        (PatternType.UNKNOWN, None, set()),
    ],
)
def test_a_filter_matches_by_its_pattern(pattern: PatternType, name: str | None, matched: set[str]) -> None:
    acls = {f"l:{one}": acl(one) for one in ("a", "ab", "*")} | {f"p:{one}": acl(one, pattern=PREFIXED) for one in "ab"}
    wanted = AclFilter(TOPIC, name, pattern, None, None, Operation.ANY, PermissionType.ANY)
    assert {key for key, one in acls.items() if wanted.matches(one)} == matched


def test_a_filter_matches_by_all_that_it_says() -> None:
    one = acl("a", host=HOST)
    every = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, PermissionType.ANY)
    assert every.matches(one)
    others: dict[str, Any] = {
        "resource_type": GROUP,
        "principal": "User:bob",
        "host": "*",
        "operation": WRITE,
        "permission_type": DENY,
    }
    for field, value in others.items():
        assert not every._replace(**{field: value}).matches(one), field
        assert every._replace(**{field: getattr(one, field)}).matches(one), field


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("resource_name", "", "Invalid empty resource name"),
        ("resource_type", ResourceType.ANY, "Invalid resourceType ANY"),
        ("resource_type", CLUSTER, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ("pattern_type", PatternType.MATCH, "Invalid patternType MATCH"),
        ("operation", Operation.UNKNOWN, "Invalid operation UNKNOWN"),
        ("permission_type", PermissionType.ANY, "Invalid permissionType ANY"),
        ("principal", "alice", "Could not parse principal from `alice`"),
    ],
)
def test_what_is_no_acl_is_refused_in_kafkas_words(field: str, value: Any, reason: str) -> None:
    assert acl("a").why_invalid() is None
    assert (acl("a")._replace(**{field: value}).why_invalid() or "").startswith(reason)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_an_index_finds_what_each_filter_matches(seed: int) -> None:
    chance = random.Random(seed)
    acls = list(dict.fromkeys(random_acl(chance) for _ in range(40)))
    index = AclIndex(acls)
    for _ in range(300):
        wanted = AclFilter(
            chance.choice([ResourceType.ANY, TOPIC, GROUP]),
            chance.choice([None, "a", "abc", "*", "x"]),
            chance.choice(list(PatternType)),
            chance.choice([None, None, ALICE, "User:*"]),
            chance.choice([None, None, HOST, "*"]),
            chance.choice([Operation.ANY, READ, ALL]),
            chance.choice([PermissionType.ANY, ALLOW]),
        )
        found = index.matching(wanted)
        assert len(found) == len(set(found))
        assert set(found) == {one for one in acls if wanted.matches(one)}, wanted


@pytest.mark.parametrize("code", [0, 1, 2, 7])
def test_a_pattern_of_an_unknown_type_is_a_prefix_as_in_kafka(code: int) -> None:
    everybody = [acl("*"), Acl(*of_codes(2, "orders-", code, ALICE, "*", int(READ), int(DENY)))]
    assert not allowed(everybody, READ)
    assert allowed(everybody, READ, "bills")
    # So there is an ACL about it.
    assert not allowed(everybody[1:], WRITE, allow_if_none=True)


def test_a_filter_that_is_repeated_looks_at_the_acls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, matches = [0], AclFilter.matches

    def counted(self: AclFilter, one: Acl) -> bool:
        looks[0] += 1
        return matches(self, one)

    monkeypatch.setattr(AclFilter, "matches", counted)
    index = AclIndex([acl(f"t{number}") for number in range(100)])
    wanted = AclFilter(TOPIC, None, PatternType.ANY, ALICE, "*", WRITE, PermissionType.ANY)
    assert [index.matching(wanted) for _ in range(100)] == [[]] * 100
    assert looks == [100]


def test_whether_somebody_may_do_something_with_any_resource_needs_no_look_at_the_acls_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, rights = [0], authorizer._rights

    def counted(*given: Any) -> Any:
        looks[0] += 1
        return rights(*given)

    monkeypatch.setattr(authorizer, "_rights", counted)
    acls = [acl(f"t{number}", principal="User:bob") for number in range(1000)]
    acls += [acl("a"), acl("a", permission=DENY, principal="User:*"), acl("b", pattern=PREFIXED)]
    made = Authorizer(acls, ())
    assert made.may_with_any(ALICE, HOST, READ, TOPIC)
    assert not made.may_with_any(ALICE, HOST, WRITE, TOPIC)
    assert looks[0] < 20
