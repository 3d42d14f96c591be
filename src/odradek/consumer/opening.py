"""Opens a consumer of a log directory or of a broker: `odradek.consume`.

    with odradek.consume("data", "events", group="file:///var/lib/job/offsets.json") as consumer:
        for topic, partition, record in consumer:
            ...
    odradek.consume("kafka://localhost:9092", "events", group="job")

Source in Kafka: `ConsumerConfig`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Literal

from odradek.arguments import checked_flag, checked_int, checked_topics, given_text, is_broker, today
from odradek.consumer.consumed_topics import ConsumedTopics, FolderTopics
from odradek.consumer.consumer import Consumer
from odradek.consumer.partition_reader import RESET_WORDS, ConvertedPolicy, ResetPolicy
from odradek.consumer.subscription import SubscriptionPattern
from odradek.errors import OptionError
from odradek.offsets.store import OffsetStore, is_store_address, open_store
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import bound_ms
from odradek.storage.names import invalid_topic_name_reason

DEFAULT_AUTO_COMMIT_INTERVAL_MS = 5_000
DEFAULT_METADATA_MAX_AGE_MS = 5_000

Protocol = Literal["consumer"]
Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern


def consume(
    path: str | os.PathLike[str],
    topics: Topics,
    *,
    group: str | OffsetStore | None = None,
    auto_commit: bool = True,
    auto_commit_interval_ms: int = DEFAULT_AUTO_COMMIT_INTERVAL_MS,
    auto_offset_reset: ResetPolicy | None = None,
    isolation: Isolation = "read_uncommitted",
    follow: bool = True,
    metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
    protocol: Protocol | None = None,
    group_instance_id: str | None = None,
) -> Consumer:
    """Read topics of a log directory or of a broker, as a group that keeps its place in an offset store.

    Args:
        path: The log directory, to which a broker or a program may be writing; or a broker,
            `kafka://[user:password@]host:port[,host:port][?setting=value]`.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them, as for `scan`.
        group: The address of an offset store (`open_store`), or an open store, which stays open; None keeps no place.
            The name of a group means that of the folder or the broker, which keeps its offsets.
        auto_commit: Whether records that are done are committed at an interval and on close.
        auto_commit_interval_ms: That interval.
        auto_offset_reset: Where to start in a partition without a valid position: `earliest`, `latest`, the first
            record at a time (`odradek.Time`), or `none`, an error. With a group the default is `latest`, as in Kafka;
            without one it must be given, because no position is stored.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        follow: Whether iteration waits for more records at the end; if not, it stops there.
        metadata_max_age_ms: How often new topics and partitions are looked for. New partitions are read from their
            start.
        protocol: `consumer` shares the partitions among all consumers of the group, which is one of the broker's
            (KIP-848): each reads those that the broker assigns it, and takes over from others that end. If None, a
            group has one consumer, which reads all. With it, topics may be a `SubscriptionPattern`.
        group_instance_id: With `protocol="consumer"`: a name that no other consumer of the group has, for a static
            member. It keeps its partitions while it is away, until its session ends; as Kafka's `group.instance.id`.

    Raises:
        LogError: There is no such folder, or it cannot be read.
        BrokerUnavailableError: The broker cannot be reached in time.
        UnknownTopicOrPartitionError: A topic given by name does not exist.
        OffsetStoreError: The store cannot be reached.
        NoOffsetForPartitionError: A partition has no valid position, and the policy is `none`.
        OptionError: No topic is named; nothing says where to start; the policy, the isolation level or a time is
            invalid; or an interval is negative.
        TypeError: A topic, the group or an interval is of no type that is taken.
    """
    check_isolation(isolation)
    checked_flag("auto_commit", auto_commit)
    checked_flag("follow", follow)
    commit_interval_ms = checked_int("auto_commit_interval_ms", auto_commit_interval_ms, 0)
    max_age_ms = checked_int("metadata_max_age_ms", metadata_max_age_ms, 0)
    pattern = topics if isinstance(topics, SubscriptionPattern) else None
    names = [] if isinstance(topics, SubscriptionPattern) else _checked_names(topics)
    is_shared = _is_shared(protocol, path, group)
    _check_for_members(pattern, group_instance_id, is_shared=is_shared)
    reset = _reset_policy(auto_offset_reset, has_group=group is not None)
    opened = _opened(path, isolation)
    store: OffsetStore | None = None
    try:
        membership = None
        if is_shared and isinstance(group, str):
            membership = opened.membership(group, names, pattern, group_instance_id)
        store = membership or (_store_of(opened, group) if isinstance(group, str) else group)
        return Consumer(
            opened,
            names,
            store,
            auto_commit_interval_ms=commit_interval_ms if auto_commit and store is not None else None,
            auto_offset_reset=reset,
            follow=follow,
            metadata_max_age_ms=max_age_ms,
            close_store=isinstance(group, str),
            membership=membership,
        )
    except BaseException:
        opened.close()
        if store is not None and isinstance(group, str):
            store.close()
        raise


def _checked_names(topics: str | Iterable[str] | re.Pattern[str]) -> list[str | re.Pattern[str]]:
    names = checked_topics(topics)
    if not names:
        raise OptionError("consume: topics is empty: name a topic, several, or a pattern")
    return names


def _is_shared(protocol: str | None, path: str | os.PathLike[str], group: object) -> bool:
    """Check a group and its protocol; return whether the group is shared."""
    if not isinstance(group, str | OffsetStore | None):
        raise TypeError(f"group must be the address of an offset store, or an OffsetStore, not {given_text(group)}")
    if protocol is None:
        return False
    if protocol != "consumer":
        raise OptionError(f"protocol must be 'consumer', or None, not {protocol!r}")
    if not isinstance(group, str) or _is_address(group) or not is_broker(path):
        raise OptionError("protocol='consumer' is for a broker, kafka://host:port, and the name of a group there")
    _check_named(group)
    return True


def _check_for_members(pattern: SubscriptionPattern | None, instance_id: str | None, *, is_shared: bool) -> None:
    """Check what only a member of a group that is shared may say of itself."""
    if pattern is not None and not isinstance(pattern.pattern, str):
        raise TypeError(f"a SubscriptionPattern has a str, not {given_text(pattern.pattern)}")
    if instance_id is not None and not isinstance(instance_id, str):
        raise TypeError(f"group_instance_id must be a str, not {given_text(instance_id)}")
    if (pattern is not None or instance_id is not None) and not is_shared:
        what = "a SubscriptionPattern" if pattern is not None else "group_instance_id"
        raise OptionError(f"{what} is for protocol='consumer'")
    if pattern is not None and not pattern.pattern:
        raise OptionError("the SubscriptionPattern is empty: it would match no topic")
    if pattern is not None and any("\ud800" <= one <= "\udfff" for one in pattern.pattern):
        raise OptionError(f"the SubscriptionPattern has half a surrogate pair: {given_text(pattern.pattern)}")
    # Kafka's clients have the same rule as for names of topics.
    reason = None if instance_id is None else invalid_topic_name_reason(instance_id)
    if reason is not None:
        raise OptionError(f"group_instance_id {instance_id!r} must have the form of a topic's name: {reason}")


def _opened(path: str | os.PathLike[str], isolation: Isolation) -> ConsumedTopics:
    if not isinstance(path, str | os.PathLike) or not is_broker(path):
        return FolderTopics(path, isolation)
    try:
        from odradek.consumer.broker_topics import BrokerTopics
    except ImportError as error:
        raise OptionError(f"kafka:// needs the extra odradek[kafka] ({error})") from error
    return BrokerTopics(os.fspath(path), isolation)


def _store_of(opened: ConsumedTopics, group: str) -> OffsetStore:
    _check_named(group)
    return open_store(group) if _is_address(group) else opened.store(group)


def _check_named(group: str) -> None:
    if not group:
        raise OptionError("group is empty: name a group, or give None to keep no place")


def _is_address(group: str) -> bool:
    # A misspelt address is no group's name.
    return is_store_address(group) or "://" in group


def _reset_policy(reset: ResetPolicy | None, *, has_group: bool) -> ConvertedPolicy:
    if reset is None:
        if not has_group:
            raise OptionError(
                "consume: nothing says where to start: give auto_offset_reset='earliest' for all that is there, "
                "'latest' for what comes from now on, or a time; or a group, which keeps its place"
            )
        return "latest"
    for word in RESET_WORDS:
        if reset == word:
            return word
    try:
        return bound_ms(reset)
    except (OptionError, TypeError) as error:
        raise OptionError(
            f"auto_offset_reset must be earliest, latest, none or a time, not {reset!r}{today(reset) or f': {error}'}"
        ) from error
