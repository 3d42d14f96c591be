"""Opens a place by its address: a path, or `kafka://host:port`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from odradek.arguments import is_broker
from odradek.errors import OptionError
from odradek.places.place import Place


def open_place(address: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Place:
    """Open what an address names.

    Args:
        address: The path of a segment, of a partition's folder or of a log directory; or
            `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`.
        config: Settings of the connection to a broker, by the names of Kafka's clients (`security.protocol`), or by
            kafka-python's; they go before those of the address.

    Raises:
        LogError: The path is no file or folder of a log.
        OptionError: The address or a setting is not valid, or the extra `odradek[kafka]` is not installed.
    """
    if is_broker(address):
        try:
            from odradek.places.address import BrokerAddress
            from odradek.places.broker import BrokerPlace
        except ImportError as error:
            raise OptionError(f"kafka://: needs the extra odradek[kafka] ({error})") from error
        return BrokerPlace(BrokerAddress.parse(os.fspath(address), config))
    from odradek.places.path import PathPlace

    return PathPlace(address)
