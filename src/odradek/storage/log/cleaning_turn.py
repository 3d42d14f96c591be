"""Whose turn it is to work on the sealed segments of one log: the cleaner's, or that of a thread removing them.

    cleaner   | round .......... | is_wanted? -> drops the round
    others                         delete_old_segments | delete_topic | close

Only one thread works on them at a time. A thread that removes segments asks for the turn; the cleaner, which checks now
and then, gives it up and tries again later.

Source in Kafka: `LogCleanerManager.inProgress`, `LogCleanerManager.abortAndPauseCleaning`.
"""

from __future__ import annotations

from odradek.storage.locks import Lock, Rank, create_lock


class CleaningTurn:
    """The turn of one log. Any thread may ask for it.

    Attributes:
        lock: Held by the thread that has the turn.
        is_wanted: Whether another thread waits for the turn, or did when the cleaner last checked.
        failure: Why the log cannot be cleaned; it is not tried again until the log is opened again.
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
        """Return whether a thread has asked since the last call; for the cleaner, which has the turn."""
        wanted, self.is_wanted = self.is_wanted, False
        return wanted
