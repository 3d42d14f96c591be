"""The folder or broker that a console shows, and what is asked of it more than once.

Folders are read without their lock, beside whatever writes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.admin.admin import Admin
from odradek.admin.cluster import CONFIG_SOURCES, ClusterDescription, cluster_of_broker, cluster_of_folder
from odradek.admin.group_rows import group_rows
from odradek.admin.opening import open_admin
from odradek.arguments import is_broker
from odradek.console.background import Background
from odradek.console.history import History
from odradek.console.options import ConsoleOptions
from odradek.coordination.lag import total_lag
from odradek.errors import OdradekError, UnknownTopicOrPartitionError
from odradek.inspection.finding import Finding
from odradek.inspection.log_files import LogDirectoryFolder, locate_log_directory, partition_folder
from odradek.inspection.partitions import PartitionSummary, TopicListing
from odradek.inspection.producers import LastProducers, last_producers
from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TOPIC_CONFIGS, TopicConfig

if TYPE_CHECKING:
    from odradek.admin.broker import BrokerAdmin

_FRESH_S = 1.0
_SURVEY_S = 10.0
_SAMPLE_S = 60.0
_CLOSE_S = 5.0
SUMMARISED = 500
"""How many partitions a page looks at by itself; sizes of more come from the survey."""


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What all partitions of a topic hold together; None where it is not known.

    Attributes:
        partitions: How many there are.
        size_bytes: Their size.
        offsets: How many offsets they hold.
        last_timestamp: The greatest timestamp of the last batches, in ms.
        end_offsets: The sum of their ends, as far as they are known.
    """

    partitions: int
    size_bytes: int | None = None
    offsets: int | None = None
    last_timestamp: int | None = None
    end_offsets: int = 0


@dataclass(frozen=True)
class Survey:
    """What a place holds as a whole, as it was at some moment.

    Attributes:
        topics: The totals of each topic.
        problems: What cannot be read, or is damaged at the end of a log.
        groups: The groups with their lag, the `lags` of each topic, and the number of members; or an empty list.
        groups_error: Why groups are not known, or None.
        taken_s: When it was made, by `time.time`.
    """

    topics: dict[str, TopicTotals]
    problems: list[Finding]
    groups: list[dict[str, Any]]
    groups_error: str | None
    taken_s: float = field(default_factory=time.time)


