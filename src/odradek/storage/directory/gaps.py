"""Whether a log may have gaps in its offsets, as far as its log directory says.

    cleaner-offset-checkpoint names the log         it was compacted
    cleanup.policy of its topic names compact       it may have been compacted
    no metadata, or damaged ones                    unknown

In every other log the offsets are consecutive, and a missing one is a loss.
"""

from __future__ import annotations

from pathlib import Path

from odradek.errors import OdradekError
from odradek.storage.formats.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import INTERNAL_TOPICS, TopicPartition
from odradek.storage.system_errors import raise_unless_of_system
from odradek.storage.topic_config import TopicConfig


def may_have_gaps(log_directory: Path, topic_partition: TopicPartition) -> bool:
    """Return whether offsets may be missing in a log without a loss.

    Args:
        log_directory: The log directory.
        topic_partition: The log.
    """
    topic = topic_partition.topic
    if topic in INTERNAL_TOPICS:
        return True
    try:
        if topic_partition in read_offset_checkpoint(log_directory / CLEANER_OFFSET_CHECKPOINT):
            return True
        image = load_metadata(log_directory).image
        if topic not in image.topics:
            return True
        return TopicConfig.load(image.topic_config(topic)).is_compacted
    except OdradekError:
        return True
    except OSError as error:
        raise_unless_of_system(error)
        return True
