"""What is due about members of consumer groups, unless it is put off before: sessions, the giving up of partitions.

A heartbeat only moves a deadline: a timer for each heartbeat would cost too much.

Source in Kafka: `CoordinatorTimer`.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.clock import Clock, Timer


class Deadlines:
    """Deadlines of members.

    Args:
        clock: The time.
        due: Called with the group and the member when a deadline is over.
    """

    def __init__(self, clock: Clock, due: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._due = due
        self._timers: dict[tuple[str, str], Timer] = {}
        self._deadlines_ms: dict[tuple[str, str], float] = {}
        self._is_stopped = False

    def put(self, group_id: str, member_id: str, delay_ms: float) -> None:
        """Set the deadline of a member; it replaces the one before. After `stop` it does nothing."""
        if self._is_stopped:
            return
        key = group_id, member_id
        deadline_ms = self._deadlines_ms[key] = self._clock.elapsed_ms() + delay_ms
        timer = self._timers.get(key)
        if timer is None or timer.deadline_ms > deadline_ms:
            self._stop(key)
            self._timers[key] = self._watch(key, delay_ms)

    def _watch(self, key: tuple[str, str], delay_ms: float) -> Timer:
        def look() -> None:
            left_ms = self._deadlines_ms[key] - self._clock.elapsed_ms()
            if left_ms > 0:
                self._timers[key] = self._watch(key, left_ms)
            else:
                self.drop(*key)
                self._due(*key)

        return self._clock.after(delay_ms, look)

    def _stop(self, key: tuple[str, str]) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_set(self, group_id: str, member_id: str) -> bool:
        """Whether a member has a deadline, which is not over yet."""
        return (group_id, member_id) in self._deadlines_ms

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget the deadline of a member."""
        self._stop((group_id, member_id))
        self._deadlines_ms.pop((group_id, member_id), None)

    def stop(self) -> None:
        """Forget all deadlines for good."""
        self._is_stopped = True
        for key in list(self._timers):
            self.drop(*key)
