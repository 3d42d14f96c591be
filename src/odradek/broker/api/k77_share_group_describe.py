"""ShareGroupDescribe (KIP-932): the state of share groups, their members, and what those have.

v1 is the first version that Apache Kafka has not removed again.

Source in Kafka: `KafkaApis.handleShareGroupDescribe`, `ShareGroup.asDescribedGroup`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import assignment, described
from odradek.broker.protocol import Message
from odradek.broker.share_protocol import check_share_groups_enabled
from odradek.broker.turns import Work
from odradek.coordination.groups.modern import Target
from odradek.coordination.groups.share import ShareGroup, ShareMember
from odradek.storage.metadata.metadata_image import MetadataImage


@api(77, "ShareGroupDescribe", range(1, 2), group_ids=lambda request: request.body.group_ids)
def share_group_describe(request: Request) -> Work[Message]:
    """Describe groups."""
    check_share_groups_enabled(request.broker)
    return (yield from described(request, ShareGroup, lambda group: group.assignor, _member))


def _member(member: ShareMember, _: Target, image: MetadataImage) -> Message:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "assignment": assignment(member.assigned, image),
    }
