"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546).

Each entity changes, or has an error; all changes are one batch of the metadata, and apply at once. v1 is flexible.

Source in Kafka: `ControllerApis.handleAlterClientQuotas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of, message_of
from odradek.broker.protocol import Message
from odradek.broker.quotas.changes import apply_change, change_quotas
from odradek.broker.turns import rest
from odradek.coordination.quotas.alterations import Alteration


def _answer(entity: Mapping[str, str | None], code: int, text: str | None) -> Message:
    names = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"error_code": code, "error_message": text, "entity": names}


def _failed(request: Request, code: int, text: str) -> Message:
    asked = [{one.entity_type: one.entity_name for one in entry.entity} for entry in request.body.entries]
    return {"entries": [_answer(entity, code, text) for entity in asked]}


@api(49, "AlterClientQuotas", range(2), failed=_failed)
async def alter_client_quotas(request: Request) -> Message:
    """Change quotas."""
    broker, alterations = request.broker, []
    for number, entry in enumerate(request.body.entries):
        await rest(number)
        # As in Kafka, the last name of a type counts.
        names = {one.entity_type: one.entity_name for one in entry.entity}
        alterations.append(Alteration(names, [(op.key, None if op.remove else op.value) for op in entry.ops]))
    validate_only = request.body.validate_only
    change = await broker.topics.change(partial(change_quotas, broker.logs, alterations, validate_only=validate_only))
    await broker.turns.finish(apply_change(broker.quotas, broker.logs, change))
    answers = []
    for number, (entity, error) in enumerate(change.errors):
        await rest(number)
        told = (NO_ERROR, None) if error is None else (code_of(error), message_of(error))
        answers.append(_answer(entity, *told))
    return {"entries": answers}
