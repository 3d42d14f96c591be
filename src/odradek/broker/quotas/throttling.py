"""Counts each answered request against the quotas of its client, and mutes the connection of one that exceeds them.

    request -> answer, sent at once, with throttle_time_ms -> nothing is read from the connection for that long

A client that does not wait by itself is so kept from asking; what it sends meanwhile stays in its socket (KIP-219).

Source in Kafka: `RequestHandlerHelper`, `ThrottledChannel`, `ThrottledChannelReaper`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from odradek.broker.clock import Clock, Timer
from odradek.broker.protocol import FETCH_KEY, PRODUCE_KEY, Message, RequestHeader
from odradek.broker.quotas.client_quotas import ClientQuota, ClientQuotas

if TYPE_CHECKING:
    from odradek.broker.connection import Connection

_T = TypeVar("_T")

_OF_BROKERS = frozenset({27})
"""WriteTxnMarkers: requests of other brokers, which Kafka exempts."""


_LOOK_MS = 5000
"""How long a client that has disconnected keeps its descriptor while it is muted, which may be for days."""


class _Muted(NamedTuple):
    """Until when a connection is muted, and what looks after it."""

    end_ms: float
    timer: Timer


class LoopTime:
    """How long a request has taken on the event loop; waiting does not count."""

    __slots__ = ("_resumed_s", "_total_s")

    def __init__(self) -> None:
        self._total_s = 0.0
        self._resumed_s: float | None = None

    def resume(self) -> None:
        """It is worked on from now on."""
        self._resumed_s = perf_counter()

    def pause(self) -> None:
        """It waits, or is done."""
        self._total_s, self._resumed_s = self.seconds, None

    @property
    def seconds(self) -> float:
        """The time until now."""
        return self._total_s + (0.0 if self._resumed_s is None else perf_counter() - self._resumed_s)


class CountedRequest(Protocol):
    """A request, as far as it counts.

    Attributes:
        connection: Where it came from.
        header: Its header.
        size_bytes: How many bytes it has.
        loop_time: How long it has taken on the event loop.
    """

    connection: Connection
    header: RequestHeader
    size_bytes: int
    loop_time: LoopTime | None

    @property
    def user(self) -> str:
        """The client's user."""

    @property
    def client_id(self) -> str:
        """What the client calls itself."""


class _Timed(Awaitable[_T]):
    """An awaitable that counts the time that it takes on the event loop.

    Args:
        awaited: What takes time.
        loop_time: Counts it.
    """

    def __init__(self, awaited: Awaitable[_T], loop_time: LoopTime) -> None:
        self._awaited = awaited
        self._loop_time = loop_time

    def __await__(self) -> Generator[Any, Any, _T]:
        """Run what is awaited, step by step."""
        steps = self._awaited.__await__()
        received: Any = None
        raised: BaseException | None = None
        while True:
            self._loop_time.resume()
            try:
                waits = steps.send(received) if raised is None else steps.throw(raised)
            except StopIteration as ended:
                result: _T = ended.value
                return result
            finally:
                self._loop_time.pause()
            try:
                received, raised = (yield waits), None
            except BaseException as error:
                raised = error


