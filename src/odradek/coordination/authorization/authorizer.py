"""What a principal may do with a resource, by the access control lists that there are.

    denied by an ACL                             no, whatever another one allows
    allowed by an ACL                            yes; who may READ, WRITE, DELETE or ALTER may DESCRIBE, who may
                                                 ALTER_CONFIGS may DESCRIBE_CONFIGS
    other ACLs are about the resource            no
    no ACL is about the resource                 `allow.everyone.if.no.acl.found`
    the principal is one of `super.users`        yes, without a look at the ACLs

All operations with a resource are looked up at once, as bits: a dictionary has the literal names, and another one the
beginnings of names, of which those are looked up that are as long as one that there is.

Source in Kafka: `StandardAuthorizerData`, `Authorizer.authorizeByResourceType`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from odradek.coordination.authorization.acls import (
    EVERYBODY,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)

EVERY_OPERATION = (1 << len(Operation)) - 1
_MOST_REMEMBERED = 10_000
_LONGEST_REMEMBERED = 256
_IMPLIED = {
    Operation.ALL: EVERY_OPERATION,
    Operation.READ: 1 << Operation.DESCRIBE,
    Operation.WRITE: 1 << Operation.DESCRIBE,
    Operation.DELETE: 1 << Operation.DESCRIBE,
    Operation.ALTER: 1 << Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}
_HARD_CODED = "hardcode"
"""The name of a resource that Kafka asks for, to find out who may do everything with all resources of a type."""


class _Rights(NamedTuple):
    """Operations as bits: the implied ones are in `allowed`, and not in `named`."""

    allowed: int = 0
    denied: int = 0
    named: int = 0

    def with_acl(self, acl: Acl) -> _Rights:
        own = EVERY_OPERATION if acl.operation is Operation.ALL else 1 << acl.operation
        if acl.permission_type is PermissionType.ALLOW:
            implied = _IMPLIED.get(acl.operation, 0)
            return _Rights(self.allowed | own | implied, self.denied, self.named | own)
        return self._replace(denied=self.denied | own)

    def __or__(self, other: _Rights) -> _Rights:
        return _Rights(self.allowed | other.allowed, self.denied | other.denied, self.named | other.named)


_NONE = _Rights()
_ByPrincipal: TypeAlias = dict[str, dict[str, _Rights]]
"""The rights by the principal, and by the host."""


def _rights(acls: _ByPrincipal, principal: str, host: str) -> _Rights:
    found = _NONE
    for whom in (principal, EVERYBODY):
        hosts = acls.get(whom)
        if hosts is not None:
            found = found | hosts.get(host, _NONE) | hosts.get(WILDCARD, _NONE)
    return found


class _Acls:
    """The access control lists about the resources of one type."""

    def __init__(self) -> None:
        self.by_pattern: dict[PatternType, dict[str, _ByPrincipal]] = {
            PatternType.LITERAL: {},
            PatternType.PREFIXED: {},
        }
        self._lengths: Counter[int] = Counter()
        self._of_principals: dict[str, dict[tuple[PatternType, str], None]] = {}

    def add(self, acl: Acl) -> None:
        # Kafka writes no other types, and reads them as PREFIXED: what denies must not be lost.
        pattern = PatternType.LITERAL if acl.pattern_type is PatternType.LITERAL else PatternType.PREFIXED
        names = self.by_pattern[pattern]
        if pattern is PatternType.PREFIXED and acl.resource_name not in names:
            self._lengths[len(acl.resource_name)] += 1
        self._of_principals.setdefault(acl.principal, {})[pattern, acl.resource_name] = None
        hosts = names.setdefault(acl.resource_name, {}).setdefault(acl.principal, {})
        hosts[acl.host] = hosts.get(acl.host, _NONE).with_acl(acl)

    def beginnings(self, name: str) -> Iterable[str]:
        """Return the beginnings of a name that are as long as one that there are ACLs for."""
        return (name[:length] for length in self._lengths if length <= len(name))

    def about(self, name: str) -> Iterable[_ByPrincipal]:
        """Return the ACLs about a resource."""
        literal, prefixed = self.by_pattern[PatternType.LITERAL], self.by_pattern[PatternType.PREFIXED]
        for one in {name, WILDCARD}:
            if one in literal:
                yield literal[one]
        for one in self.beginnings(name):
            if one in prefixed:
                yield prefixed[one]

    def may_with_any(self, principal: str, host: str, operation: int) -> bool:
        """Return whether there is a resource that a principal may do something with."""
        patterns = {pattern: (set[str](), set[str]()) for pattern in self.by_pattern}
        for whom in (principal, EVERYBODY):
            for pattern, name in self._of_principals.get(whom, ()):
                rights = _rights(self.by_pattern[pattern][name], principal, host)
                allowed, denied = patterns[pattern]
                if rights.named >> operation & 1:
                    allowed.add(name)
                if rights.denied >> operation & 1:
                    denied.add(name)
        literal, prefixed = patterns[PatternType.LITERAL], patterns[PatternType.PREFIXED]
        if WILDCARD in literal[1]:
            return False
        if WILDCARD in literal[0]:
            return True
        return any(
            not any(one in prefixed[1] for one in self.beginnings(name))
            for name in (literal[0] - literal[1]) | prefixed[0]
        )


class Authorizer:
    """Looks up what principals may do. One thread at a time.

    Args:
        acls: The access control lists.
        super_users: The principals that may do everything.
        allow_if_none: Whether everybody may do everything with a resource that no ACL is about.
    """

    def __init__(self, acls: Iterable[Acl], super_users: Collection[str], *, allow_if_none: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._default = EVERY_OPERATION if allow_if_none else 0
        self._acls: dict[int, _Acls] = {}
        for acl in acls:
            self._acls.setdefault(acl.resource_type, _Acls()).add(acl)
        self._found: dict[tuple[str, str, int, str], int] = {}
        self._found_any: dict[tuple[str, str, int, int], bool] = {}

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return the operations that a principal may do with a resource, as bits by their codes."""
        place = (principal, host, resource_type, name)
        found = self._found.get(place)
        if found is None:
            found = self._look_up(principal, host, resource_type, name)
            if len(name) <= _LONGEST_REMEMBERED:
                if len(self._found) >= _MOST_REMEMBERED:
                    self._found.clear()
                self._found[place] = found
        return found

    def _look_up(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return EVERY_OPERATION
        rights, is_named = _NONE, False
        acls = self._acls.get(resource_type)
        for one in () if acls is None else acls.about(name):
            is_named = True
            rights |= _rights(one, principal, host)
        return rights.allowed & ~rights.denied if is_named else self._default

    def may_with_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether a principal may do something with any resource of a type, whichever that is."""
        place = (principal, host, operation, resource_type)
        found = self._found_any.get(place)
        if found is None:
            found = bool(self.operations(principal, host, resource_type, _HARD_CODED) >> operation & 1)
            acls = self._acls.get(resource_type)
            if not found and acls is not None:
                found = acls.may_with_any(principal, host, operation)
            if len(self._found_any) >= _MOST_REMEMBERED:
                self._found_any.clear()
            self._found_any[place] = found
        return found
