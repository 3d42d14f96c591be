"""DescribeClientQuotas: which quotas there are (KIP-546).

    match_type   0 a name    1 the default    2 any name, and the default

A filter matches entities that have at least its types; a strict one, those that have no others. v1 is flexible.

Source in Kafka: `ClientQuotasImage.describe`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.quotas.alterations import Filter


@api(
    48,
    "DescribeClientQuotas",
    range(2),
    failed=lambda _, code, text: {"error_code": code, "error_message": text, "entries": None},
)
def describe_client_quotas(request: Request) -> Work[Message]:
    """Answer which quotas there are."""
    body = request.body
    components = [(one.entity_type, one.match_type, one.match) for one in body.components]
    wanted = Filter(components, is_strict=body.strict)
    entries = []
    for entity, quotas in request.broker.logs.metadata_image.client_quotas.items():
        yield
        if wanted.matches(entity):
            entries.append(
                {
                    "entity": [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entity],
                    "values": [{"key": key, "value": value} for key, value in quotas.items()],
                }
            )
    return {"error_code": NO_ERROR, "error_message": "", "entries": entries}