class Throttling:
    """What clients of one broker have to wait for. It belongs to the event loop's thread.

    Args:
        quotas: The quotas.
        clock: The time.

    Attributes:
        quotas: The quotas.
        throttles: How many answers told of a throttle time, by the key of the quota.
        throttled_ms: Those times together.
    """

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self.quotas = quotas
        self.throttles: Counter[str] = Counter()
        self.throttled_ms: Counter[str] = Counter()
        self._clock = clock
        self._muted: dict[Connection, _Muted] = {}

    @property
    def muted_connections(self) -> int:
        """How many connections are muted."""
        return len(self._muted)

    def throttled(
        self, request: CountedRequest, begin: Callable[[], Message | Awaitable[Message | None] | None]
    ) -> Message | Awaitable[Message | None] | None:
        """Work on a request; return its answer, at once or later, with the time for which its client is throttled."""
        loop_time = request.loop_time = LoopTime()
        loop_time.resume()
        try:
            answer = begin()
        finally:
            loop_time.pause()
        if isinstance(answer, Awaitable):
            return self._later(request, _Timed(answer, loop_time))
        return self._told(request, answer)

    async def _later(self, request: CountedRequest, answer: Awaitable[Message | None]) -> Message | None:
        return self._told(request, await answer)

    def _told(self, request: CountedRequest, message: Message | None) -> Message | None:
        told = 0 if message is None else int(message.get("throttle_time_ms", 0))
        if request.header.api_key == FETCH_KEY and message is not None and "throttle_time_ms" in message:
            # It was counted before its answer was made.
            return message
        throttle_ms = self._count(request, told, is_answered=message is not None)
        return {**message, "throttle_time_ms": throttle_ms} if message is not None and throttle_ms else message

    def failed(self, request: CountedRequest) -> int:
        """Count a request that failed; return for how long its client is throttled."""
        return 0 if request.loop_time is None else self._count(request, 0)

    def fetched(self, request: CountedRequest, size_of_answer: Callable[[], int]) -> int:
        """Count the answer to a Fetch; return for how long the client is throttled, and gets an empty answer."""
        quota, client = self.quotas.fetch, (request.user, request.client_id)
        answer_bytes = size_of_answer() if quota.is_for(*client) else 0
        of_requests = self._of_requests(request)
        of_bytes = quota.record(*client, answer_bytes)
        if of_requests or of_bytes:
            # Nothing of it is sent.
            quota.take_back(*client, answer_bytes)
        return self._throttle(request, [(self.quotas.request, of_requests), (quota, of_bytes)])

    def _count(self, request: CountedRequest, of_mutations: int, *, is_answered: bool = True) -> int:
        if request.header.api_key in _OF_BROKERS:
            return 0
        found = [(self.quotas.mutation, of_mutations)]
        if request.header.api_key == PRODUCE_KEY:
            of_bytes = self.quotas.produce.record(request.user, request.client_id, request.size_bytes)
            found.append((self.quotas.produce, of_bytes))
        # Kafka exempts Produce requests that want no answer.
        if is_answered:
            found.append((self.quotas.request, self._of_requests(request)))
        return self._throttle(request, found)

    def _of_requests(self, request: CountedRequest) -> int:
        quota = self.quotas.request
        if not quota.limits or request.loop_time is None:
            return 0
        percent = request.loop_time.seconds * 100
        return min(quota.record(request.user, request.client_id, percent), quota.windows.size_ms)

    def _throttle(self, request: CountedRequest, found: list[tuple[ClientQuota, int]]) -> int:
        quota, throttle_ms = max(found, key=lambda one: one[1])
        if throttle_ms:
            self.throttles[quota.key] += 1
            self.throttled_ms[quota.key] += throttle_ms
            self._mute(request.connection, throttle_ms)
        return throttle_ms

    def _mute(self, connection: Connection, for_ms: int) -> None:
        # Whoever has gone cannot be kept from asking; what it sent is still worked on.
        if connection.is_client_gone:
            return
        end_ms = self._clock.elapsed_ms() + for_ms
        muted = self._muted.get(connection)
        if muted is not None:
            # Requests that overlap may each be throttled: the longest time counts.
            if muted.end_ms >= end_ms:
                return
            muted.timer.cancel()
        else:
            connection.mute()
        self._look_later(connection, end_ms)

    def _look_later(self, connection: Connection, end_ms: float) -> None:
        left_ms = end_ms - self._clock.elapsed_ms()

        def look() -> None:
            # Nothing is read from it, so that it has gone is seen in no other way.
            if self._clock.elapsed_ms() >= end_ms or connection.is_client_gone:
                del self._muted[connection]
                connection.unmute()
            else:
                self._look_later(connection, end_ms)

        self._muted[connection] = _Muted(end_ms, self._clock.after(min(left_ms, _LOOK_MS), look))

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        muted = self._muted.pop(connection, None)
        if muted is not None:
            muted.timer.cancel()
