"""Producer ids, which are never given twice: from blocks that the cluster's metadata records.

The rest of a block is lost when the broker stops, as with Kafka.

Source in Kafka: `RPCProducerIdManager`, `ProducerIdsBlock`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

_BLOCK_SIZE = 1000


class ProducerIds:
    """The producer ids of a broker.

    Args:
        take: Allocates this many ids for good.
    """

    def __init__(self, take: Callable[[int], Awaitable[range]]) -> None:
        self._take = take
        self._left: deque[int] = deque()
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Return an id that nobody had before.

        Raises:
            LogError: The metadata cannot be written.
        """
        async with self._lock:
            if not self._left:
                self._left.extend(await self._take(_BLOCK_SIZE))
            return self._left.popleft()
