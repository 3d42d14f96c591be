"""The offsets of share groups (KIP-932): where a group begins in a partition, which administrators see and change.

    alter      restarts the share state of partitions, in a group without members, which is created if need be
    delete     removes the share state of topics: deleting, then gone
    remove     removes all of it, before the group is deleted
    describe   how far a group is, and how many records are left to deliver

Source in Kafka: `GroupCoordinatorService` (`alterShareGroupOffsets`, `deleteShareGroupOffsets`, `deleteShareGroups`,
`describeShareGroupOffsets`), `GroupMetadataManager` (`sharePartitionsEligibleForOffsetDeletion`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.shares import Codes, Shares
from odradek.broker.shares import ShareSummary
from odradek.broker.turns import Work
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.share import ShareGroup, share_topics_record
from odradek.coordination.groups.share_heartbeat import ShareOutcome, ShareSteps
from odradek.coordination.groups.share_topics import ShareTopics, TopicState
from odradek.coordination.placement import TopicIdPartition

NO_OFFSETS = "There is no offset information to delete."


class TopicResult(NamedTuple):
    """What became of a topic.

    Attributes:
        topic_id: Its id; None if it is not known.
        error: What went wrong.
    """

    topic_id: UUID | None = None
    error: ApiError | None = None


class ShareOffsets:
    """The offsets of share groups. It belongs to the event loop's thread.

    Args:
        shares: The members of the groups, and what is written of the groups.
        now_ms: Returns the time of day.
    """

    def __init__(self, shares: Shares, now_ms: Callable[[], int]) -> None:
        self._shares = shares
        self._now_ms = now_ms

    def alter(self, group_id: str, offsets: Mapping[TopicIdPartition, tuple[str, int]]) -> Work[Codes]:
        """Work: let a group begin at offsets.

        Args:
            group_id: The group, which must be empty.
            offsets: The name of the topic and the offset, by partition; all partitions exist.

        Returns:
            The error codes.

        Raises:
            RefusedError: The group has members, or another protocol.
            ApiError: The change could not be written.
        """
        numbers: dict[UUID, set[int]] = {}
        names = {}
        for (topic_id, number), (name, _) in offsets.items():
            numbers.setdefault(topic_id, set()).add(number)
            names[topic_id] = name
            yield

        def steps() -> ShareSteps:
            group = self._shares.group(group_id, joins=True)
            group.check_delete()
            yield
            now_ms = self._now_ms()
            begun = {one: TopicState(names[one], frozenset(some), now_ms) for one, some in numbers.items()}
            topics = (group.topics or ShareTopics()).begun(begun)
            return ShareOutcome([share_topics_record(group_id, topics)] if begun else [], epoch=group.epoch)

        outcome = yield from self._shares.change(group_id, steps)
        starts = {partition: offset for partition, (_, offset) in offsets.items()}
        codes = yield from self._shares.initialize(group_id, outcome.epoch, starts)
        if offsets and not any(codes.values()):
            yield from self._shares.change_topics(group_id, lambda topics: topics.done(numbers))
        return codes

    def delete(self, group_id: str, names: Iterable[str]) -> Work[dict[str, TopicResult]]:
        """Work: remove the share state of topics; return what became of each.

        Raises:
            RefusedError: The group has members, or there is none.
            ApiError: The change could not be written.
        """
        found: dict[str, TopicResult] = {}
        going: dict[UUID, str] = {}
        partitions: list[TopicIdPartition] = []

        def steps() -> ShareSteps:
            found.clear()
            going.clear()
            partitions.clear()
            group = self._shares.group(group_id)
            group.check_delete()
            if group.topics is None:
                return ShareOutcome([])
            for name in names:
                found[name] = self._going(group.topics, name, partitions)
                topic_id = found[name].topic_id
                if topic_id is not None:
                    going[topic_id] = name
                yield
            return ShareOutcome(
                [share_topics_record(group_id, group.topics.going(going))], known_topics=group.known_topics
            )

        yield from self._shares.change(group_id, steps)
        codes = yield from self._delete_states(group_id, partitions)
        failed = {topic_id: code for (topic_id, _), code in codes.items() if code}
        for topic_id, code in failed.items():
            name = going.pop(topic_id)
            found[name] = TopicResult(topic_id, ApiError(ErrorCode(code)))
        if going:
            yield from self._shares.change_topics(group_id, lambda topics: topics.gone(going.keys()))
        return found

    def _going(self, topics: ShareTopics, name: str, partitions: list[TopicIdPartition]) -> TopicResult:
        topic = self._shares.topics().named(name)
        if topic is None:
            return TopicResult(error=ApiError(ErrorCode.unknown_topic_or_partition))
        topic_id = topic.topic_id
        if topic_id in topics.initialized:
            numbers: Iterable[int] = topics.initialized[topic_id].partitions
        elif topic_id in topics.deleting:
            numbers = range(topic.partition_count)
        else:
            return TopicResult(error=ApiError(ErrorCode.unknown_topic_or_partition, NO_OFFSETS))
        partitions.extend((topic_id, number) for number in numbers)
        return TopicResult(topic_id)

    def _delete_states(self, group_id: str, partitions: Iterable[TopicIdPartition]) -> Work[Codes]:
        async def delete(topic_id: UUID, number: int) -> None:
            await self._shares.share_state.delete(group_id, topic_id, number)

        return (yield from self._shares.for_each(partitions, delete))

    def remove(self, group: ShareGroup) -> Work[int]:
        """Work: remove all of the share state of a group that is about to be deleted; return an error code.

        Raises:
            RefusedError: The group has members, or there is none.
            ApiError: The change could not be written.
        """
        group_id = group.group_id
        partitions: list[TopicIdPartition] = []

        def steps() -> ShareSteps:
            partitions.clear()
            group = self._shares.group(group_id)
            group.check_delete()
            if group.topics is None:
                return ShareOutcome([])
            going: dict[UUID, str] = {}
            for topics in (group.topics.initialized, group.topics.initializing):
                for topic_id, known in topics.items():
                    going[topic_id] = known.name
                    partitions.extend((topic_id, number) for number in known.partitions)
                    yield
            for topic_id, name in group.topics.deleting.items():
                topic = self._shares.topics().identified(topic_id)
                if topic is not None:
                    going[topic_id] = name
                    partitions.extend((topic_id, number) for number in range(topic.partition_count))
            return ShareOutcome([share_topics_record(group_id, ShareTopics(deleting=going))])

        yield from self._shares.change(group_id, steps)
        codes = yield from self._delete_states(group_id, dict.fromkeys(partitions))
        return next(filter(None, codes.values()), NO_ERROR)

    def initialized(self, group_id: str) -> list[TopicIdPartition]:
        """Return the partitions of a group that are initialized."""
        try:
            topics = self._shares.group(group_id).topics
        except RefusedError:
            return []
        return (
            [] if topics is None else [(one, n) for one, known in topics.initialized.items() for n in known.partitions]
        )

    def summaries(
        self, group_id: str, partitions: Iterable[TopicIdPartition]
    ) -> Work[dict[TopicIdPartition, ShareSummary]]:
        """Work: return how far a group is in partitions; those that nothing is known of are left out."""
        found: dict[TopicIdPartition, ShareSummary] = {}

        async def read(topic_id: UUID, number: int) -> None:
            found[topic_id, number] = await self._shares.share_state.summary(group_id, topic_id, number)

        yield from self._shares.for_each(partitions, read)
        return found
