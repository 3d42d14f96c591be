"""What clients may change of quotas, and how they are told of them.

    entity   types and names               {user: alice, client-id: None}     None is the default
    ops      a value for a key, or none    producer_byte_rate = 1000000       removed

Of one request, entities that are valid change, and others do not. As in Kafka, an entity that is named twice has an
error, but what was first asked for is done.

Source in Kafka: `ClientQuotaControlManager`, `ClientQuotasImage` (KIP-546).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fmod, isfinite
from typing import NamedTuple

from odradek.coordination.errors import QuotaErrorCode, RefusedError
from odradek.coordination.quotas.limits import CLIENT_ID, IP, USER, Entity
from odradek.messages.metadata.metadata_records import ClientQuotaRecord, QuotaEntity

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_INT, _LONG = ("an INT", float((1 << 31) - 1)), ("a LONG", float(1 << 63))
_CLIENT_KEYS: Mapping[str, tuple[str, float] | None] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Mapping[str, tuple[str, float] | None] = {CONNECTION_CREATION_RATE: _INT}
"""The keys, with the type and the largest value of those that are whole numbers."""

_NEARLY_WHOLE = 1e-6
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
"""How an entity's name is matched."""


def _invalid(reason: str) -> RefusedError:
    return RefusedError(QuotaErrorCode.INVALID_REQUEST, reason)


class Alteration(NamedTuple):
    """What a client asks for.

    Attributes:
        entity: The types and names.
        ops: The keys, each with its value, or None to remove it.
    """

    entity: Mapping[str, str | None]
    ops: Sequence[tuple[str, float | None]]


def check_entity(entity: Mapping[str, str | None], is_address: Callable[[str], bool]) -> None:
    """Check whom a quota is to be for.

    Args:
        entity: The types and names.
        is_address: Whether a name is that of a host, or an address.

    Raises:
        RefusedError: Kafka has no such quotas.
    """
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in entity:
        name = entity[IP]
        if len(entity) > 1:
            raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        if name is not None and not is_address(name):
            raise _invalid(f"{name} is not a valid IP or resolvable host.")


def check_value(entity: Mapping[str, str | None], key: str, value: float) -> None:
    """Check a quota. A folder may have one that is no number, of an older Kafka; none is set.

    Raises:
        RefusedError: The key or the value is not valid for such an entity.
    """
    keys = _IP_KEYS if IP in entity else _CLIENT_KEYS
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    whole = keys[key]
    if whole is None:
        return
    kind, most = whole
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if abs(fmod(value, 1)) > _NEARLY_WHOLE:
        raise _invalid(f"{key} cannot be a fractional value.")


def altered(
    present: Mapping[str, float], alteration: Alteration, is_address: Callable[[str], bool]
) -> list[ClientQuotaRecord]:
    """Return the records of what a client asks for.

    Args:
        present: The quotas of the entity.
        alteration: What it asks for.
        is_address: Whether a name is that of a host, or an address.

    Raises:
        RefusedError: It is not valid; nothing of it is done.
    """
    if len(dict(alteration.ops)) < len(alteration.ops):
        shown = f"ClientQuotaEntity(entries={shown_entity(alteration.entity)})"
        raise _invalid(f"Ignoring duplicate entity {shown}")
    check_entity(alteration.entity, is_address)
    entity = tuple(QuotaEntity(*one) for one in alteration.entity.items())
    records = []
    for key, value in alteration.ops:
        if value is None:
            if key in present:
                records.append(ClientQuotaRecord(entity, key, remove=True))
            continue
        check_value(alteration.entity, key, value)
        if present.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, value))
    return records


def shown_entity(entity: Mapping[str, str | None]) -> str:
    """Return an entity as Kafka's messages show it."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items()) + "}"


class Filter:
    """Which quotas a client wants to see.

    Args:
        components: Of each type how it is matched, and the name.
        is_strict: Whether entities of further types are left out.

    Raises:
        RefusedError: The filter makes no sense, or there is no such type.
    """

    def __init__(self, components: Sequence[tuple[str, int, str | None]], *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._names: dict[str, str | None] = {}
        self._types: set[str] = set()
        for kind, match_type, match in components:
            if not kind:
                raise _invalid("Invalid empty entity type.")
            if kind in self._names or kind in self._types:
                raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in (USER, CLIENT_ID, IP):
                raise RefusedError(QuotaErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
            self._add(kind, match_type, match)
        kinds = {*self._names, *self._types}
        if IP in kinds and len(kinds) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def _add(self, kind: str, match_type: int, match: str | None) -> None:
        if match_type == _EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._names[kind] = match
        elif match_type not in (_DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {match_type}")
        elif match is not None:
            name = "DEFAULT" if match_type == _DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        elif match_type == _DEFAULT:
            self._names[kind] = None
        else:
            self._types.add(kind)

    def matches(self, entity: Entity) -> bool:
        """Whether quotas of an entity are to be seen."""
        if self._is_strict and len(entity) != len(self._names) + len(self._types):
            return False
        names = dict(entity)
        return self._types <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )
