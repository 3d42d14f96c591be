"""Whether a log may have gaps in its offsets, as far as its log directory says.

    cleaner-offset-checkpoint names the log         it was compacted
    cleanup.policy of its topic names compact       it may have been compacted; log.cleanup.policy is the default
    no metadata about it                            it was not, if there is a checkpoint that can be believed

In every other log the offsets are consecutive, and a missing one is a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.errors import InvalidConfigError, OdradekError
from odradek.storage.formats.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import CLUSTER_METADATA_TOPIC, COMPACTED_INTERNAL_TOPICS, TopicPartition
from odradek.storage.system_errors import raise_unless_of_system
from odradek.storage.topic_config import TopicConfig


def may_have_gaps(log_directory: Path, topic_partition: TopicPartition) -> bool:
    """Return whether offsets may be missing in a log without a loss.

    Args:
        log_directory: The log directory.
        topic_partition: The log.
    """
    try:
        path = log_directory / CLEANER_OFFSET_CHECKPOINT
        cleaned = read_offset_checkpoint(path) if path.is_file() else None
        # Topics that are recorded nowhere have the settings that a topic has by default.
        image = load_metadata(log_directory).image
    except OdradekError:
        return True
    except OSError as error:
        raise_unless_of_system(error)
        return True
    return allows_gaps(log_directory, topic_partition, cleaned, image)


def allows_gaps(
    log_directory: Path,
    topic_partition: TopicPartition,
    cleaned: Mapping[TopicPartition, int] | None,
    image: MetadataImage | None,
) -> bool:
    """Return whether offsets may be missing in a log without a loss, by what is known of its log directory.

    Args:
        log_directory: The log directory.
        topic_partition: The log.
        cleaned: What `cleaner-offset-checkpoint` holds; None if it is missing or damaged.
        image: The recorded topics; None if there is no record of them, or it cannot be read.
    """
    topic = topic_partition.topic
    if topic == CLUSTER_METADATA_TOPIC:
        return False
    if topic in COMPACTED_INTERNAL_TOPICS or (cleaned is not None and topic_partition in cleaned):
        return True
    if image is not None and topic in image.topics:
        try:
            return TopicConfig.load(image.topic_config(topic), image.broker_config()).is_compacted
        except InvalidConfigError:
            return True
    # If the checkpoint names partitions that do not exist, it may be wrong about others too.
    return cleaned is None or not all((log_directory / str(other)).exists() for other in cleaned)
