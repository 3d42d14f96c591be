"""Opens what administers a folder or a broker, by its address."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.admin.admin import Admin
from odradek.arguments import is_broker
from odradek.errors import LogError


def open_admin(
    address: str, config: Mapping[str, str] | None = None, *, adopt: bool = False, create: bool = False
) -> Admin:
    """Open a folder or a broker.

    Args:
        address: The path of a log directory, or `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection to a broker, by Kafka's names (`security.protocol`, ...).
        adopt: Whether a change makes a log directory of a folder of partitions without metadata.
        create: Whether a change makes the folder, if there is none.

    Raises:
        OSError: The folder does not exist, or is not a folder.
        BrokerUnavailableError: The broker does not answer.
        OptionError: The address or a setting is wrong.
    """
    if is_broker(address):
        from odradek.admin.broker import BrokerAdmin

        return BrokerAdmin(address, config)
    if config:
        raise LogError(f"{address} is a folder: settings of a connection are for a broker")
    from odradek.admin.folder import FolderAdmin

    return FolderAdmin(address, adopt=adopt, create=create)
