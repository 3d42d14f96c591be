"""Which quota counts for a client: the most specific one, as in Kafka.

    1  users/<user>/clients/<client id>        4  users/<default>/clients/<client id>    7  clients/<client id>
    2  users/<user>/clients/<default>          5  users/<default>/clients/<default>      8  clients/<default>
    3  users/<user>                            6  users/<default>

Clients share what one quota allows by what it names: by user and client id (1, 2, 4, 5), by user (3, 6), or by client
id (7, 8). A default is a quota of each of them, not one that all share.

Source in Kafka: `ClientQuotaManager`, `DefaultQuotaCallback` (KIP-55, KIP-546).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from sys import float_info
from typing import NamedTuple, TypeAlias, TypeVar

from odradek.messages.metadata.metadata_records import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity: TypeAlias = frozenset[QuotaEntity]
"""What a quota is for: a name, or None for the default, for one or more types."""

_ANY = None

_K = TypeVar("_K")


class Limit(NamedTuple):
    """The quota that counts for a client.

    Attributes:
        sharers: Those who share it: a user and a client id, each empty if the quota does not name it.
        quota: The quota; infinite if its value limits nobody.
    """

    sharers: tuple[str, str]
    quota: float


def _set(quotas: dict[_K, float], name: _K, quota: float | None) -> None:
    if quota is None:
        quotas.pop(name, None)
    else:
        # NaN and infinity, which Kafka takes, are exceeded by nothing; what is not above 0, by everything: no
        # client can set that, but the metadata may hold it.
        quotas[name] = max(quota, float_info.min) if quota < inf else inf


class Limits:
    """The quotas of one kind, such as `producer_byte_rate`, by user and client id. They belong to one thread."""

    def __init__(self) -> None:
        self._users: dict[str | None, float] = {}
        self._clients: dict[str | None, float] = {}
        self._pairs: dict[tuple[str | None, str | None], float] = {}

    def set(self, names: Mapping[str, str | None], quota: float | None) -> None:
        """Set the quota of a user, a client id or both; None removes it."""
        if USER in names and CLIENT_ID in names:
            _set(self._pairs, (names[USER], names[CLIENT_ID]), quota)
        elif USER in names:
            _set(self._users, names[USER], quota)
        elif CLIENT_ID in names:
            _set(self._clients, names[CLIENT_ID], quota)

    def __bool__(self) -> bool:
        return bool(self._users or self._clients or self._pairs)

    def of(self, user: str, client_id: str) -> Limit | None:
        """Return the quota that counts for a client, or None."""
        if self._pairs or self._users:
            for name in (user, _ANY):
                if self._pairs and client_id:
                    for pair in ((name, client_id), (name, _ANY)):
                        if pair in self._pairs:
                            return Limit((user, client_id), self._pairs[pair])
                if name in self._users:
                    return Limit((user, ""), self._users[name])
        if client_id:
            for name in (client_id, _ANY):
                if name in self._clients:
                    return Limit(("", client_id), self._clients[name])
        return None
