"""The topics as consumer groups see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from odradek.broker.groups.image_topics import TopicViews
from odradek.broker.running import BrokerThread
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_image import MetadataImage

_T = TypeVar("_T")


class BusyLogs:
    """A log directory in which another thread creates a topic right after the next read."""

    def __init__(self, logs: WritableLogDirectory) -> None:
        self._logs = logs
        self.created_next: str | None = None

    def _read(self, read: Callable[[], _T]) -> _T:
        found = read()
        name, self.created_next = self.created_next, None
        if name is not None:
            self._logs.create_topic(name)
        return found

    @property
    def metadata_image(self) -> MetadataImage:
        return self._read(lambda: self._logs.metadata_image)

    @property
    def metadata(self) -> BusyLogs:
        return self

    @property
    def offset(self) -> int:
        return self._read(lambda: self._logs.metadata.offset)


def test_topics_that_differ_have_other_versions_whenever_another_thread_creates_one(running: BrokerThread) -> None:
    logs = running.broker.logs
    busy = BusyLogs(logs)
    views = TopicViews(cast("WritableLogDirectory", busy))
    found = [views.now()]
    for name in ("one", "two"):
        logs.create_topic(f"before-{name}")
        busy.created_next = name
        found += [views.now(), views.now()]
    topics = {view.version: view.image.topics.keys() for view in found}
    assert list(topics) == sorted(topics)
    assert len(set(map(frozenset, topics.values()))) == len(topics) == len({id(view.image) for view in found})
    assert found[-1].created_version == found[-1].version
    logs.alter_topic_config("one", {"retention.ms": "1000"})
    assert views.now().version == found[-1].version
    logs.delete_topic("one")
    assert views.now().version > views.now().created_version == found[-1].version
