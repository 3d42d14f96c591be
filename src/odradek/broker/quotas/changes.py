"""Changes of quotas: checked and written to the metadata in a thread, applied on the event loop.

Source in Kafka: `ClientQuotaControlManager.alterClientQuotas`, `ClientQuotaMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.quotas.addresses import resolver
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.broker.turns import Work
from odradek.coordination.errors import QuotaErrorCode, RefusedError
from odradek.coordination.quotas.alterations import Alteration, altered, shown_entity
from odradek.coordination.quotas.limits import Entity
from odradek.errors import PolicyViolationError
from odradek.messages.metadata.metadata_records import ClientQuotaRecord, QuotaEntity
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.cluster import MAX_RECORDS_PER_USER_OP

_TOO_MANY = "Request parameters do not satisfy the configured policy."


class QuotaChange(NamedTuple):
    """What was changed.

    Attributes:
        errors: The types and names of each entity, and why it was not changed, or None.
        changed: The entities that have other quotas now.
        addresses: Those of the hosts that have quotas.
    """

    errors: Sequence[tuple[Mapping[str, str | None], RefusedError | None]]
    changed: Sequence[Entity]
    addresses: Mapping[str, str]


def change_quotas(
    logs: WritableLogDirectory, alterations: Sequence[Alteration], *, validate_only: bool = False
) -> QuotaChange:
    """Check changes of quotas, and write those that are valid, in a thread that may wait for the disk.

    Raises:
        ApiError: They are too many, and none is made.
        LogError: The disk failed.
    """
    present, resolve = logs.metadata_image.client_quotas, resolver()
    addresses: dict[str, str] = {}

    def is_address(name: str) -> bool:
        found = resolve(name)
        if found is not None:
            addresses[name] = found
        return found is not None

    errors: dict[Entity, tuple[Mapping[str, str | None], RefusedError | None]] = {}
    records: list[ClientQuotaRecord] = []
    changed: list[Entity] = []
    for alteration in alterations:
        names = alteration.entity
        entity = frozenset(QuotaEntity(*one) for one in names.items())
        if entity in errors:
            # As in Kafka, what was asked of it before is done.
            reason = f"Ignoring duplicate entity ClientQuotaEntity(entries={shown_entity(names)})"
            errors[entity] = names, RefusedError(QuotaErrorCode.INVALID_REQUEST, reason)
            continue
        try:
            made = altered(present.get(entity, {}), alteration, is_address)
        except RefusedError as error:
            errors[entity] = names, error
            continue
        errors[entity] = names, None
        records += made
        if made:
            changed.append(entity)
        if len(records) > MAX_RECORDS_PER_USER_OP:
            raise ApiError(ErrorCode.policy_violation, _TOO_MANY)
    if validate_only:
        return QuotaChange(list(errors.values()), [], {})
    try:
        logs.metadata.alter_client_quotas(records)
    except PolicyViolationError as error:
        raise ApiError(ErrorCode.policy_violation, _TOO_MANY) from error
    return QuotaChange(list(errors.values()), changed, addresses)


def apply_change(quotas: ClientQuotas, logs: WritableLogDirectory, change: QuotaChange) -> Work[None]:
    """Let the broker enforce changed quotas, on the event loop."""
    for entity in change.changed:
        # As they are by now: another request may have changed them again.
        quotas.set(entity, logs.metadata_image.client_quotas.get(entity, {}), change.addresses)
        yield
