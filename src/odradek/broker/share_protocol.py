"""Whether share groups (KIP-932) are on: by the feature.

Source in Kafka: `KafkaApis.isShareGroupProtocolEnabled`, `KafkaApis.isMemberIdValid`, `ShareVersion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

SHARE_VERSION = "share.version"
_LONGEST_MEMBER_ID = 36


def check_share_groups_enabled(broker: Broker) -> None:
    """Check whether there may be share groups.

    Raises:
        ApiError: They are off.
    """
    if broker.logs.metadata_image.features.get(SHARE_VERSION, 0) < 1:
        raise ApiError(ErrorCode.unsupported_version)


def check_share_member_id(member_id: str | None) -> None:
    """Check the id of a member: it is a UUID as text, or shorter.

    Raises:
        ApiError: It is missing or too long.
    """
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise ApiError(ErrorCode.invalid_request, "Invalid member id in the request.")
