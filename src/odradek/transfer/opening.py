"""Opens a target by its address: a log directory, or `kafka://host:port`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from odradek.arguments import is_broker
from odradek.errors import OptionError
from odradek.records.compression import Codec
from odradek.transfer.target import Target


def open_target(
    address: str | os.PathLike[str], config: Mapping[str, str] | None = None, *, codec: Codec = Codec.NONE
) -> Target:
    """Open a log directory, which is created if it is missing, or connect to a broker.

    Args:
        address: A path, or `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection to a broker, by the names of Kafka's clients.
        codec: How batches are compressed.

    Raises:
        LogError: The folder cannot be opened, or another program has it open.
        OptionError: The address or a setting is not valid, or the extra `odradek[kafka]` is not installed.
    """
    if is_broker(address):
        try:
            from odradek.transfer.broker_target import BrokerTarget
        except ImportError as error:
            raise OptionError(f"kafka://: needs the extra odradek[kafka] ({error})") from error
        return BrokerTarget(os.fspath(address), config, codec=codec)
    from odradek.transfer.folder_target import FolderTarget

    return FolderTarget(address, codec=codec)
