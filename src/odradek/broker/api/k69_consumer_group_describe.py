"""ConsumerGroupDescribe (KIP-848): the state of consumer groups, their members, what those have and are to get.

v1 (KIP-1099) adds whether a member uses the classic protocol.

Source in Kafka: `KafkaApis.handleConsumerGroupDescribe`, `ConsumerGroup.asDescribedGroup`.
"""

from __future__ import annotations

from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import assignment, described
from odradek.broker.consumer_protocol import check_enabled
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.modern import Target
from odradek.coordination.groups.reconciliation import ConsumerMember
from odradek.storage.metadata.metadata_image import MetadataImage

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@api(69, "ConsumerGroupDescribe", range(2), group_ids=lambda request: request.body.group_ids)
def consumer_group_describe(request: Request) -> Work[Message]:
    """Describe groups."""
    check_enabled(request.broker)
    default = request.broker.config["group.consumer.assignors"][0]
    return (yield from described(request, ConsumerGroup, lambda group: group.assignor(default), _member))


def _member(member: ConsumerMember, target: Target, image: MetadataImage) -> Message:
    held: dict[UUID, list[int]] = {}
    # Until it has given up partitions, it has them.
    for partitions in (member.assigned, member.revoked):
        for topic_id, numbers in partitions.items():
            held.setdefault(topic_id, []).extend(numbers)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": assignment(held, image),
        "target_assignment": assignment(target, image),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }
