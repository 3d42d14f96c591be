"""Whose turn it is to work on the sealed segments of one log: the cleaner's, or that of somebody who removes them.

    cleaner   | round .......... | is_wanted? -> drops the round
    others                         delete_old_segments | delete_topic | close

One round at a time happens to a log. Who removes segments asks for the turn; the cleaner, which looks now and then,
gives it up and tries again later.

Source in Kafka: `LogCleanerManager.inProgress`, `LogCleanerManager.abortAndPauseCleaning`.
"""

from __future__ import annotations

from odradek.storage.locks import Lock, Rank, create_lock


class CleaningTurn:
    """The turn of one log. Any thread may ask for it.

    Attributes:
        lock: Held by whoever has the turn.
        is_wanted: Whether somebody waits for it, or did when the cleaner looked last.
        failure: Why the log cannot be cleaned; it is left alone until it is opened again.
    """

    def __init__(self) -> None:
        self.lock: Lock = create_lock(Rank.CLEANING)
        self.is_wanted = False
        self.failure: Exception | None = None

    def asked(self) -> Lock:
        """Ask the cleaner for the turn; the caller then takes the lock that is returned."""
        self.is_wanted = True
        return self.lock

    def give_way(self) -> bool:
        """Return whether somebody asked since the last time; for the cleaner, which has the turn."""
        wanted, self.is_wanted = self.is_wanted, False
        return wanted
