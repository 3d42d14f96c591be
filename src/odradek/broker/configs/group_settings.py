"""The settings of a group: its own, or else those of the broker.

Source in Kafka: `GroupConfigManager`, `GroupConfig` (`evaluate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_keys import GROUP_KEYS, bounded_setting
from odradek.storage.metadata.metadata_image import GROUP_RESOURCE, ConfigResource, MetadataImage


class GroupSettings:
    """The settings of groups. It belongs to the event loop's thread.

    Args:
        image: Returns the metadata as it is now.
        config: The broker's settings.
    """

    def __init__(self, image: Callable[[], MetadataImage], config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def _own(self, group_id: str) -> Mapping[str, str]:
        return self._image().configs.get(ConfigResource(GROUP_RESOURCE, group_id), {})

    def number(self, group_id: str, name: str) -> int:
        """Return a setting that is a number and has bounds, such as `share.session.timeout.ms`."""
        return bounded_setting(name, self._own(group_id), self._config)

    def text(self, group_id: str, name: str) -> str:
        """Return a setting that only groups have, such as `share.auto.offset.reset`."""
        return self._own(group_id).get(name, GROUP_KEYS[name].default or "")
