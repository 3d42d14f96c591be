"""A log directory: the folder that Kafka's `log.dirs` names, with a folder for each partition.

    data/  meta.properties                     the cluster and node that it belongs to; may be missing
           log-start-offset-checkpoint         and the other checkpoints
           orders-0/  orders-1/  __consumer_offsets-0/ ...
           orders-2.<32 hex>-delete/           not listed: deleted, stray or being moved

It can be read whatever program wrote it, and whether that is running, was closed or crashed. Nothing is written.

Source in Kafka: `LogManager`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from odradek.arguments import checked_path, checked_text
from odradek.closing import Closing
from odradek.errors import FormatError, LogError, UnknownTopicOrPartitionError
from odradek.html_table import html_or_reason, html_table
from odradek.storage.config_def import MAX_INT32
from odradek.storage.directory.deeper import refuse_deeper
from odradek.storage.directory.gaps import may_have_gaps
from odradek.storage.directory.listing import Listing, segments_bytes
from odradek.storage.directory.problems import directory_problems
from odradek.storage.directory.topic import Topic
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.log.refused import Refused
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import (
    TopicPartition,
    checked_topic_partition,
    invalid_topic_name_reason,
    parse_partition_directory,
)
from odradek.storage.open_state import OpenState
from odradek.storage.regular_files import subfolders
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.system_errors import raise_unless_of_system, unreadable
from odradek.storage.topic_config import TopicConfig
from odradek.storage.uncopied import Uncopied

if TYPE_CHECKING:
    from odradek.storage.log.log import Log
    from odradek.storage.log.read_only_log import ReadOnlyLog

_MEASURED = 1000
"""How many partitions are measured to show a log directory."""
_DRAWN = 10


class LogDirectory(Uncopied, Closing):
    """A log directory, open for reading; a context manager. A log is opened when it is first used.

    Args:
        path: The folder.
        mode: Only `r`: nothing is written.

    Attributes:
        path: The folder.

    Raises:
        LogError: There is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str], mode: str = "r") -> None:
        self.path = checked_path("path", path)
        if mode != "r":
            raise LogError(f"a LogDirectory only reads (mode 'r', not {mode!r}); odradek.open also writes")
        self.mode = mode
        self._problems: list[FormatError] | None = None
        self._opened = OpenSegments()
        self._checkpoints = RootCheckpoints(self.path)
        self._state = OpenState(self.path)
        self._logs: dict[TopicPartition, ReadOnlyLog] = {}
        self._listing = Listing()
        self._look()
        refuse_deeper(self.path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}, mode {self.mode!r}{', closed' if self._state.is_closed else ''}>"

    def _repr_html_(self) -> str:
        return html_or_reason(repr(self), self._html)

    def _html(self) -> str:
        if self._state.is_closed:
            return html_table(repr(self), (), ())
        # Few programs draw.
        from odradek.plots import largest_bars

        listed = self._listed()
        if len(listed) > _MEASURED:
            rows = ((topic, len(listed.of(topic))) for topic in listed.topics)
            return html_table(repr(self), ("topic", "partitions"), rows)
        sizes = dict.fromkeys(listed.topics, 0)
        for held in self.sizes_bytes().values():
            for name, size_bytes in held.items():
                sizes[name.topic] = sizes.get(name.topic, 0) + size_bytes
        plot = largest_bars("The largest topics", sizes, "{:,} bytes".format, _DRAWN)
        table = [(topic, len(listed.of(topic)), size) for topic, size in sizes.items()]
        return f"{plot or ''}{html_table(repr(self), ('topic', 'partitions', 'size_bytes'), table)}"

    def sizes_bytes(self) -> dict[Path, dict[TopicPartition, int]]:
        """Return how many bytes of records each partition has, by the folder of `log.dirs` that it is in.

        A partition that is deleted meanwhile, or whose files cannot be read, is left out.
        """
        self._state.check_open()
        sizes: dict[TopicPartition, int] = {}
        for name in self._listed():
            with suppress(OSError):
                sizes[name] = segments_bytes(self.path / str(name))
        return {self.path: sizes}

    def refresh(self) -> None:
        """Look at the folder again; logs are opened again when they are next used.

        Raises:
            LogError: The folder was deleted.
        """
        self._state.check_open()
        self._problems = None
        self._look()

    def _look(self) -> None:
        try:
            folders = subfolders(self.path)
        except OSError as error:
            raise_unless_of_system(error)
            raise LogError(f"{self.path} cannot be read as a log directory: {error.strerror}") from error
        named = (parse_partition_directory(name) for name in folders)
        found = [name.topic_partition for name in named if name is not None and not name.suffix]
        self._listing = Listing.of_partitions(found)
        for log in self._logs.values():
            log.release()
        self._logs = {}

    @property
    def problems(self) -> list[FormatError]:
        """What is wrong with the files of the root and with the metadata. None of it keeps the logs from being read.

        All of them are checked the first time this is read, and again after a `refresh`, so the list is complete. In a
        large cluster's directory this may take some seconds.
        """
        self._state.check_open()
        if self._problems is None:
            self._problems = directory_problems(self.path)
        return list(self._problems)

    @property
    def meta_properties(self) -> MetaProperties | None:
        """The cluster, node and directory id; `None` if `meta.properties` is missing.

        Raises:
            FormatError: The file is not what Kafka writes.
        """
        self._state.check_open()
        return MetaProperties.read(self.path / META_PROPERTIES)

    def topics(self) -> list[str]:
        """Return the names of the topics, sorted."""
        self._state.check_open()
        return self._listed().topics

    def topic(self, name: str) -> Topic:
        """Return a topic, with all of its partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        return Topic(self, name)

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic; if the folder has no metadata, as before KRaft, Kafka's defaults.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            FormatError: The metadata are damaged.
        """
        self.topic_partitions(checked_text("topic", topic))
        try:
            image = load_metadata(self.path).image
        except OSError as error:
            raise unreadable(error, self.path) from error
        return TopicConfig.load(image.topic_config(topic), image.broker_config())

    def _listed(self) -> Listing:
        return self._listing

    def topic_partitions(self, topic: str | None = None) -> list[TopicPartition]:
        """Return the partitions of one topic, or of all, sorted.

        Raises:
            UnknownTopicOrPartitionError: The directory holds no partition of that topic.
        """
        self._state.check_open()
        if topic is None:
            return list(self._listed())
        checked_text("topic", topic)
        found = self._listed().of(topic)
        if not found:
            raise UnknownTopicOrPartitionError(topic, path=self.path)
        return list(found)

    def __contains__(self, key: object) -> bool:
        self._state.check_open()
        if isinstance(key, str):
            return bool(self._listed().of(key))
        try:
            return self._named(key) in self._listed()
        except (TypeError, UnknownTopicOrPartitionError):
            return False

    def __len__(self) -> int:
        self._state.check_open()
        return len(self._listed())

    def __iter__(self) -> Iterator[Log]:
        for topic_partition in self.topic_partitions():
            yield self[topic_partition]

    def __getitem__(self, key: tuple[str, int]) -> Log:
        self._state.check_open()
        topic_partition = self._named(key)
        log = self._logs.get(topic_partition)
        if log is None:
            # As in `WritableLogDirectory`, what logs are made of is imported with the first one.
            from odradek.storage.log.read_only_log import ReadOnlyLog

            log = ReadOnlyLog(
                self.path / str(topic_partition),
                checkpoints=self._checkpoints,
                opened=self._opened,
                may_have_gaps=lambda: may_have_gaps(self.path, topic_partition),
            )
            self._logs[topic_partition] = log
        return log

    def _named(self, key: object) -> TopicPartition:
        topic_partition = checked_topic_partition(key)
        topic, number = topic_partition
        # The topic becomes part of a folder's name.
        is_valid = invalid_topic_name_reason(topic) is None and 0 <= number <= MAX_INT32
        if not is_valid and topic_partition not in self._listed():
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.path)
        return topic_partition

    def close(self) -> None:
        """Close all files. Records that were handed out stay valid; nothing more can be read."""
        self._state.is_closed = True
        for log in self._logs.values():
            log.close()
        self._logs = {}

    def __enter__(self) -> Self:
        self._state.check_open()
        return self

    if not TYPE_CHECKING:  # a type checker reports such calls by itself
        alter_topic_config = Refused()
        create_partitions = Refused()
        create_topic = Refused()
        create_topics = Refused()
        delete_topic = Refused()
        flush = Refused()
        maintain = Refused()
        take_producer_ids = Refused()
