"""The quotas of users and client ids: which there are, and what clients have used of them.

    producer_byte_rate          the bytes of Produce requests            each is counted, however late its client is
    consumer_byte_rate          the bytes of Fetch answers               one that is too much is not sent, nor counted
    request_percentage          the time that requests take on the event loop, of one processor
    controller_mutation_rate    partitions that are created or deleted   refused, or only delayed for old versions

Source in Kafka: `QuotaFactory`, `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf, isfinite

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.quotas.addresses import AddressQuotas
from odradek.broker.quotas.usages import Usages, short_name
from odradek.coordination.quotas.alterations import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from odradek.coordination.quotas.limits import Entity, Limit, Limits
from odradek.coordination.quotas.rates import Rate, TokenBucket, Usage, Windows
from odradek.storage.metadata.metadata_image import MetadataImage

_MOST_REMEMBERED = 1000
_LONGEST_REMEMBERED = 256


class ClientQuota:
    """One kind of quota. It belongs to the event loop's thread.

    Args:
        key: Its key.
        new: Makes the usage of a client.
        clock: The time.
        windows: How the use is measured.

    Attributes:
        key: Its key.
        limits: The quotas that are set.
        usages: What clients have used.
        windows: How the use is measured.
    """

    def __init__(self, key: str, new: Callable[[Windows], Usage], clock: Clock, windows: Windows) -> None:
        self.key = key
        self.windows = windows
        self.limits = Limits()
        self.usages = Usages(lambda: new(windows), clock, windows.all_ms)

    def _limit(self, user: str, client_id: str) -> Limit | None:
        """Return what limits a client, if anything does."""
        limit = self.limits.of(user, client_id)
        return limit if limit is not None and isfinite(limit.quota) else None

    def _used(self, user: str, client_id: str, now_ms: int) -> tuple[Usage, float] | None:
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        sharers = short_name(limit.sharers[0]), short_name(limit.sharers[1])
        return self.usages.of(sharers, limit.quota, now_ms), limit.quota

    def record(self, user: str, client_id: str, value: float) -> int:
        """Count what a client uses; return for how many milliseconds it is throttled."""
        now_ms = self.usages.now_ms()
        used = self._used(user, client_id, now_ms)
        if used is None:
            return 0
        usage, quota = used
        usage.record(value, quota, now_ms)
        return usage.throttle_ms(quota, now_ms)

    def is_for(self, user: str, client_id: str) -> bool:
        """Whether a quota counts for a client."""
        return self._limit(user, client_id) is not None

    def take_back(self, user: str, client_id: str, value: float) -> None:
        """Do not count what was counted just now."""
        now_ms = self.usages.now_ms()
        used = self._used(user, client_id, now_ms)
        if used is not None:
            used[0].record(-value, used[1], now_ms)

    def check(self, user: str, client_id: str) -> int:
        """Return for how many milliseconds a client is throttled, without any further use."""
        now_ms = self.usages.now_ms()
        used = self._used(user, client_id, now_ms)
        return 0 if used is None else used[0].throttle_ms(used[1], now_ms)

    def most(self, user: str, client_id: str) -> float:
        """Return how much a client may use at once that has used nothing yet."""
        limit = self._limit(user, client_id)
        count, size_ms = self.windows
        return inf if limit is None else limit.quota * (count - 1) * size_ms / 1000


class Mutations:
    """The partitions that one request creates or deletes, as they count against its client's quota (KIP-599).

    Args:
        quota: The quota.
        user: The client's user.
        client_id: What the client calls itself.
        is_strict: Whether the client knows THROTTLING_QUOTA_EXCEEDED; otherwise it is only throttled.
    """

    def __init__(self, quota: ClientQuota, user: str, client_id: str, *, is_strict: bool) -> None:
        self._quota = quota
        self._client = user, client_id
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._measured_ms = 0

    def record(self, partitions: int) -> bool:
        """Count partitions that are about to be created or deleted; return False if they may not be."""
        self._measured_ms = self._quota.usages.now_ms()
        if not self._is_strict:
            self._throttle_ms = self._quota.record(*self._client, partitions)
            return True
        throttle_ms = self._quota.check(*self._client)
        if throttle_ms:
            self._throttle_ms = throttle_ms
            return False
        self._quota.record(*self._client, partitions)
        return True

    @property
    def throttle_ms(self) -> int:
        """For how many milliseconds from now on the client is throttled."""
        return max(0, self._throttle_ms - (self._quota.usages.now_ms() - self._measured_ms))


class ClientQuotas:
    """All quotas. They belong to the event loop's thread.

    Args:
        config: The broker's settings.
        clock: The time.

    Attributes:
        produce: `producer_byte_rate`.
        fetch: `consumer_byte_rate`.
        request: `request_percentage`.
        mutation: `controller_mutation_rate`.
        addresses: `connection_creation_rate`.
        is_active: Whether any client may be throttled; a request costs nothing otherwise.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        windows = Windows(config["quota.window.num"], config["quota.window.size.seconds"] * 1000)
        of_mutations = Windows(
            config["controller.quota.window.num"], config["controller.quota.window.size.seconds"] * 1000
        )
        self.produce = ClientQuota(PRODUCER_BYTE_RATE, Rate, clock, windows)
        self.fetch = ClientQuota(CONSUMER_BYTE_RATE, Rate, clock, windows)
        self.request = ClientQuota(REQUEST_PERCENTAGE, Rate, clock, windows)
        self.mutation = ClientQuota(CONTROLLER_MUTATION_RATE, TokenBucket, clock, of_mutations)
        self.addresses = AddressQuotas(clock, windows)
        self.of_clients = self.produce, self.fetch, self.request, self.mutation
        self.is_active = False
        self._are_for: dict[tuple[str, str], bool] = {}

    def load(self, image: MetadataImage, addresses: Mapping[str, str]) -> None:
        """Apply all quotas of the metadata; `addresses` are those of the hosts that have quotas."""
        for entity, quotas in image.client_quotas.items():
            self.set(entity, quotas, addresses)

    def set(self, entity: Entity, quotas: Mapping[str, float], addresses: Mapping[str, str]) -> None:
        """Apply the quotas of an entity, in place of those that it had."""
        names = dict(entity)
        if not self.addresses.set(names, quotas, addresses):
            for one in self.of_clients:
                one.limits.set(names, quotas.get(one.key))
            self._are_for.clear()
            self.is_active = any(one.limits for one in self.of_clients)

    def are_for(self, user: str, client_id: str) -> bool:
        """Whether any quota counts for a client; the requests of others cost what they cost without quotas."""
        found = self._are_for.get((user, client_id))
        if found is None:
            if len(self._are_for) >= _MOST_REMEMBERED:
                self._are_for.clear()
            found = any(one.is_for(user, client_id) for one in self.of_clients)
            # Of long names none is remembered: a client may have as many as it likes.
            if len(user) + len(client_id) <= _LONGEST_REMEMBERED:
                self._are_for[user, client_id] = found
        return found

    def mutations(self, user: str, client_id: str, *, is_strict: bool) -> Mutations:
        """Return what counts the partitions that a request creates or deletes."""
        return Mutations(self.mutation, user, client_id, is_strict=is_strict)

    def clients(self) -> Iterable[tuple[str, int]]:
        """Yield the keys of quotas, each with how many clients are counted; any thread may call this."""
        for one in self.of_clients:
            yield one.key, len(one.usages)
        yield CONNECTION_CREATION_RATE, len(self.addresses)
