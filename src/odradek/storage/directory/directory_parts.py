"""Opens the folders of `log.dirs` for writing: locks them, reads or makes their metadata, finds the partitions.

    Admission -> DirectoryState (lock, checkpoints) -> ClusterDirectories (metadata) -> PartitionFolders -> Listing

If one of the steps fails, the folders are as before, and their locks are released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.arguments import checked_text
from odradek.errors import LogError, UnknownTopicOrPartitionError
from odradek.storage.directory.adoption import Admission
from odradek.storage.directory.cluster_directories import ClusterDirectories
from odradek.storage.directory.directory_state import Checkpoint, DirectoryState
from odradek.storage.directory.listing import Listing, segments_bytes
from odradek.storage.directory.partition_folders import PartitionFolders
from odradek.storage.files import FileSystem
from odradek.storage.log.recovery_report import RecoveryReport
from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.log.writable_log import WritableLog


class DirectoryParts:
    """What a log directory that is open for writing consists of. To change it, hold the DIRECTORY lock.

    Args:
        paths: The folders; the first holds the metadata.
        config: Settings of the broker.
        adopt: As for `WritableLogDirectory`.
        files: The file system to write through.
        clock: Returns the time in ms.
        undo: Receives what takes back the opening.

    Attributes:
        config: As given.
        files: As given.
        clock: As given.
        report: What recovery did.
        states: The locks and checkpoints of each folder.
        cluster: The metadata.
        folders: The partitions' folders.
        open_logs: The logs that are open.
        listing: The topics and partitions.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        config: Mapping[str, str],
        *,
        adopt: bool,
        strict: bool,
        files: FileSystem,
        clock: Callable[[], int],
        undo: ExitStack,
    ) -> None:
        self.config = config
        self.files = files
        self.clock = clock
        self.report = RecoveryReport(is_strict=strict)
        self.open_logs: dict[TopicPartition, WritableLog] = {}
        self.listing = Listing()
        self.states: list[DirectoryState] = []
        admission = Admission(paths, adopt=adopt, files=files)
        undo.callback(admission.remove_folders)
        for path in paths:
            state = DirectoryState(path, files)
            self.states.append(state)
            undo.callback(state.close, is_clean=state.is_clean)
            undo.callback(admission.remove_files, path)
        clean = [state.path for state in self.states if state.is_clean]
        self.cluster = ClusterDirectories(paths, files, adopt=adopt, clean=clean, report=self.report)
        self.folders = PartitionFolders(self.states, self.cluster, self.report, files)

    def find(self) -> None:
        """Look at the folders, and list what is in them."""
        self.folders.find()
        self.list_again()

    def list_again(self) -> None:
        """List the topics and partitions as they are in the metadata now."""
        topics, places = self.cluster.image.topics, self.folders.places
        going: dict[str, list[TopicPartition]] = {}
        for name in self.listing.without(topics):
            # What is being deleted exists until its folder is removed.
            kept = [place for place in self.listing.of(name) if place in places]
            if kept:
                going[name] = kept
        self.listing = Listing(topics, going)

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        checked_text("topic", topic)
        if not self.listing.of(topic):
            raise UnknownTopicOrPartitionError(topic, path=self.states[0].path)
        return self.cluster.topic_config(topic, self.config)

    def checkpoint(self, kind: Checkpoint, state: DirectoryState) -> None:
        """Write a checkpoint of one folder."""
        state.checkpoint(kind, {place: self.open_logs.get(place) for place in self.folders.within(state)})

    def places(self) -> dict[Path, set[TopicPartition]]:
        """Return which partitions are in each folder of `log.dirs`."""
        places: dict[Path, set[TopicPartition]] = {state.path: set() for state in self.states}
        for topic_partition, state in list(self.folders.places.items()):
            places[state.path].add(topic_partition)
        return places

    def sizes_bytes(self) -> dict[Path, dict[TopicPartition, int]]:
        """Return how many bytes of records each partition has, by the folder of `log.dirs` that it is in.

        A partition that is deleted meanwhile, or whose files cannot be read, is left out.
        """
        sizes: dict[Path, dict[TopicPartition, int]] = {}
        for path, held in self.places().items():
            sizes[path] = {}
            for place in sorted(held):
                with suppress(OSError, LogError):
                    sizes[path][place] = self._size_bytes(path, place)
        return sizes

    def _size_bytes(self, path: Path, place: TopicPartition) -> int:
        log = self.open_logs.get(place)
        if log is not None and not log.is_closed:
            return log.size_bytes
        return segments_bytes(path / str(place))
