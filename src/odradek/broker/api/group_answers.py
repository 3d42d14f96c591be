"""What the APIs of consumer groups (KIP-848) and of share groups (KIP-932) have in common.

Source in Kafka: `GroupCoordinatorService` (`throwIfEmptyString`), `ConsumerGroup.asDescribedGroup`,
`ShareGroup.asDescribedGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.groups.consumers import TopicFilter
from odradek.broker.operations import NOT_ASKED
from odradek.broker.protocol import Message
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.modern import Target
from odradek.coordination.groups.reconciliation import ConsumerMember
from odradek.coordination.groups.share import ShareGroup, ShareMember
from odradek.errors import BrokerError
from odradek.storage.metadata.metadata_image import MetadataImage

_Group = TypeVar("_Group", ConsumerGroup, ShareGroup)

_UP_TO_SPACE = "".join(map(chr, range(ord(" ") + 1)))

_NO_EPOCH = 0
"""In answers that are errors, as in Apache Kafka."""


def trim(text: str) -> str:
    """Return a text as Java's `String.trim` does: without the characters up to U+0020 at both ends, and no others."""
    return text.strip(_UP_TO_SPACE)


def check_text(text: str | None, name: str) -> None:
    """Check a text of a request, which may be missing.

    Raises:
        ApiError: It is empty.
    """
    if text is not None and not trim(text):
        raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")


def subscribed_names(names: Iterable[str] | None) -> Work[frozenset[str] | None]:
    """Work: return the topics that a member names; None if it does not say.

    Raises:
        ApiError: A name cannot be stored.
    """
    if names is None:
        return None
    for name in names:
        check_storable(name)
        yield
    return frozenset(names)


def heartbeat_answer(member: ConsumerMember | ShareMember, interval_ms: int, *, shows_assignment: bool) -> Message:
    """Return the answer to a heartbeat of a member, with what it has if that is to be told."""
    assigned = [{"topic_id": topic, "partitions": sorted(numbers)} for topic, numbers in member.assigned.items()]
    return {
        "error_code": NO_ERROR,
        "member_id": member.member_id,
        "member_epoch": member.member_epoch,
        "heartbeat_interval_ms": interval_ms,
        "assignment": {"topic_partitions": assigned} if shows_assignment else None,
    }


def heartbeat_refused(request: Request, code: int, text: str) -> Message:
    """Return the answer to a heartbeat that is refused."""
    return {"error_code": code, "error_message": text, "member_epoch": _NO_EPOCH}


def described(
    request: Request,
    kind: type[_Group],
    assignor: Callable[[_Group], str],
    member: Callable[[Any, Target, MetadataImage], Message],
) -> Work[Message]:
    """Work: return the answer that describes the groups of a request.

    Args:
        request: The request.
        kind: What the groups are.
        assignor: Returns the assignor of a group.
        member: Describes a member, which is to get a target.
    """
    groups = []
    for group_id in dict.fromkeys(request.body.group_ids):
        groups.append((yield from _described(request, group_id, kind, assignor, member)))
        yield
    return {"groups": groups}


def _described(
    request: Request,
    group_id: str,
    kind: type[_Group],
    assignor: Callable[[_Group], str],
    member: Callable[[Any, Target, MetadataImage], Message],
) -> Work[Message]:
    if not request.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _refused(group_id, int(ErrorCode.group_authorization_failed))
    if not group_id:
        return _refused(group_id, int(ErrorCode.invalid_group_id))
    try:
        group = request.broker.groups.shard(group_id).groups.get(group_id)
    except BrokerError as error:
        return _refused(group_id, code_of(error))
    if not isinstance(group, kind):
        text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {kind.kind} group."
        return _refused(group_id, int(ErrorCode.group_id_not_found), text)
    image = request.broker.logs.metadata_image
    # As they are now, though they may change between two turns.
    found = {
        "error_code": NO_ERROR,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": assignor(group),
        "authorized_operations": (
            request.operations(ResourceType.GROUP, group_id)
            if request.body.include_authorized_operations
            else NOT_ASKED
        ),
    }
    targets = dict(group.targets)
    members = []
    for one in list(group.members.values()):
        members.append(member(one, targets.get(one.member_id, {}), image))
        yield
    if request.broker.authorization is not None and not (yield from _may_see_topics(request, members)):
        text = "The group has described topic(s) that the client is not authorized to describe."
        return _refused(group_id, int(ErrorCode.topic_authorization_failed), text)
    return {**found, "members": members}


def _may_see_topics(request: Request, members: Iterable[Message]) -> Work[bool]:
    for member in members:
        for field in ("assignment", "target_assignment"):
            for topic in member.get(field, {}).get("topic_partitions", ()):
                yield
                if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic["topic_name"]):
                    return False
    return True


def check_subscription(request: Request, names: Iterable[str] | None) -> Work[None]:
    """Work: check that a client may know of all topics that it names.

    Raises:
        ApiError: It may not.
    """
    for name in names or ():
        request.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
        yield


def topic_filter(request: Request) -> TopicFilter | None:
    """Return which topics a client may know of, when a pattern of it is tried; None if it may know of all."""
    if request.broker.authorization is None:
        return None
    return partial(request.may, Operation.DESCRIBE, ResourceType.TOPIC, is_told=False)


def _refused(group_id: str, code: int, text: str | None = None) -> Message:
    return {
        "group_id": group_id,
        "error_code": code,
        "error_message": text,
        "group_epoch": _NO_EPOCH,
        "assignment_epoch": _NO_EPOCH,
    }


def assignment(partitions: Mapping[UUID, Iterable[int]], image: MetadataImage) -> Message:
    """Return partitions by topic, of the topics that exist."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic_id, numbers in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    }
