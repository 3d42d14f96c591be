"""Lets the changes of a group happen one after another, though each may take several turns of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from odradek.broker.turns import Work


class Turnstiles:
    """A queue for each group."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def enter(self, group_id: str) -> Work[None]:
        """Work: wait until nobody else changes a group; call `leave` afterwards."""
        queue = self._waiting.get(group_id)
        if queue is None:
            self._waiting[group_id] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        wait: Callable[[], Awaitable[None]] = lambda: turn  # noqa: E731
        try:
            yield wait
        except GeneratorExit:
            # The work was given up. If its turn had already come, the next work gets it.
            if not turn.cancel() and not turn.cancelled():
                self.leave(group_id)
            raise

    def leave(self, group_id: str) -> None:
        """Let the next one in."""
        queue = self._waiting[group_id]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[group_id]
