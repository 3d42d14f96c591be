"""Positions where programs before Odradek kept theirs in ZooKeeper: a node for each topic, of either form.

    /consumers/orders/0              20            the next offset of a partition, plain decimal
    /offsets/orders                  0:20,1:4      or a text, of the forms that `topic_keys` has
    /odradek/%2Foffsets%2F{topic}    {"version": "5f0c...", "positions": {"orders": {"0": {"offset": 20, ...}}}}

The last node is ours; it is that of `zookeeper`, as are commits. A topic without a node gets one for each partition.

The address is `zookeeper://[user:password@]host:port[,host:port][/chroot]?node=PATH&topic=TOPIC`, where PATH may have
`{topic}` in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import quote

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position, StoreAddress
from odradek.offsets.topic_keys import TOPIC, OffsetText, check_topics, keys_by_topic, parse_text, take_topics
from odradek.offsets.zookeeper import ZooKeeperOffsetStore, got, node_name
from odradek.storage.names import TopicPartition

_HOST = re.compile("[A-Za-z][A-Za-z0-9.-]{0,252}")


class ZooKeeperNodesStore(ZooKeeperOffsetStore):
    """The positions of a node for each topic."""

    is_of_older_programs = True
    _topics: dict[str, str]

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `zookeeper://[user:password@]host:port[,host:port][/chroot]?node=PATH&topic=TOPIC[,TOPIC]`."""
        topics, template, chroot = take_topics(address), address.take("node") or "", address.path.rstrip("/")
        text = f"zookeeper://{address.hosts}{chroot}/?node={template}&topic={','.join(topics)}"
        if not address.hosts or not template.startswith("/") or template.endswith("/") or "//" in template:
            raise OffsetStoreError(
                f"{text}: the address is zookeeper://host:port/?node=/consumers/{TOPIC}&topic=orders"
            )
        for part in template[1:].split("/"):
            node_name(text, part)
        keys = keys_by_topic(template, [node_name(text, topic) for topic in topics], text)
        store = cls(address, text, "", f"{chroot}/odradek/{quote(template, safe='')}")
        store._topics = {topic: f"{chroot}{path}" for topic, path in keys.items()}
        return store

    def _folders(self, deadline: float) -> dict[str, str]:
        return {path: topic for topic, path in self._topics.items()}

    def _path(self, name: TopicPartition) -> str:
        return f"{self._topics[name.topic]}/{name.partition}"

    def _read_offsets(self, deadline: float) -> dict[TopicPartition, bytes]:
        offsets = super()._read_offsets(deadline)
        for topic in self._topics:
            text, _ = self._text(topic, deadline)
            if text is not None:
                # What else is below that node is no partition.
                offsets = {name: data for name, data in offsets.items() if name.topic != topic}
                offsets.update({TopicPartition(topic, key): b"%d" % offset for key, offset in text.offsets.items()})
        return offsets

    def _change(self, transaction: Any, positions: Mapping[TopicPartition, Position | None], deadline: float) -> None:
        positions = {name: at for name, at in positions.items() if at is not None or name.topic in self._topics}
        check_topics(self._topics, self.address, positions)
        nodes = dict(positions)
        for topic in sorted({name.topic for name in positions}):
            text, version = self._text(topic, deadline)
            if text is not None:
                here = {name.partition: nodes.pop(name) for name in positions if name.topic == topic}
                changes = {number: None if at is None else at.offset for number, at in here.items()}
                # If another program has set it since, all of it is tried again.
                transaction.set_data(self._topics[topic], text.changed(changes).encode(), version=version)
        super()._change(transaction, nodes, deadline)

    def _text(self, topic: str, deadline: float) -> tuple[OffsetText | None, int]:
        """Return what the node of a topic says, and its version; None if it has nodes of partitions, or none yet."""
        node = got(self._client.get_async(self._topics[topic]), deadline)
        if node is None or not node[0].strip():
            return None, -1
        try:
            return parse_text(node[0], f"{self.address}: {self._topics[topic]}"), node[1].version
        except OffsetStoreError:
            if node[1].numChildren and _is_host(node[0]):
                return None, -1
            raise


def _is_host(data: bytes) -> bool:
    """Whether a node above those of partitions has what programs leave there: their host, or Java's `null`."""
    text = data.decode("ascii", "replace").strip()
    try:
        return bool(_HOST.fullmatch(text) or ip_address(text))
    except ValueError:
        return False
