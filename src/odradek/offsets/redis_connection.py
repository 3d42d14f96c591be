"""A connection to Redis whose calls end in time, for the stores that are kept there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Self, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from odradek.errors import OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.store import OffsetStore, StoreAddress

_RETRY_S = 0.1
_ATTEMPTS = 5
"""How many attempts have time at least, where Redis says nothing."""
T = TypeVar("T")


class RedisConnection:
    """A connection, made at the first call, to `redis://[user:password@]host:port/db?option=name`.

    Args:
        address: The address; all of its options but `timeout_ms` and the one that is named next must be taken.
        option: What the name of a store is called in it.

    Attributes:
        address: The address, without secrets.
        name: The store's name.
        client: Redis's own client.

    Raises:
        OffsetStoreError: The address has another form.
    """

    def __init__(self, address: StoreAddress, option: str) -> None:
        host, _, port = address.hosts.rpartition(":") if ":" in address.hosts else (address.hosts, "", "6379")
        db = address.path.strip("/") or "0"
        self.name = address.take(option) or ""
        if not host or not self.name or not port.isdecimal() or not db.isdecimal():
            raise OffsetStoreError(f"{address.text}: Redis's address is redis://host:port/db?{option}=name")
        self.address = f"{address.scheme}://{host}:{port}/{db}?{option}={self.name}"
        self._timeout_s = address.take_timeout_ms() / 1000
        address.refuse_the_rest()
        attempt_s = self._timeout_s / _ATTEMPTS
        self.client = redis.Redis(
            host=host.strip("[]"),
            port=int(port),
            db=int(db),
            username=address.user,
            password=address.password,
            ssl=address.scheme == "rediss",
            socket_timeout=attempt_s,
            socket_connect_timeout=attempt_s,
            retry=Retry(NoBackoff(), 0),
        )

    def within_timeout(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while Redis cannot be reached, until the time is over."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return attempt()
            except redis.AuthenticationError as error:
                raise OffsetStoreError(f"{self.address}: {error}") from error
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                # The last attempt may take as long as the others.
                if time.monotonic() + self._timeout_s / _ATTEMPTS > deadline:
                    raise OffsetStoreUnavailableError(f"{self.address}: {error}") from error
                time.sleep(_RETRY_S)
            except redis.RedisError as error:
                raise OffsetStoreError(f"{self.address}: {error}") from error

    def close(self) -> None:
        """Close it."""
        self.client.close()


class StoreOfOlderPrograms(OffsetStore):
    """What the stores have in common that keep positions where older programs did.

    Args:
        address: The address.
    """

    is_of_older_programs = True
    option: ClassVar[str]
    """What the name of the store is called in its address."""

    def __init__(self, address: StoreAddress) -> None:
        self._connection = RedisConnection(address, self.option)
        self.address = self._connection.address

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open the store at an address."""
        return cls(address)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
