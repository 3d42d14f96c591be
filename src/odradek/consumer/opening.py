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

from odradek.arguments import checked_flag, checked_int, checked_topics, given_text
from odradek.consumer.consumed_topics import ConsumedTopics, FolderTopics
from odradek.consumer.consumer import Consumer
from odradek.consumer.partition_reader import RESET_WORDS, ConvertedPolicy, ResetPolicy
from odradek.errors import OptionError
from odradek.offsets.store import OffsetStore, is_store_address, open_store
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import bound_ms
from odradek.sources.source import is_broker

DEFAULT_AUTO_COMMIT_INTERVAL_MS = 5_000
DEFAULT_METADATA_MAX_AGE_MS = 5_000

Topics = str | Iterable[str] | re.Pattern[str]


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
) -> Consumer:
    """Read topics of a log directory or of a broker, as a group that keeps its place in an offset store.

    Args:
        path: The log directory, to which a broker or a program may be writing; or a broker,
            `kafka://[user:password@]host:port[,host:port][?setting=value]`.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them, as for `scan`.
        group: The address of an offset store (`open_store`), or an open store, which stays open; None keeps no place.
            For a broker also the name of a group, whose offsets that broker keeps.
        auto_commit: Whether records that are done are committed at an interval and on close.
        auto_commit_interval_ms: That interval.
        auto_offset_reset: Where to start in a partition without a valid position: `earliest`, `latest`, the first
            record at a time (`odradek.Time`), or `none`, an error. With a group the default is `latest`, as in Kafka;
            without one it must be given, because no position is stored.
        isolation: `read_committed` leaves out aborted and undecided transactions.
        follow: Whether iteration waits for more records at the end; if not, it stops there.
        metadata_max_age_ms: How often new topics and partitions are looked for. New partitions are read from their
            start.

    Raises:
        LogError: There is no such folder, or it cannot be read.
        BrokerUnavailableError: The broker cannot be reached in time.
        UnknownTopicOrPartitionError: A topic given by name does not exist.
        OffsetStoreError: The store cannot be reached.
        NoOffsetForPartitionError: A partition has no valid position, and the policy is `none`.
        OptionError: No topic is named.
        OptionError: Nothing says where to start; the policy, the isolation level or a time is invalid; or an interval
            is negative.
        TypeError: A topic, the group or an interval is of no type that is taken.
    """
    check_isolation(isolation)
    checked_flag("auto_commit", auto_commit)
    checked_flag("follow", follow)
    commit_interval_ms = checked_int("auto_commit_interval_ms", auto_commit_interval_ms, 0)
    max_age_ms = checked_int("metadata_max_age_ms", metadata_max_age_ms, 0)
    names = checked_topics(topics)
    if not names:
        raise OptionError("consume: topics is empty: name a topic, several, or a pattern")
    if not isinstance(group, str | OffsetStore | None):
        raise TypeError(f"group must be the address of an offset store, or an OffsetStore, not {given_text(group)}")
    reset = _reset_policy(auto_offset_reset, has_group=group is not None)
    opened = _opened(path, isolation)
    store = None
    try:
        store = _store_of(opened, group) if isinstance(group, str) else group
        return Consumer(
            opened,
            names,
            store,
            auto_commit_interval_ms=commit_interval_ms if auto_commit and store is not None else None,
            auto_offset_reset=reset,
            follow=follow,
            metadata_max_age_ms=max_age_ms,
            close_store=isinstance(group, str),
        )
    except BaseException:
        opened.close()
        if store is not None and isinstance(group, str):
            store.close()
        raise


def _opened(path: str | os.PathLike[str], isolation: Isolation) -> ConsumedTopics:
    if not isinstance(path, str | os.PathLike) or not is_broker(path):
        return FolderTopics(path, isolation)
    try:
        from odradek.consumer.broker_topics import BrokerTopics
    except ImportError as error:
        raise OptionError(f"kafka:// needs the extra odradek[kafka] ({error})") from error
    return BrokerTopics(os.fspath(path), isolation)


def _store_of(opened: ConsumedTopics, group: str) -> OffsetStore:
    own = None if is_store_address(group) else opened.store(group)
    return open_store(group) if own is None else own


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
            f"auto_offset_reset must be earliest, latest, none or a time, not {reset!r}: {error}"
        ) from error
