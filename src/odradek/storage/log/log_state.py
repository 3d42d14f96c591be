"""Whether a log is open, was closed, or belongs to a topic that was deleted."""

from __future__ import annotations

from pathlib import Path

from odradek.errors import UnknownTopicOrPartitionError
from odradek.storage.names import TopicPartition
from odradek.storage.open_state import OpenState


class LogState(OpenState):
    """The state of one log. Any thread may read it.

    Args:
        path: The partition's folder.
        topic_partition: Whose log it is.

    Attributes:
        is_deleted: Whether the topic was deleted; the log is then closed as well.
    """

    def __init__(self, path: Path, topic_partition: TopicPartition) -> None:
        super().__init__(path)
        self.is_deleted = False
        self._topic_partition = topic_partition

    def check_open(self) -> None:
        """Raise if nothing can be read any more.

        Raises:
            UnknownTopicOrPartitionError: The topic was deleted.
            LogError: The log is closed.
        """
        if self.is_closed:
            if self.is_deleted:
                raise UnknownTopicOrPartitionError(*self._topic_partition, path=self.path.parent)
            super().check_open()
