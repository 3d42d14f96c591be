"""An access control list: who may, or may not, do what with which resources, from where.

    TOPIC  PREFIXED "orders-"   User:alice  from *         READ   ALLOW
    GROUP  LITERAL  "*"         User:*      from 10.0.0.7  ALL    DENY

Kafka calls one such entry an ACL. `*` as a literal name is every name, as a host every host; `User:*` is everybody.

Source in Kafka: `AclBinding`, `AclBindingFilter`, `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`,
`AclControlManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar
from uuid import UUID

from odradek.messages.metadata.metadata_records import AccessControlEntryRecord

WILDCARD = "*"
EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """What an ACL is about."""

    # That of `Enum` takes several times as long, and each request needs it.
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Which names an ACL is about, or which ones a filter matches."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What somebody does with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_Code = TypeVar("_Code", ResourceType, PatternType, Operation, PermissionType)
_Name = TypeVar("_Name", str, str | None)


def _known(kind: type[_Code], code: int) -> _Code:
    """Return a code as Kafka reads it: one of a later version is UNKNOWN."""
    return kind(code) if 0 <= code < len(kind) else kind(0)


def of_codes(
    resource_type: int,
    resource_name: _Name,
    pattern_type: int,
    principal: _Name,
    host: _Name,
    operation: int,
    permission_type: int,
) -> tuple[ResourceType, _Name, PatternType, _Name, _Name, Operation, PermissionType]:
    """Return the fields of an `Acl` or an `AclFilter`, whose types and operation are given by Kafka's codes."""
    return (
        _known(ResourceType, resource_type),
        resource_name,
        _known(PatternType, pattern_type),
        principal,
        host,
        _known(Operation, operation),
        _known(PermissionType, permission_type),
    )


class Acl(NamedTuple):
    """An access control list.

    Attributes:
        resource_type: See `ResourceType`.
        resource_name: The name, or the beginning of names.
        pattern_type: LITERAL or PREFIXED.
        principal: Whom it is about: `User:alice`.
        host: From which address, or `*`.
        operation: See `Operation`.
        permission_type: ALLOW or DENY.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission_type: PermissionType

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        """Return the ACL of a record."""
        return cls(*of_codes(*record[1:]))

    def to_record(self, acl_id: UUID) -> AccessControlEntryRecord:
        """Return the record that creates the ACL."""
        kind, name, pattern, principal, host, operation, permission = self
        return AccessControlEntryRecord(
            acl_id, int(kind), name, int(pattern), principal, host, int(operation), int(permission)
        )

    def why_invalid(self) -> str | None:
        """Return why there can be no such ACL, in Kafka's words and order; None if there can."""
        if self.resource_type is ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        if not self.resource_name:
            return "Invalid empty resource name"
        if self.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
            return f"Invalid resourceType {self.resource_type.name}"
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return f"Invalid patternType {self.pattern_type.name}"
        if self.operation in (Operation.UNKNOWN, Operation.ANY):
            return f"Invalid operation {self.operation.name}"
        if self.permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
            return f"Invalid permissionType {self.permission_type.name}"
        if ":" not in self.principal:
            return (
                f"Could not parse principal from `{self.principal}` (no colon is present separating the principal type "
                "from the principal name)"
            )
        return None


class AclFilter(NamedTuple):
    """Which ACLs a client means; None and ANY match everything.

    With the pattern type MATCH these are the ACLs that a resource of the name is subject to.
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission_type: PermissionType

    def why_invalid(self) -> str | None:
        """Return why Kafka refuses to delete by the filter; None if it does not."""
        if ResourceType.UNKNOWN in (self.resource_type, self.pattern_type):
            return "Unknown patternFilter."
        if Operation.UNKNOWN in (self.operation, self.permission_type):
            return "Unknown entryFilter."
        return None

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL is meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)


class AclIndex:
    """Finds the access control lists that filters match, without a look at each of them for each filter.

    Args:
        acls: The access control lists.
    """

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._all = list(acls)
        self._found: dict[AclFilter, list[Acl]] = {}
        self._by_name: dict[str, list[Acl]] = {}
        self._by_principal: dict[str, list[Acl]] = {}
        self._by_host: dict[str, list[Acl]] = {}
        for acl in self._all:
            self._by_name.setdefault(acl.resource_name, []).append(acl)
            self._by_principal.setdefault(acl.principal, []).append(acl)
            self._by_host.setdefault(acl.host, []).append(acl)
        self._lengths = {len(name) for name in self._by_name}

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Return what a filter matches."""
        # There are few filters that many access control lists are candidates for, but each may come many times.
        if wanted not in self._found:
            self._found[wanted] = list(filter(wanted.matches, self._candidates(wanted)))
        return self._found[wanted]

    def _candidates(self, wanted: AclFilter) -> Sequence[Acl]:
        name = wanted.resource_name
        lists: list[list[Acl]] = []
        if name is not None and wanted.pattern_type is PatternType.MATCH:
            names = {WILDCARD, *(name[:length] for length in self._lengths if length <= len(name))}
            lists.append([acl for one in names for acl in self._by_name.get(one, ())])
        elif name is not None:
            lists.append(self._by_name.get(name, []))
        if wanted.principal is not None:
            lists.append(self._by_principal.get(wanted.principal, []))
        if wanted.host is not None:
            lists.append(self._by_host.get(wanted.host, []))
        return min(lists, key=len, default=self._all)