class Source:
    """What a console shows. Any thread may use it.

    Args:
        options: Where it is.

    Attributes:
        options: Where it is, and what is left out.
        folder: The log directory, or None for a broker.
        address: Where it is, without secrets.
        history: Sizes and lags over time.

    Raises:
        OdradekError: There is no such folder, no broker answers, or the file of the history cannot be used.
        OSError: The folder does not exist.
    """

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.folder = None if is_broker(options.address) else Path(options.address)
        self._lock = threading.Lock()
        self._idle: list[tuple[Admin, float]] = []
        self._is_closed = False
        self._surveys = Background(self._noted_survey, "odradek-survey", _SURVEY_S)
        self.verified: tuple[float, list[Finding], bool] | None = None
        with self.admin() as admin:
            admin.place.partitions()
            self.address = admin.address
        self.history = History(options.history, self.folder)
        self._ends = threading.Event()

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """Lend what asks the place; it is the caller's alone for the `with` block."""
        with self._lock:
            admin, refreshed = self._idle.pop() if self._idle else (None, 0.0)
        now = time.monotonic()
        if admin is None:
            admin, refreshed = open_admin(self.options.address, dict(self.options.config) or None), now
        is_kept = False
        try:
            if now - refreshed > _FRESH_S:
                admin.place.refresh()
                refreshed = now
            yield admin
            is_kept = True
        finally:
            with self._lock:
                is_kept = is_kept and not self._is_closed
                if is_kept:
                    self._idle.append((admin, refreshed))
            if not is_kept:
                admin.close()

    def topics(self) -> dict[str, list[int]]:
        """Return the numbers of the partitions of each topic, sorted by name."""
        found: dict[str, list[int]] = {}
        with self.admin() as admin:
            for name, number in admin.place.partitions():
                found.setdefault(name, []).append(number)
        return dict(sorted(found.items()))

    def numbers(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        numbers = self.topics().get(topic)
        if numbers is None:
            raise UnknownTopicOrPartitionError(topic, path=self.address)
        return numbers

    def check_partition(self, name: TopicPartition) -> None:
        """Check that there is a partition; only then is a path made of its name.

        Raises:
            UnknownTopicOrPartitionError: There is none.
        """
        if name.partition not in self.numbers(name.topic):
            raise UnknownTopicOrPartitionError(*name, path=self.address)

    def settings(self, topic: str) -> list[tuple[str, str | None, str]]:
        """Return the settings of a topic, by name, each with its value, None for a secret, and where it comes from."""
        with self.admin() as admin:
            if self.folder is None:
                return _broker(admin).settings(topic)
            own = admin.place.topic_config(topic)
        found: list[tuple[str, str | None, str]] = [(name, value, CONFIG_SOURCES[1]) for name, value in own.items()]
        defaults = TopicConfig()
        for name in TOPIC_CONFIGS:
            if name not in own:
                value = defaults.value(name)
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                found.append((name, text.lower() if isinstance(value, bool) else text, CONFIG_SOURCES[5]))
        return sorted(found, key=lambda setting: setting[2] == CONFIG_SOURCES[5])

    def cluster(self) -> ClusterDescription:
        """Return what is known of the cluster."""
        if self.folder is not None:
            return cluster_of_folder(self.folder)
        with self.admin() as admin, _broker(admin).place.client() as client:
            return cluster_of_broker(client)

    def summaries(self, topics: Collection[str]) -> list[PartitionSummary]:
        """Return what the partitions of some topics hold."""
        with self.admin() as admin:
            if self.folder is None:
                return _broker(admin).summaries(topics)
            wanted = set(topics)
            chosen = [name for name in admin.place.partitions() if name.topic in wanted]
        folders = [partition_folder(self.folder / str(name)) for name in chosen[:SUMMARISED]]
        return list(TopicListing(LogDirectoryFolder(self.folder, [], folders, [])).partitions())

    def producers(self, names: Collection[TopicPartition]) -> dict[TopicPartition, LastProducers]:
        """Return the producers of partitions, as far as they are known."""
        if self.folder is None:
            with self.admin() as admin:
                told = _broker(admin).producers(names)
            return {name: LastProducers(producers, is_whole=True) for name, producers in told.items()}
        found = {}
        for name in names:
            # What cannot be read is among the problems.
            with suppress(OdradekError, OSError):
                found[name] = last_producers(partition_folder(self.folder / str(name)))
        return found

    def totals(
        self, topics: dict[str, list[int]], summaries: Iterable[PartitionSummary] | None = None
    ) -> dict[str, TopicTotals]:
        """Return the totals of topics: as they are now, or, of too many partitions, as the last survey has them.

        Args:
            topics: The partitions of each topic.
            summaries: What the topics' partitions hold, if that was read already.
        """
        if sum(map(len, topics.values())) <= SUMMARISED:
            known = totals_of(self.summaries(topics) if summaries is None else summaries)
        else:
            survey = self.survey()
            known = {} if survey is None else survey.topics
        return {name: known.get(name, TopicTotals(len(numbers))) for name, numbers in topics.items()}

    # -- the survey

    def survey(self, wait_s: float = 0.0) -> Survey | None:
        """Return the last survey, and start the next one if that is due.

        Args:
            wait_s: How long to wait for the first survey; None is returned if it takes longer.
        """
        return self._surveys.get(wait_s)

    @property
    def survey_failure(self) -> Exception | None:
        """Why the last survey could not be made, or None."""
        return self._surveys.failure

    def start(self) -> None:
        """Take a survey each minute, so that the history has no gaps while nobody looks."""
        threading.Thread(target=self._sample, name="odradek-samples", daemon=True).start()

    def _sample(self) -> None:
        while not self._ends.wait(_SAMPLE_S):
            self.survey()

    def _noted_survey(self) -> Survey:
        survey = self._surveyed()
        totals = survey.topics.values()
        self.history.note(
            sum(one.size_bytes or 0 for one in totals),
            sum(one.end_offsets for one in totals),
            survey.groups if survey.groups_error is None else None,
        )
        # Ten thousands of positions take more memory than all else, and are shown of one group at a time.
        return replace(survey, groups=[_condensed(group) for group in survey.groups])

    def _surveyed(self) -> Survey:
        problems: list[Finding] = []

        def told(summaries: Iterable[PartitionSummary]) -> Iterator[PartitionSummary]:
            # One by one: the summaries of 10,000 partitions would take more memory than all else.
            for one in summaries:
                problems.extend(one.problems)
                yield one

        if self.folder is None:
            with self.admin() as admin:
                totals = totals_of(told(_broker(admin).summaries()))
        else:
            listing = TopicListing(locate_log_directory(self.folder))
            problems += listing.problems
            totals = totals_of(told(listing.partitions()))
            del listing
        groups, error = [], None
        try:
            groups = self.groups()
        except (OdradekError, OSError) as failure:
            error = str(failure)
        return Survey(totals, problems, groups, error)

    def groups(self, group_ids: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Return groups of every kind with their offsets, lag and members.

        Raises:
            BrokerError: There is no such group.
        """
        with self.admin() as admin:
            return group_rows(admin, admin.describe_groups(group_ids))

    def forget(self) -> None:
        """Read everything again: the console has changed something."""
        with self._lock:
            idle, self._idle = self._idle, []
        for admin, _ in idle:
            admin.close()
        self._surveys.forget()

    def close(self) -> None:
        """Close files and connections; those in use are closed when their use ends."""
        self._ends.set()
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for admin, _ in idle:
            admin.close()
        # It only reads: if it takes long, the program ends without it.
        self._surveys.close(_CLOSE_S)
        self.history.close()


def _broker(admin: Admin) -> BrokerAdmin:
    """Return the `Admin` of a broker as what it is."""
    # A console over a folder does not need the client.
    from odradek.admin.broker import BrokerAdmin

    assert isinstance(admin, BrokerAdmin)
    return admin


def _condensed(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with its lag in each topic instead of positions, and with the number of its members."""
    each: dict[str, list[int]] = {}
    for one in group["offsets"]:
        each.setdefault(one["topic"], []).extend([] if one["lag"] is None else [one["lag"]])
    lags = {topic: total_lag(found) if found else None for topic, found in each.items()}
    members = None if group["members"] is None else len(group["members"])
    return {name: group[name] for name in ("group", "type", "state", "lag")} | {"members": members, "lags": lags}


def totals_of(summaries: Iterable[PartitionSummary]) -> dict[str, TopicTotals]:
    """Return the totals of topics of what is known of their partitions."""
    found: dict[str, TopicTotals] = {}
    for one in summaries:
        so_far = found.get(one.topic_partition.topic, TopicTotals(0, 0, 0))
        is_known = one.log_start_offset is not None and one.log_end_offset is not None and so_far.offsets is not None
        times = [moment for moment in (so_far.last_timestamp, one.last_timestamp) if moment is not None]
        found[one.topic_partition.topic] = replace(
            so_far,
            partitions=so_far.partitions + 1,
            size_bytes=(so_far.size_bytes or 0) + one.size_bytes,
            offsets=(so_far.offsets or 0) + (one.log_end_offset or 0) - (one.log_start_offset or 0)
            if is_known
            else None,
            last_timestamp=max(times, default=None),
            end_offsets=so_far.end_offsets + (one.log_end_offset or 0),
        )
    return found
