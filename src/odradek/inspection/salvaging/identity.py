"""The identity of a salvaged log directory (`meta.properties`), where that of its source is lost or of no use.

    metadata   meta.properties     the target gets
    there      there               both
    there      missing             a new one: node and directory as the metadata record them, another cluster id
    missing    there, or not       none; `odradek serve --adopt` makes the partitions topics

Without metadata Kafka would set all partitions aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from odradek.errors import OdradekError
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.salvaging.copies import copy_files
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.files import FileSystem
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.metadata.folders import is_known, missing_bootstrap, partition_folders
from odradek.storage.metadata.formatting import new_meta_properties
from odradek.storage.metadata.metadata_log import holds_topics, load_metadata

_RESERVED = 100
"""Directory ids below it say that a partition is in none that is known."""


def write_identity(source: Path, work: Path, files: FileSystem) -> tuple[list[Finding], MetaProperties | None]:
    """Give a salvaged log directory its identity, after all other files of its root.

    Returns:
        The findings for the file of the source, and the identity if it is a new one.
    """
    if not (source / META_PROPERTIES).exists():
        made = _recorded(work)
        if made is not None:
            made.write(work / META_PROPERTIES, files)
        return [], made
    try:
        meta = MetaProperties.read(source / META_PROPERTIES)
        is_of_use = holds_topics(work) or missing_bootstrap(work, meta, [work]) is None
    except (OdradekError, OSError):
        # The copy tells of the one, and whoever opens the target of the other.
        is_of_use = True
    return copy_files(source, work, {META_PROPERTIES: MetaProperties.read}, files) if is_of_use else [], None


def _recorded(work: Path) -> MetaProperties | None:
    """Return the identity that the metadata record; None if they do not."""
    try:
        topics = load_metadata(work).image.topics.values()
    except (OdradekError, OSError):
        return None
    places = Counter(
        (one.replicas[0], one.directories[0] if one.directories else ZERO_UUID)
        for topic in topics
        for one in topic.partitions.values()
        if one.replicas
    )
    if not places:
        return None
    (node_id, directory_id), _ = places.most_common(1)[0]
    made = new_meta_properties(node_id=node_id)
    return made if directory_id.int < _RESERVED else replace(made, directory_id=directory_id)


def set_aside(source: Path, work: Path) -> Iterator[Finding]:
    """Yield a finding for each partition that a broker would set aside instead of serving it."""
    try:
        loaded = load_metadata(work)
        if not loaded.is_recorded:
            return
        strays = [folder for folder, name in partition_folders(work) if not is_known(loaded.image, folder, name)]
    except (OdradekError, OSError):
        # Whoever opens the target is told.
        return
    for folder in strays:
        reason = (
            "the metadata do not have its topic, or with another id: brokers set the folder aside (-stray); salvage it "
            "alone, and serve that with --adopt"
        )
        yield Finding(source / folder.name, None, FindingKind.CONTRADICTION, reason)
