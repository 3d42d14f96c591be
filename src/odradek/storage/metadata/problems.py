"""What is wrong with the metadata of a log directory, even while another program writes there.

    __cluster_metadata-0/   the log and all of its snapshots; quorum-state, partition.metadata, leader-epoch-checkpoint
    bootstrap.checkpoint    also if it does not count any more: Kafka reads it whenever it starts
    orders-0/               the folders of partitions that the metadata have

Nothing is raised for what is damaged, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from odradek.errors import FormatError
from odradek.messages.uuids import METADATA_TOPIC_ID
from odradek.storage.formats.metadata_snapshot import read_snapshot
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.formats.quorum_state import QUORUM_STATE, read_quorum_state
from odradek.storage.metadata.folders import is_known, partition_folders
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, LoadedMetadata, load_bootstrap, load_metadata
from odradek.storage.names import BOOTSTRAP_CHECKPOINT, CHECKPOINT_SUFFIX, TopicPartition
from odradek.storage.system_errors import raise_unless_of_system

_LOOKS = 3


def problem_of(path: Path, read: Callable[[Path], object]) -> FormatError | None:
    """Read a file and return what is wrong with it; a missing file is not wrong."""
    try:
        read(path)
    except FormatError as error:
        return error.at(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise_unless_of_system(error)
        return FormatError(f"it cannot be read: {error.strerror}", path=path)
    return None


class MetadataProblems:
    """What is wrong with the metadata of a log directory; it is found when this object is made.

    Args:
        directory: The log directory.

    Attributes:
        found: What is wrong with its files.
        strays: A problem that says which partitions' folders the metadata do not have, if there are any.
        loaded: The metadata, if they could be read.
        is_recorded: Whether there are metadata, damaged or not.
        here: The partitions that have a folder here and that the metadata have.
    """

    def __init__(self, directory: Path) -> None:
        self.found: list[FormatError] = []
        self.strays: FormatError | None = None
        self.loaded: LoadedMetadata | None = None
        self.here: list[TopicPartition] = []
        self._directory = directory
        folder = directory / METADATA_DIRECTORY
        bootstrap = directory / BOOTSTRAP_CHECKPOINT
        self.is_recorded = _is_there(folder) or _is_there(bootstrap)
        if not self.is_recorded:
            # Kafka with ZooKeeper wrote this.
            return
        self._read_log()
        seen = {problem.path for problem in self.found}
        for path, read in (
            (bootstrap, load_bootstrap),
            *((path, read_snapshot) for path in sorted(folder.glob(f"*{CHECKPOINT_SUFFIX}"))),
            (folder / QUORUM_STATE, read_quorum_state),
            (folder / PARTITION_METADATA, _check_metadata_topic),
        ):
            problem = problem_of(path, read)
            if problem is not None and problem.path not in seen:
                self.found.append(problem)
        if self.loaded is not None:
            self._compare_folders(self.loaded)

    def _read_log(self) -> None:
        """Read the log, several times if it seems damaged: another program may be writing to it."""
        before = None
        for _ in range(_LOOKS):
            self.loaded = None
            problem = problem_of(self._directory, self._load)
            if problem is None or str(problem) == before:
                break
            before = str(problem)
        if problem is not None:
            self.found.append(problem)

    def _load(self, directory: Path) -> None:
        try:
            loaded = load_metadata(directory)
        except FileNotFoundError as error:
            # A segment or a snapshot was deleted while the log was read.
            raise FormatError("it is gone", path=error.filename) from error
        self.loaded = loaded
        if loaded.tail is not None and loaded.tail.damage is not None:
            raise loaded.tail.damage

    def _compare_folders(self, loaded: LoadedMetadata) -> None:
        if not loaded.is_recorded:
            return
        unknown = []
        for folder, name in partition_folders(self._directory):
            problem = problem_of(folder / PARTITION_METADATA, read_partition_metadata)
            if problem is not None:
                self.found.append(problem)
            elif is_known(loaded.image, folder, name):
                self.here.append(name)
            else:
                unknown.append(folder)
        # If the log ends too early, that is the cause.
        if unknown and (loaded.tail is None or loaded.tail.damage is None):
            self.strays = FormatError(
                f"it knows nothing of {len(unknown)} partitions that are here, {unknown[0].name} among them: Kafka "
                "would set them aside",
                path=self._directory / BOOTSTRAP_CHECKPOINT if loaded.tail is None else loaded.tail.path,
            )


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _check_metadata_topic(path: Path) -> None:
    topic_id = read_partition_metadata(path)
    if topic_id not in {None, METADATA_TOPIC_ID}:
        raise FormatError(f"topic id {topic_id} is not that of the metadata log", path=path)
