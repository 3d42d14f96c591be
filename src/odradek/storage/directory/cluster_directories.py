"""The folders of `log.dirs` as one cluster of one node: their identities, and the partitions in the metadata.

    log.dirs = a,b      a/meta.properties  b/meta.properties      one cluster.id and node.id, a directory.id each
                        a/bootstrap.checkpoint or a/__cluster_metadata-0      the topics, also those in b

A new folder is formatted as Kafka's format tool does it. If the caller asks for it, partitions' folders of unknown
origin then become topics. Nothing is written before all folders are known to belong together.

Source in Kafka: `MetaPropertiesEnsemble`, `Formatter`, `LogManager.isStrayKraftReplica`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from odradek.coordination.internal_topics import INTERNAL_TOPICS
from odradek.errors import BrokerError, ForeignDirectoryError, LogError, OptionError
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.directory.problems import start_offset_problems
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.log.recovery_report import RecoveryReport
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.folders import image_of_folders, is_known, missing_bootstrap
from odradek.storage.metadata.formatting import (
    DEFAULT_NODE_ID,
    format_log_directory,
    new_meta_properties,
    write_bootstrap,
)
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import holds_topics
from odradek.storage.names import (
    CLUSTER_METADATA_TOPIC,
    STRAY_DIRECTORY_SUFFIX,
    TopicPartition,
    parse_partition_directory,
)
from odradek.storage.regular_files import subfolders
from odradek.storage.system_errors import raise_unless_of_system, suppress_system_errors
from odradek.storage.topic_config import TopicConfig


class FoundPartition(NamedTuple):
    """A partition's folder.

    Attributes:
        path: The folder.
        topic_partition: The partition, by the folder's name.
        suffix: `-delete` and the like, or empty.
        is_stray: Whether the metadata does not have the partition.
    """

    path: Path
    topic_partition: TopicPartition
    suffix: str
    is_stray: bool


class ClusterDirectories:
    """The identities and the metadata of some log directories, which the caller has locked.

    Args:
        paths: The folders; the first holds the metadata.
        adopt: Whether partitions' folders without metadata become topics, if the first folder is new.
        clean: The folders that were closed in order.
        report: Receives what a crash left in the metadata log and was cut.
        files: The file system to write through.

    Attributes:
        metadata: The topics and settings.

    Raises:
        LogError: The folders belong to different clusters or nodes; one folder is given twice; the folder with the
            metadata is not the first; or the disk failed.
        FormatError: A file of the metadata is damaged, or missing although there are partitions.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        files: FileSystem = FILES,
        *,
        adopt: bool = False,
        clean: Collection[Path] = (),
        report: RecoveryReport | None = None,
    ) -> None:
        self._paths = list(paths)
        self._files = files
        try:
            self._open(adopt=adopt, clean=clean, report=report)
        except OSError as error:
            raise_unless_of_system(error)
            raise LogError(f"{error.filename or paths[0]} cannot be opened: {error.strerror or error}") from error

    def _open(self, *, adopt: bool, clean: Collection[Path], report: RecoveryReport | None) -> None:
        paths = self._paths
        found = [MetaProperties.read(path / META_PROPERTIES) for path in paths]
        self._check_identities(found)
        for path, meta in zip(paths, found, strict=True):
            problems = start_offset_problems(path, meta, is_clean=True) if path in clean else []
            if problems:
                raise problems[0]
        for path in paths[1:]:
            # Without the metadata, every topic's settings would be the defaults, and retention would delete records to
            # be kept.
            if holds_topics(path):
                raise LogError(
                    f"{path} holds the metadata of the topics: it has to be the first folder, not {paths[0]}"
                )
        orphans = [image_of_folders(path) for path in paths] if found[0] is None else []
        self._check_orphans(orphans, adopt=adopt)
        known = next((meta for meta in found if meta is not None), None)
        self._metas: list[MetaProperties] = []
        for path, present in zip(paths, found, strict=True):
            meta = present or self._new_identity(known)
            known = known or meta
            if present is None and meta.version:
                format_log_directory(path, meta, files=self._files)
            elif present is None:
                meta.write(path / META_PROPERTIES, self._files)
            self._metas.append(meta)
        self.metadata = ClusterMetadata(paths[0], is_clean=paths[0] in clean, report=report, files=self._files)
        if not self.metadata.is_recorded:
            self._complete(self._metas[0])
        with suppress_system_errors():
            # A full disk does not keep the directory from being opened.
            self.metadata.leave_to_election()
        for image in orphans:
            self._adopt(image)

    def _check_identities(self, metas: Sequence[MetaProperties | None]) -> None:
        """Check that the folders may belong together."""
        paths: dict[UUID, Path] = {}
        first: tuple[Path, MetaProperties] | None = None
        cluster: tuple[Path, str] | None = None
        for path, meta in zip(self._paths, metas, strict=True):
            if meta is None:
                continue
            first = first or (path, meta)
            if meta.cluster_id is not None:
                cluster = cluster or (path, meta.cluster_id)
                if meta.cluster_id != cluster[1]:
                    raise LogError(f"{path} belongs to another cluster than {cluster[0]}")
            if meta.node_id != first[1].node_id:
                raise LogError(f"{path} belongs to node {meta.node_id}, {first[0]} to node {first[1].node_id}")
            if meta.directory_id is not None and paths.setdefault(meta.directory_id, path) is not path:
                raise LogError(
                    f"{path} and {paths[meta.directory_id]} have one directory.id: one is a copy of the other"
                )

    def _check_orphans(self, orphans: Sequence[MetadataImage], *, adopt: bool) -> None:
        """Raise if new metadata would not have partitions that are in the folders, unless they are to be adopted."""
        for path, image in zip(self._paths, orphans, strict=False):
            if image.topics and not adopt:
                reason = (
                    f"holds topics, {min(image.topics)} among them ({len(image.topics)} in all), but "
                    f"{self._paths[0]}, which is to hold the metadata, is empty. With adopt=True (odradek serve "
                    "--adopt) it gets those topics"
                )
                raise ForeignDirectoryError(path, sorted(image.topics), reason)

    @staticmethod
    def _new_identity(known: MetaProperties | None) -> MetaProperties:
        if known is None:
            return new_meta_properties(node_id=DEFAULT_NODE_ID)
        made = new_meta_properties(node_id=known.node_id, cluster_id=known.cluster_id)
        return made if known.version else replace(made, version=0, directory_id=None, cluster_id=known.cluster_id)

    def _complete(self, meta: MetaProperties) -> None:
        """Go on without metadata: those of a folder without topics are made, those of an old Kafka are guessed."""
        missing = missing_bootstrap(self._paths[0], meta, self._paths)
        if missing is not None:
            raise missing
        if meta.version:
            write_bootstrap(self._paths[0], self._files)
            self.metadata.refresh()
        for path in self._paths[1:]:
            self._add_folders(image_of_folders(path))

    def _add_folders(self, image: MetadataImage) -> None:
        for name, topic in image.topics.items():
            if name in self.image.topics:
                self.image.topics[name].partitions.update(topic.partitions)
            else:
                self.image.add_topic(topic)

    def _adopt(self, image: MetadataImage) -> None:
        for name, topic in image.topics.items():
            total = max(topic.partitions) + 1
            try:
                if name not in self.image.topics:
                    internal = INTERNAL_TOPICS.get(name)
                    config = internal.config() if internal is not None else {}
                    self.metadata.create_topic(name, total, config, topic_id=topic.topic_id)
                elif total > len(self.image.topics[name].partitions):
                    self.metadata.create_partitions({name: total})
            except (BrokerError, OptionError):
                # Kafka would not accept such a topic; its folder stays stray.
                continue

    @property
    def identity(self) -> MetaProperties:
        """The `meta.properties` of the first folder."""
        return self._metas[0]

    @property
    def image(self) -> MetadataImage:
        """The current topics and settings."""
        return self.metadata.image

    def directory_ids(self, paths: Sequence[Path]) -> list[UUID]:
        """Return the ids of folders."""
        by_path = dict(zip(self._paths, self._metas, strict=True))
        return [by_path[path].directory_id or ZERO_UUID for path in paths]

    def topic_config(self, topic: str, broker_config: Mapping[str, str]) -> TopicConfig:
        """Return the settings of a topic.

        Args:
            topic: The topic.
            broker_config: Settings of the broker; those in the metadata override them.
        """
        return TopicConfig.load(self.image.topic_config(topic), self._broker_config(broker_config))

    def default_topic_config(self, broker_config: Mapping[str, str]) -> TopicConfig:
        """Return the settings of a topic that has none of its own; see `topic_config`."""
        return TopicConfig.load({}, self._broker_config(broker_config))

    def _broker_config(self, broker_config: Mapping[str, str]) -> dict[str, str]:
        return {**broker_config, **self.image.broker_config(self._metas[0].node_id)}

    def partition_folders(self, path: Path) -> Iterator[FoundPartition]:
        """Yield the partitions' folders of one of the directories by name, without that of the metadata log."""
        for name in subfolders(path):
            parsed = parse_partition_directory(name)
            if parsed is None or parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC:
                continue
            folder = path / name
            is_stray = parsed.suffix == STRAY_DIRECTORY_SUFFIX or (
                not parsed.suffix and not self._is_known(folder, parsed.topic_partition)
            )
            yield FoundPartition(folder, parsed.topic_partition, parsed.suffix, is_stray)

    def _is_known(self, folder: Path, topic_partition: TopicPartition) -> bool:
        if self.metadata.is_recorded:
            return is_known(self.image, folder, topic_partition)
        topic = self.image.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions
