"""Changes of topics and settings: by two clients at once, on a disk that fails, and too many for one request."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from odradek.broker import running as running_module
from odradek.broker.running import BrokerThread
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.files import FileSystem
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH, MAX_RECORDS_PER_USER_OP
from odradek.storage.metadata.metadata_image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from odradek.testing.wire import WireClient
from peers.broker_thread import connect
from peers.group_requests import commit, fetched, find_coordinator
from peers.requests import ask, message, new_topic
from unit.broker.conftest import LISTENERS

INCREMENTAL_ALTER_CONFIGS = 44
UNKNOWN_TOPIC, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, UNKNOWN_TOPIC_ID = 3, 40, 42, 44, 100
SET, APPEND = 0, 2


class FailingFiles(FileSystem):
    """A disk on which a call fails from a given one on, some times, and which counts its syncs of folders."""

    def __init__(self) -> None:
        self.fails: str | None = None
        self.left = 0
        self.most = 1000
        self.synced: list[Path] = []

    def _attempt(self, call: str, path: Path) -> None:
        if self.fails == call:
            self.left -= 1
            if self.left < 0 <= self.left + self.most:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def rename(self, source: Path, target: Path) -> None:
        if target.name.endswith("-delete"):
            self._attempt("rename", target)
        super().rename(source, target)

    def make_directory(self, path: Path) -> None:
        self._attempt("make_directory", path)
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        self._attempt("sync_directory", path)
        super().sync_directory(path)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def running(tmp_path: Path, files: FailingFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    monkeypatch.setattr(running_module, "open_log_directory", partial(open_log_directory, files=files))
    config = {**LISTENERS, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerThread(tmp_path / "data", config, background=False) as running:
        yield running


@pytest.fixture
def client(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running) as client:
        yield client


def _codes(answer: Any) -> dict[str, int]:
    [answers] = [getattr(answer, name) for name in ("responses", "results", "topics") if hasattr(answer, name)]
    return {getattr(one, "name", None) or one.resource_name: int(one.error_code) for one in answers}


def _delete(client: WireClient, names: str) -> dict[str, int]:
    return _codes(ask(client, "DeleteTopics", 5, topic_names=list(names)))


# -- two clients at once


@pytest.mark.parametrize("by_id", [True, False])
def test_a_topic_that_got_the_name_of_the_one_to_be_deleted_stays(
    by_id: bool, running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = running.broker.logs
    made = [logs.create_topic(name, 1) for name in "ab"]
    delete_topics, newer = logs.delete_topics, list[UUID | None]()

    def after_another(names: Any) -> None:
        if not newer:
            delete_topics(["b"])
            newer.append(logs.create_topic("b", 1).topic_id)
        delete_topics(names)

    monkeypatch.setattr(logs, "delete_topics", after_another)
    topics = [{"name": None, "topic_id": one.topic_id} if by_id else {"name": one.name} for one in made]
    answer = ask(client, "DeleteTopics", 6, topics=topics)
    assert _codes(answer) == {"a": 0, "b": UNKNOWN_TOPIC_ID}
    assert {name: topic.topic_id for name, topic in logs.metadata_image.topics.items()} == {"b": newer[0]}


def _appended(word: str) -> dict[str, Any]:
    config = {"name": "follower.replication.throttled.replicas", "config_operation": APPEND, "value": word}
    return {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": "t", "configs": [config]}]}


def test_words_that_two_clients_append_at_once_are_both_kept(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata, both_asked = type(running.broker.logs.metadata), Event()
    alter_configs = metadata.alter_configs
    running.broker.logs.create_topic("t", 1)

    def waiting(*arguments: Any) -> None:
        assert both_asked.wait(60)
        alter_configs(*arguments)

    monkeypatch.setattr(metadata, "alter_configs", waiting)
    key = INCREMENTAL_ALTER_CONFIGS
    with connect(running) as other:
        sent = client.send(key, 1, message("IncrementalAlterConfigs", **_appended("0:1")))
        also_sent = other.send(key, 1, message("IncrementalAlterConfigs", **_appended("1:1")))
        # The loop has read what both have asked for.
        with connect(running) as third:
            ask(third, "ApiVersions", 0)
        both_asked.set()
        answers = client.receive(key, 1, sent), other.receive(key, 1, also_sent)
    assert [_codes(answer) for answer in answers] == [{"t": 0}, {"t": 0}]
    assert running.broker.logs.metadata_image.topic_config("t") == {
        "follower.replication.throttled.replicas": "0:1,1:1"
    }


def test_settings_of_a_topic_that_another_client_deletes(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = running.broker.logs
    for name in "ab":
        logs.create_topic(name, 1)
    alter_configs = type(logs.metadata).alter_configs

    def after_another(*arguments: Any) -> None:
        if "b" in logs.topics():
            logs.delete_topic("b")
        alter_configs(*arguments)

    monkeypatch.setattr(type(logs.metadata), "alter_configs", after_another)
    config = {"name": "retention.ms", "value": "1", "config_operation": SET}
    resources = [{"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": [config]} for name in "ab"]
    answer = ask(client, "IncrementalAlterConfigs", 1, resources=resources)
    assert _codes(answer) == {"a": 0, "b": UNKNOWN_TOPIC}
    assert answer.responses[1].error_message == "The topic 'b' does not exist."


# -- a disk that fails after the metadata have the change


@pytest.mark.parametrize("left", [0, 3])
def test_topics_whose_folders_cannot_be_renamed_are_deleted_with_their_offsets(
    left: int, running: BrokerThread, client: WireClient, files: FailingFiles
) -> None:
    for name in "ab":
        running.broker.logs.create_topic(name, 2)
    find_coordinator(client)
    assert commit(client, "g", {0: 7}, topic="a") == [0]
    files.fails, files.left = "rename", left
    assert _delete(client, "ab") == {"a": 0, "b": 0}
    assert not {"a", "b"} & running.broker.logs.metadata_image.topics.keys()
    files.fails = None
    running.broker.logs.create_topic("a", 1)
    assert running.broker.logs["a", 0].log_end_offset == 0
    assert fetched(client, "g", [0], topic="a") == [(-1, 0)]


def test_a_topic_that_has_grown_before_the_disk_was_full_has_grown(
    running: BrokerThread, client: WireClient, files: FailingFiles
) -> None:
    for name in "ab":
        running.broker.logs.create_topic(name, 1)
    files.fails, files.left = "make_directory", 1
    asked = [{"name": name, "count": 3, "assignments": None} for name in "ab"]
    assert _codes(ask(client, "CreatePartitions", 3, topics=asked)) == {"a": 0, "b": 0}
    files.fails = None
    assert [running.broker.logs[name, number].log_end_offset for name in "ab" for number in range(3)] == [0] * 6


def test_topics_that_were_created_before_the_disk_was_full_exist(
    running: BrokerThread, client: WireClient, files: FailingFiles
) -> None:
    files.fails, files.left = "make_directory", 1
    assert _codes(ask(client, "CreateTopics", 5, topics=[new_topic(name) for name in "ab"])) == {"a": 0, "b": 0}
    files.fails = None
    assert [running.broker.logs[name, 0].log_end_offset for name in "ab"] == [0, 0]


def test_a_setting_of_the_broker_that_the_metadata_have_is_in_use(
    running: BrokerThread, client: WireClient, files: FailingFiles
) -> None:
    config = {"name": "max.connections", "value": "4321", "config_operation": SET}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": [config]}
    # The new file has its name already.
    files.fails, files.left, files.most = "sync_directory", 0, 1
    ask(client, "IncrementalAlterConfigs", 1, resources=[resource])
    in_metadata = running.broker.logs.metadata_image.broker_config(1).get("max.connections")
    assert (in_metadata, running.broker.config["max.connections"]) == ("4321", 4321)


def test_a_folder_is_synced_once_for_all_that_is_deleted_in_it(
    running: BrokerThread, client: WireClient, files: FailingFiles, tmp_path: Path
) -> None:
    for name in "abcd":
        running.broker.logs.create_topic(name, 5)
    files.synced.clear()
    assert set(_delete(client, "abcd").values()) == {0}
    assert len(list((tmp_path / "data").glob("*-delete"))) == 20
    # Once for the metadata, and once for all the folders of partitions.
    assert files.synced.count(tmp_path / "data") == 2


# -- too many


def _grown(count: int) -> list[dict[str, Any]]:
    return [{"name": name, "count": count, "assignments": None} for name in ("a", "b", "unknown")]


@pytest.mark.parametrize("validate_only", [True, False])
def test_no_topic_grows_if_all_together_would_grow_too_much(
    validate_only: bool, running: BrokerThread, client: WireClient
) -> None:
    for name in "ab":
        running.broker.logs.create_topic(name, 1)
    count = MAX_PARTITIONS_PER_BATCH // 2 + 2
    answer = ask(client, "CreatePartitions", 3, topics=_grown(count), validate_only=validate_only)
    assert _codes(answer) == dict.fromkeys(["a", "b", "unknown"], POLICY_VIOLATION)
    reason = "Excessively large number of additional partitions per request."
    assert {one.error_message for one in answer.results} == {reason}
    assert [len(running.broker.logs.metadata_image.topics[name].partitions) for name in "ab"] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("validate_only", [True, False])
def test_no_setting_changes_if_too_many_are_to_change(
    validate_only: bool, running: BrokerThread, client: WireClient
) -> None:
    before = running.broker.logs.metadata_image.configs
    names = ["share.heartbeat.interval.ms", "consumer.heartbeat.interval.ms", "streams.heartbeat.interval.ms"]
    configs = [{"name": name, "value": "6000", "config_operation": SET} for name in names]
    groups = [f"g{number}" for number in range(MAX_RECORDS_PER_USER_OP // len(names) + 1)]
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": name, "configs": configs} for name in groups]
    of_broker = {"name": "log.cleaner.threads", "value": "2", "config_operation": SET}
    resources.insert(0, {"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": [of_broker]})
    answer = ask(client, "IncrementalAlterConfigs", 1, resources=resources, validate_only=validate_only)
    assert {int(one.error_code) for one in answer.responses} == {POLICY_VIOLATION}
    assert len(answer.responses) == len(resources)
    assert {one.error_message for one in answer.responses} == {"Unable to perform excessively large batch operation."}
    assert running.broker.logs.metadata_image.configs == before


def test_more_settings_of_a_broker_than_change_at_a_time(running: BrokerThread, client: WireClient) -> None:
    before = running.broker.logs.metadata_image.configs
    names = [f"own.{number}" for number in range(MAX_RECORDS_PER_USER_OP + 1)]
    configs = [{"name": name, "value": "1", "config_operation": SET} for name in names]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": configs}
    [found] = ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert int(found.error_code) == POLICY_VIOLATION
    assert running.broker.logs.metadata_image.configs == before


# -- one of several


def test_a_check_that_fails_by_a_mistake_is_the_error_of_one_resource(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        running.broker.logs.create_topic(name, 1)
    check_topic = running.broker.configs.check_topic

    def failing(overrides: dict[str, str]) -> None:
        if "2" in overrides.values():
            raise ZeroDivisionError
        check_topic(overrides)

    monkeypatch.setattr(running.broker.configs, "check_topic", failing)
    resources = [
        {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": name,
            "configs": [{"name": "retention.ms", "value": value, "config_operation": SET}],
        }
        for name, value in (("a", "1"), ("b", "2"))
    ]
    answer = ask(client, "IncrementalAlterConfigs", 1, resources=resources)
    assert _codes(answer) == {"a": 0, "b": -1}
    assert running.broker.logs.metadata_image.topic_config("a") == {"retention.ms": "1"}
    # The turn is over.
    assert _codes(ask(client, "IncrementalAlterConfigs", 1, resources=resources[:1])) == {"a": 0}


@pytest.mark.parametrize(
    ("kind", "of", "name", "value", "code"),
    [
        (TOPIC_RESOURCE, "t", "min.cleanable.dirty.ratio", "1e309", INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", "min.cleanable.dirty.ratio", "-1e309", INVALID_CONFIG),
        (GROUP_RESOURCE, "g", "streams.rack.aware.assignment.tags", ",", INVALID_CONFIG),
        (BROKER_RESOURCE, "", "log.cleaner.io.max.bytes.per.second", "1e309", 0),
    ],
)
def test_values_without_a_number(
    kind: int, of: str, name: str, value: str, code: int, running: BrokerThread, client: WireClient
) -> None:
    running.broker.logs.create_topic("t", 1)
    config = {"name": name, "value": value, "config_operation": SET}
    resource = {"resource_type": kind, "resource_name": of, "configs": [config]}
    [found] = ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert int(found.error_code) == code
    asked = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": [name]}
    [described] = ask(client, "DescribeConfigs", 1, resources=[asked], include_synonyms=False).results
    assert int(described.error_code) == 0
    assert [one.value for one in described.configs] == ["Infinity"] * (code == 0)


# -- ids


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("1 ", "Node id must be an integer, but it is: 1 "),
        ("0_1", "Node id must be an integer, but it is: 0_1"),
        ("01", "Unexpected broker id, expected 1, but received 01"),
        ("+1", "Unexpected broker id, expected 1, but received +1"),
        ("１", "Unexpected broker id, expected 1, but received １"),
    ],
)
@pytest.mark.parametrize("value", ["1000", None])
def test_settings_are_never_written_where_no_broker_looks_for_them(
    name: str, reason: str, value: str | None, running: BrokerThread, client: WireClient
) -> None:
    before = running.broker.logs.metadata_image.configs
    config = {"name": "log.retention.ms", "value": value, "config_operation": 0 if value else 1}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": name, "configs": [config]}
    [found] = ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert (int(found.error_code), found.error_message) == (INVALID_REQUEST, reason)
    assert running.broker.logs.metadata_image.configs == before
