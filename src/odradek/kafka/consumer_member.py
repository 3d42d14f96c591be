"""A member of a consumer group (KIP-848): a thread sends its heartbeats, and learns which partitions it is to read.

    joining      epoch 0, what it subscribes to               ->  an id, an epoch, perhaps partitions
    heartbeat    what the reader has, if that has changed     <-  what it is to have, if that has changed
    fenced       FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID       ->  all partitions are lost; it joins again
    leaving      epoch -1; of a static member -2: it keeps its partitions until its session ends, or it is back

The reader gives up and takes on partitions when it is ready to, and says so by `acknowledge`; the coordinator gives a
partition to another member only then.

Source in Kafka: `ConsumerMembershipManager`, `ConsumerHeartbeatRequestManager`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from kafka import errors
from kafka.protocol.metadata import CoordinatorType

from odradek.errors import BrokerUnavailableError, OdradekError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.kio_request import KioRequest
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.stopping import StoppedError, at_most, stopped_by
from odradek.messages.uuids import parse_uuid
from odradek.printable import logger
from odradek.storage.names import TopicPartition

REBALANCE_TIMEOUT_MS = 300_000
"""How long the reader may take to give up partitions: as long as Kafka's `max.poll.interval.ms`."""
_JOINING, _LEAVING, _LEAVING_FOR_A_WHILE = 0, -1, -2
_FENCED = (errors.FencedMemberEpochError.errno, errors.UnknownMemberIdError.errno)
_RETRY_S, _LEAST_PAUSE_S = 1.0, 0.01
LEAVE_S = 5.0
"""How long a member tries to leave: a coordinator that does not answer finds out when the session ends."""
_HEARTBEAT, _FIRST_WITH_REGEX, _LAST = "ConsumerGroupHeartbeat", 1, 1
_API_KEY = 68

_logger = logger(__name__)


def _is_retriable(error_code: int) -> bool:
    return bool(getattr(errors.for_code(error_code), "retriable", False))


class Assignment(NamedTuple):
    """What a member is to read.

    Attributes:
        life: How often it has lost all that it had, because the coordinator took it for gone.
        partitions: The partitions; None before the first answer.
    """

    life: int = 0
    partitions: frozenset[TopicPartition] | None = None


