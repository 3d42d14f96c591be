"""Logs whom the broker refuses, so that no client fills the log, or hides the refusals of others behind its own.

    refusal of a kind -> logged once a minute -> at most 100 of one client, 1,000 of all -> how many were left out

Requests that an authorizer refuses are of one kind by operation and resource, logins by mechanism, user and reason.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable

from odradek.printable import logger

_logger = logger(__name__)

_EACH_MS = 60_000
_MOST_TOLD = 1000
_MOST_TOLD_OF_ONE = 100
_LONGEST_TEXT = 249


def cut(text: str) -> str:
    """Return the beginning of a text that a client chose: as much of it as a line of the log may have."""
    return text[:_LONGEST_TEXT]


class Refusals:
    """Logs each kind of refusal once a minute. It belongs to the event loop's thread.

    Args:
        log: Where to.
        what: What is refused, for the line that counts what was left out.
        now_ms: Returns the time.
    """

    def __init__(self, log: logging.Logger, what: str, now_ms: Callable[[], float]) -> None:
        self._log = log
        self._what = what
        self._now_ms = now_ms
        self._told: set[tuple[str, Hashable]] = set()
        self._of_clients: Counter[str] = Counter()
        self._untold = 0
        self._end_ms = 0.0

    def tell(self, client: str, kind: Hashable, line: str, *arguments: object, level: int = logging.INFO) -> None:
        """Log a refusal, unless one of its kind was logged in this minute.

        Args:
            client: Who was refused.
            kind: What makes it another refusal of this client.
            line: The line, with placeholders.
            *arguments: What replaces them; texts that clients chose have been cut.
            level: How grave it is.
        """
        now_ms = self._now_ms()
        if now_ms >= self._end_ms:
            if self._untold:
                self._log.warning("%d other refused %s were not logged", self._untold, self._what)
            self._told.clear()
            self._of_clients.clear()
            self._untold, self._end_ms = 0, now_ms + _EACH_MS
        if (client, kind) in self._told:
            return
        if len(self._told) >= _MOST_TOLD or self._of_clients[client] >= _MOST_TOLD_OF_ONE:
            self._untold += 1
            return
        self._told.add((client, kind))
        self._of_clients[client] += 1
        self._log.log(level, line, *arguments)


class ClientRefusals:
    """Logs refused logins and connections. It belongs to the event loop's thread.

    Args:
        now_ms: Returns the time.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._refusals = Refusals(_logger, "logins and connections", now_ms)

    def connection(self, peer: str, reason: str, level: int) -> None:
        """Log why a connection ends, or does not begin."""
        shown = cut(reason)
        self._refusals.tell(peer, shown, "%s: %s", peer, shown, level=level)

    def login(self, peer: str, mechanism: str, user: str, reason: str) -> None:
        """Log a refused login."""
        shown = (cut(mechanism), cut(user), cut(reason))
        self._refusals.tell(peer, shown, "%s: a login by %s as %r was refused: %s", peer, *shown)
