"""The partitions' folders of a log directory: checked against its metadata, or used instead of missing metadata.

    orders-0/partition.metadata          the id of the topic: a folder with another id is not known
    orders-0/leader-epoch-checkpoint     the epoch, if there are no metadata

Source in Kafka: `LogManager.isStrayKraftReplica`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.errors import FormatError
from odradek.storage.formats.checkpoints import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.metadata.metadata_image import MetadataImage, PartitionImage, TopicImage
from odradek.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    TopicPartition,
    parse_partition_directory,
)
from odradek.storage.regular_files import subfolders


def partition_folders(directory: Path) -> list[tuple[Path, TopicPartition]]:
    """Return the partitions' folders of a log directory, without those of the metadata log and those with a suffix.

    Raises:
        OSError: The directory cannot be read.
    """
    try:
        names = subfolders(directory)
    except FileNotFoundError:
        return []
    parsed = [(directory / name, parse_partition_directory(name)) for name in names]
    return [
        (folder, name.topic_partition)
        for folder, name in parsed
        if name is not None and not name.suffix and name.topic_partition.topic != CLUSTER_METADATA_TOPIC
    ]


def unknown_partitions(directory: Path, image: MetadataImage) -> list[Path]:
    """Return the partitions' folders that the metadata do not have, by name or by their topic's id.

    Raises:
        FormatError: A `partition.metadata` is damaged.
    """
    return [folder for folder, name in partition_folders(directory) if not is_known(image, folder, name)]


def is_known(image: MetadataImage, folder: Path, name: TopicPartition) -> bool:
    """Whether the metadata have the partition of a folder, by name and by its topic's id.

    Raises:
        FormatError: Its `partition.metadata` is damaged.
    """
    topic = image.topics.get(name.topic)
    if topic is None or name.partition not in topic.partitions:
        return False
    # A crash may have come after the folder was made, and before the file.
    return read_partition_metadata(folder / PARTITION_METADATA) in {None, topic.topic_id}


def missing_bootstrap(directory: Path, meta: MetaProperties | None, paths: Sequence[Path]) -> FormatError | None:
    """Say that `bootstrap.checkpoint` is missing, if partitions are here that no metadata records, as KRaft's would.

    With default settings instead of their own, retention would delete records that are to be kept. ZooKeeper kept the
    settings itself, so a directory from that time never has them.

    Args:
        directory: The log directory, which has no metadata.
        meta: Its identity.
        paths: The log directories whose topics are to be recorded there, itself among them.
    """
    if meta is None or not meta.version:
        return None
    folders = [folder for path in paths for folder, _ in partition_folders(path)]
    if not folders:
        return None
    return FormatError(
        f"it is missing, and nothing else says which topics are here: there are {len(folders)} partitions, "
        f"{folders[0].name} among them, and their settings are not known. Kafka would set these folders aside as "
        "stray. Put the file back, or the metadata log; of several folders, name first the one that has it",
        path=directory / BOOTSTRAP_CHECKPOINT,
    )


def image_of_folders(directory: Path) -> MetadataImage:
    """Return metadata made up from the partitions' folder names, `partition.metadata` and leader epochs."""
    image = MetadataImage()
    for folder, (topic, partition) in partition_folders(directory):
        epochs = read_leader_epochs(folder / LEADER_EPOCH_CHECKPOINT)
        if topic not in image.topics:
            image.add_topic(TopicImage(topic, read_partition_metadata(folder / PARTITION_METADATA)))
        image.topics[topic].partitions[partition] = PartitionImage(leader_epoch=epochs[-1].epoch if epochs else 0)
    return image