class ConsumerMember:
    """A member. All of it may be called by any thread; the thread of heartbeats has a client of its own.

    Args:
        settings: How to reach the broker.
        group: The group.
        topics: The topics that are read.
        regex: A pattern of further topics, in RE2's syntax, which the broker looks for; None for none.
        instance_id: What tells a static member from others of the group; None for a member that is not static.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        group: str,
        topics: Collection[str],
        regex: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        self.member_id = str(uuid4())
        self._regex, self._instance_id = regex, instance_id
        self._settings, self._group = settings, group
        self._changed = threading.Condition()
        self._topics = frozenset(topics)
        self._epoch = _JOINING
        self._assignment = Assignment()
        self._has: frozenset[TopicPartition] = frozenset()
        self._reported: tuple[frozenset[str], frozenset[TopicPartition]] | None = None
        self._wanted: Mapping[UUID, Iterable[int]] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._failure: Exception | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"odradek-member-of-{group}", daemon=True)
        self._thread.start()

    def epoch(self, life: int) -> int | None:
        """Return its epoch in a life; None if that is over, so that nothing of it may be committed any more."""
        with self._changed:
            return self._epoch if life == self._assignment.life else None

    @property
    def assignment(self) -> Assignment:
        """What it is to read.

        Raises:
            BrokerUnavailableError: The coordinator refuses it.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return self._assignment

    def wait(self, timeout_s: float) -> Assignment:
        """Return what it is to read, after the first answer.

        Raises:
            BrokerUnavailableError: There was none in time, or the coordinator refuses it.
        """
        with self._changed:
            answered = self._changed.wait_for(
                lambda: self._failure is not None or self._assignment.partitions is not None, timeout_s
            )
        if not answered:
            raise BrokerUnavailableError(f"group {self._group}: no coordinator has answered for {timeout_s:g} s")
        return self.assignment

    def subscribe(self, topics: Collection[str]) -> None:
        """Set the topics that are read."""
        with self._changed:
            self._topics = frozenset(topics)

    def acknowledge(self, partitions: Collection[TopicPartition], life: int) -> None:
        """Say what the reader has now, in a life of the member; the next heartbeat, at once, tells the coordinator."""
        with self._changed:
            if life != self._assignment.life:
                return
            self._has = frozenset(partitions)
        self._wake.set()

    def stop(self) -> None:
        """End the heartbeats soon. The member stays in the group until `leave`, or until its session ends."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """End the heartbeats, and wait for their thread. May be called twice."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave(self, client: BrokerClient) -> None:
        """Leave the group, by a client of the caller's, if that can be done soon; after `close`."""
        epoch = _LEAVING if self._instance_id is None else _LEAVING_FOR_A_WHILE
        request = self._request(lambda kio: self._message(kio, epoch, None, None))
        with suppress(OdradekError, errors.KafkaError, OSError, StoppedError), at_most(LEAVE_S):
            client.ask(request, client.coordinator(self._group, CoordinatorType.GROUP))

    def _request(self, build: Callable[[Any], Any]) -> KioRequest:
        versions = 0 if self._regex is None else _FIRST_WITH_REGEX, _LAST
        return KioRequest(_HEARTBEAT, _API_KEY, versions, build)

    # -- the thread of heartbeats

    def _run(self) -> None:
        with stopped_by(self._stop), BrokerClient(self._settings) as client:
            self._check_supported(client)
            while not self._stop.is_set():
                try:
                    pause_s = client.attempt(f"group {self._group}", lambda: self._beat(client))
                except StoppedError:
                    return
                except BrokerUnavailableError as error:
                    if error.error_code != BrokerUnavailableError.error_code and not _is_retriable(error.error_code):
                        self._fail(error)
                        return
                    # Its session may end meanwhile. The reader finds out by itself that the broker is away.
                    _logger.warning("%s", error)
                    pause_s = _RETRY_S
                except Exception as error:
                    self._fail(error)
                    return
                self._wake.wait(pause_s)
                self._wake.clear()

    def _check_supported(self, client: BrokerClient) -> None:
        with suppress(OdradekError, StoppedError):
            if not client.supports(self._request(lambda kio: None)):
                what = "" if self._regex is None else " with patterns that it looks for"
                text = f"{client.name} has no groups of the consumer protocol (KIP-848){what}"
                self._fail(BrokerUnavailableError(text))
                self._stop.set()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _beat(self, client: BrokerClient) -> float:
        """Send a heartbeat; return how long to wait for the next one."""
        with self._changed:
            epoch, topics, has = self._epoch, self._topics, self._has
            before, self._reported = self._reported, None
        is_whole = before is None or epoch == _JOINING
        names = topics if is_whole or before is None or before[0] != topics else None
        held = has if is_whole or before is None or before[1] != has else None
        request = self._request(lambda kio: self._message(kio, epoch, names, held))
        answer = client.ask(request, client.coordinator(self._group, CoordinatorType.GROUP))
        if int(answer.error_code) in _FENCED:
            self._lose()
            return _RETRY_S if epoch == _JOINING else 0.0
        check(int(answer.error_code), f"heartbeat{f': {answer.error_message}' if answer.error_message else ''}")
        if answer.assignment is not None:
            self._wanted = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}
        partitions = self._named(client)
        with self._changed:
            self._epoch, self._reported = int(answer.member_epoch), (topics, has)
            self._assignment = self._assignment._replace(partitions=partitions)
            self._changed.notify_all()
        return max(_LEAST_PAUSE_S, float(answer.heartbeat_interval.total_seconds()))

    def _lose(self) -> None:
        with self._changed:
            _logger.warning("group %s: the coordinator took the member for gone; it joins again", self._group)
            self._epoch, self._has, self._wanted = _JOINING, frozenset(), {}
            self._assignment = Assignment(self._assignment.life + 1, frozenset())

    def _named(self, client: BrokerClient) -> frozenset[TopicPartition]:
        """Return what the coordinator wants it to have, without topics whose names the cluster does not tell yet."""
        if self._wanted.keys() - set(self._topic_ids.values()):
            found = client.topics(sorted(self._topics) if self._regex is None else None)
            ids = {name: topic.topic_id for name, topic in found.items()}
            with self._changed:
                self._topic_ids = {name: parse_uuid(topic_id) for name, topic_id in ids.items() if topic_id}
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        return frozenset(
            TopicPartition(names[topic_id], int(number))
            for topic_id, numbers in self._wanted.items()
            if topic_id in names
            for number in numbers
        )

    def _message(
        self, kio: Any, epoch: int, names: Collection[str] | None, held: Collection[TopicPartition] | None
    ) -> Any:
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(held or ()):
            by_topic.setdefault(topic, []).append(number)
        topics = (
            kio.TopicPartitions(topic_id=self._topic_ids[topic], partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
            if topic in self._topic_ids
        )
        # Unlike names, it is no field of the first version.
        regex = {} if self._regex is None or names is None else {"subscribed_topic_regex": self._regex}
        return kio.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout=timedelta(milliseconds=-1 if names is None else REBALANCE_TIMEOUT_MS),
            subscribed_topic_names=None if names is None else tuple(sorted(names)),
            topic_partitions=None if held is None else tuple(topics),
            instance_id=self._instance_id,
            **regex,
        )
