"""What each client has used of its quota, for as long as that counts.

A client that uses nothing for all windows of a rate is as a new one, so it is forgotten: clients that only come and go
with new names cost no memory for good. Apache Kafka keeps them for an hour. A client in debt is kept longer, unless
there are too many.

Source in Kafka: `SensorAccess`, `Metrics.ExpireSensorTask`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b

from odradek.broker.clock import Clock, Timer
from odradek.coordination.quotas.rates import Usage

_LONG_NAME = 128
_MOST_CLIENTS = 100_000
"""Whoever may have as many names has no use for one that is remembered."""
_SWEPT_AT_ONCE = 1000
_SOON_MS = 1.0


def short_name(name: str) -> str:
    """Return what stands for a name in a table: clients may have names of 32 KB, and as many as they like."""
    return name if len(name) <= _LONG_NAME else blake2b(name.encode(), digest_size=16).hexdigest()


class Usages:
    """The usages by client. It belongs to the event loop's thread.

    Args:
        new: Makes the usage of a client.
        clock: The time.
        kept_ms: After what time without use a client is looked at, to be forgotten.
    """

    def __init__(self, new: Callable[[], Usage], clock: Clock, kept_ms: int) -> None:
        self._new = new
        self._clock = clock
        self._kept_ms = kept_ms
        # The longest unused ones first, each with its quota and the time of its last use.
        self._all: OrderedDict[Hashable, tuple[Usage, float, int]] = OrderedDict()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._all)

    def now_ms(self) -> int:
        """Return the time that usages are counted by."""
        return int(self._clock.elapsed_ms())

    def of(self, client: Hashable, quota: float, now_ms: int) -> Usage:
        """Return the usage of a client."""
        found = self._all.get(client)
        usage = self._new() if found is None else found[0]
        self._all[client] = usage, quota, now_ms
        self._all.move_to_end(client)
        if len(self._all) > _MOST_CLIENTS:
            self._all.popitem(last=False)
        if self._timer is None:
            self._timer = self._clock.after(self._kept_ms, self._sweep)
        return usage

    def _sweep(self) -> None:
        """Forget clients of whom nothing counts any more."""
        self._timer = None
        now_ms = self.now_ms()
        for _ in range(_SWEPT_AT_ONCE):
            if not self._all:
                return
            client, (usage, quota, used_ms) = next(iter(self._all.items()))
            if now_ms - used_ms < self._kept_ms:
                self._timer = self._clock.after(self._kept_ms - (now_ms - used_ms), self._sweep)
                return
            del self._all[client]
            if not usage.is_new(quota, now_ms):
                # It is looked at again after as much time.
                self._all[client] = usage, quota, now_ms
        self._timer = self._clock.after(_SOON_MS, self._sweep)
