"""What each API asks the authorizer for: all of them are in the table, and ask for what it says, and nothing else."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

import odradek
from odradek.broker.access import ACCESS, OPEN
from odradek.broker.api import ADVERTISED
from odradek.broker.authorization import Authorization
from odradek.broker.protocol import encode_request, request_class
from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.broker.running import BrokerThread
from odradek.coordination.authorization.acls import Acl, Operation, ResourceType, of_codes
from odradek.errors import InvalidConfigError, LogError, ProtocolError
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.directory.metadata_changes import MetadataChanges
from odradek.testing.wire import WireClient
from peers import tokens
from peers.process import wait_for
from peers.request_examples import example
from peers.requests import ask, batch, fetch_message, new_topic, produce_message, produced
from peers.sized_requests import Variety, arrays_of, oldest_and_newest
from peers.tokens import CREATE, DESCRIBE

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LIST_TRANSACTIONS = 66
ALTERS = (CLUSTER, "kafka-cluster", 3, "User:ANONYMOUS", "*", int(Operation.ALTER), 3)
"""An ACL of the client of these tests, who may change them, and nothing else."""


def folder_with(path: Path, *acls: tuple[Any, ...]) -> Path:
    with odradek.open(path / "data") as logs:
        for topic in ("events", "t0"):
            logs.create_topic(topic)
        logs.metadata.create_acls([Acl(*of_codes(*acl)) for acl in acls])
    return path / "data"


def serve(path: Path, **config: str) -> BrokerThread:
    settings = {name.replace("_", "."): text for name, text in config.items()}
    own = {"listeners": "PLAINTEXT://127.0.0.1:0", "authorizer.class.name": STANDARD_AUTHORIZER}
    return BrokerThread(path, {**own, **settings}, sync="off", background=False)


def client_of(running: BrokerThread) -> WireClient:
    endpoint = running.endpoint()
    return WireClient(endpoint.host, endpoint.port, timeout_s=20)


def client_for(key: int, running: BrokerThread) -> WireClient:
    """Returns a client that may send requests of an API: for delegation tokens it has to log in."""
    if key not in (CREATE, DESCRIBE):
        return client_of(running)
    return tokens.Broker(0, running.endpoint("SASL").port).user("alice")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[WireClient]:
    """A client that may change the ACLs, and nothing else."""
    with ExitStack() as stack:
        running = stack.enter_context(serve(folder_with(tmp_path, ALTERS)))
        yield stack.enter_context(client_of(running))


def create(client: WireClient, kind: int, name: str, operation: Operation, permission: int = 3) -> int:
    acl = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "operation": int(operation),
        "permission_type": permission,
    }
    return int(ask(client, "CreateAcls", 3, creations=[acl]).results[0].error_code)


def delete_all(client: WireClient, kind: int) -> int:
    every = {"resource_type_filter": kind, "resource_name_filter": None, "pattern_type_filter": 1}
    every |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    [result] = ask(client, "DeleteAcls", 3, filters=[every]).filter_results
    assert not result.error_code
    return len(result.matching_acls)


# -- the table


def test_each_api_is_in_the_table_or_open_to_everybody() -> None:
    assert [key for key in ADVERTISED if key not in ACCESS and key not in OPEN] == []
    assert OPEN.isdisjoint(ACCESS)
    for key, access in ACCESS.items():
        assert access.gates or access.asked, key


def requests_of(key: int, topic_ids: Sequence[UUID]) -> Iterator[bytes]:
    for growing in arrays_of(key, oldest_and_newest):
        yield bytes(growing.frame(2, Variety.KNOWN, topic_ids))
    if key == LIST_TRANSACTIONS:
        # The others ask for states that there are not.
        yield encode_request(key, 0, 1, "tests", {"state_filters": [], "producer_id_filters": []})[4:]
    for version in oldest_and_newest(ADVERTISED[key][1]):
        if key or version > 2:
            yield encode_request(key, version, 1, "tests", example(request_class(key, version)))[4:]


POLICIES: dict[str, Callable[[Operation, ResourceType], bool]] = {
    "nobody may do anything": lambda operation, kind: False,
    "everybody may do everything": lambda operation, kind: True,
    "all but the cluster": lambda operation, kind: kind is not ResourceType.CLUSTER,
    "all but topics": lambda operation, kind: kind is not ResourceType.TOPIC,
}


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_each_api_asks_for_what_the_table_says(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[Operation, ResourceType]] = set()
    is_starting = True

    def decide(_: Any, __: Any, operation: Operation, kind: ResourceType, *name: str, is_told: bool = True) -> bool:
        asked.add((operation, kind))
        if is_starting:
            return True
        return POLICIES[policy](operation, kind)

    monkeypatch.setattr(Authorization, "allows", decide)
    monkeypatch.setattr(Authorization, "allows_with_any", decide)
    config = {"transaction.state.log.num.partitions": "1", "listeners": tokens.LISTENERS, **tokens.CONFIG}
    with serve(folder_with(tmp_path), **config) as running:
        topic_ids = [running.broker.logs.metadata_image.topics[name].topic_id or ZERO_UUID for name in ("t0", "events")]
        with client_of(running) as client:
            assert not ask(client, "InitProducerId", 2, transactional_id="id").error_code
        with tokens.Broker(0, running.endpoint("SASL").port).user("bob") as bob:
            assert bob.create(owner="t0")[0] == "NONE"
        is_starting = False
        for key in ADVERTISED:
            asked.clear()
            for frame in requests_of(key, topic_ids):
                with client_for(key, running) as client, suppress(ProtocolError):
                    client.socket.sendall(struct.pack(">i", len(frame)) + frame)
                    client.receive_frame()
            access = ACCESS.get(key)
            if access is None:
                assert not asked, key
                continue
            declared = {*access.asked, *((gate.operation, gate.resource_type) for gate in access.gates)}
            assert asked, f"API key {key} asks for nothing"
            assert asked <= declared, f"API key {key} asks for what its line in the table does not have"


# -- what is refused, where the judge of `tests/interop/test_broker_acls.py` does not look


def test_a_client_that_may_not_create_a_topic_gets_none_by_asking_for_it(client: WireClient) -> None:
    create(client, TOPIC, "new", Operation.DESCRIBE)
    asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
    assert ask(client, "Metadata", 9, **asked).topics[0].error_code == DENIED
    create(client, TOPIC, "new", Operation.CREATE)
    assert ask(client, "Metadata", 9, **asked).topics[0].error_code == ErrorCode.none


DENIED = ErrorCode.topic_authorization_failed


def test_a_fetch_session_notices_that_its_client_may_not_read_any_more(client: WireClient) -> None:
    create(client, TOPIC, "events", Operation.READ)
    first = client.call(1, 12, fetch_message(session_id=0, session_epoch=0, rack_id=""))
    assert first.responses[0].partitions[0].error_code == ErrorCode.none
    more = {**fetch_message(rack_id=""), "session_id": first.session_id, "topics": [], "max_wait_ms": 0}
    assert client.call(1, 12, {**more, "session_epoch": 1}).responses == ()
    assert delete_all(client, TOPIC) == 1
    refused = client.call(1, 12, {**more, "session_epoch": 2})
    assert refused.responses[0].partitions[0].error_code == DENIED
    create(client, TOPIC, "events", Operation.ALL)
    allowed = client.call(1, 12, {**more, "session_epoch": 3})
    assert allowed.responses[0].partitions[0].error_code == ErrorCode.none


def test_a_batch_of_the_usual_form_is_refused_as_any_other(client: WireClient) -> None:
    assert produced(client.call(0, 9, produce_message(batch(b"a"))))[0] == DENIED
    create(client, TOPIC, "events", Operation.WRITE)
    assert produced(client.call(0, 9, produce_message(batch(b"a")))) == (0, 0)
    assert produced(client.call(0, 9, produce_message(batch(b"b")))) == (0, 1)
    create(client, TOPIC, "events", Operation.WRITE, permission=2)
    assert produced(client.call(0, 9, produce_message(batch(b"c"))))[0] == DENIED


def test_a_refused_client_lets_no_internal_topic_be_created(client: WireClient) -> None:
    asked = {"key_type": 0, "coordinator_keys": ["a", "b"]}
    found = ask(client, "FindCoordinator", 4, **asked).coordinators
    assert {one.error_code for one in found} == {ErrorCode.group_authorization_failed}
    create(client, CLUSTER, "kafka-cluster", Operation.ALL)
    create(client, TOPIC, "__consumer_offsets", Operation.DESCRIBE)
    assert ask(client, "Metadata", 9, topics=None).topics == ()


@pytest.mark.slow
def test_what_is_refused_does_not_count_against_the_quota_of_mutations(client: WireClient) -> None:
    def create_topic(name: str) -> Any:
        return ask(client, "CreateTopics", 7, topics=[new_topic(name, 50)])

    create(client, CLUSTER, "kafka-cluster", Operation.ALTER_CONFIGS)
    create(client, TOPIC, "new", Operation.ALL)
    ops = [{"key": "controller_mutation_rate", "value": 0.1, "remove": False}]
    entry = {"entity": [{"entity_type": "user", "entity_name": "ANONYMOUS"}], "ops": ops}
    assert not ask(client, "AlterClientQuotas", 1, entries=[entry]).entries[0].error_code
    refused = create_topic("secret")
    assert (refused.topics[0].error_code, refused.throttle_time.total_seconds()) == (DENIED, 0)
    assert create_topic("new").topics[0].error_code == ErrorCode.none
    # It is refused although it would be above the quota now, with which clients would try again.
    assert create_topic("secret").topics[0].error_code == DENIED


def test_acls_outlive_the_broker_and_are_deleted_for_good(tmp_path: Path) -> None:
    path = folder_with(tmp_path, ALTERS)
    with serve(path) as running, client_of(running) as client:
        create(client, TOPIC, "events", Operation.READ)
        create(client, TOPIC, "events", Operation.READ)
        create(client, TOPIC, "t0", Operation.READ)
    with serve(path) as running, client_of(running) as client:
        assert delete_all(client, TOPIC) == 2
        assert delete_all(client, TOPIC) == 0
    with odradek.open(path) as logs:
        assert [Acl.of_record(record)[:2] for record in logs.metadata_image.acls.values()] == [ALTERS[:2]]


def test_without_an_authorizer_there_are_no_acls_to_be_changed(tmp_path: Path) -> None:
    with serve(folder_with(tmp_path), authorizer_class_name="") as running, client_of(running) as client:
        assert create(client, TOPIC, "events", Operation.READ) == ErrorCode.security_disabled


@pytest.mark.parametrize("everybody", ["true", "false"])
def test_what_no_acl_is_about_is_for_everybody_or_nobody(tmp_path: Path, everybody: str) -> None:
    path = folder_with(tmp_path, (TOPIC, "events", 3, "User:carol", "*", int(Operation.READ), 3))
    settings = {"allow.everyone.if.no.acl.found": everybody}
    with serve(path, **settings) as running, client_of(running) as client:
        found = {one.name for one in ask(client, "Metadata", 9, topics=None).topics}
        assert found == ({"t0"} if everybody == "true" else set())


def test_super_users_may_do_everything(tmp_path: Path) -> None:
    path = folder_with(tmp_path, (TOPIC, "*", 3, "User:*", "*", int(Operation.ALL), 2))
    with serve(path, super_users="User:CN=a,O=b; User:ANONYMOUS") as running, client_of(running) as client:
        assert {one.name for one in ask(client, "Metadata", 9, topics=None).topics} == {"events", "t0"}


def test_a_super_user_needs_a_type(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="'alice' is not of the form User:NAME"):
        serve(folder_with(tmp_path), super_users="User:bob;alice")


def test_a_refusal_is_logged_once_a_minute(
    client: WireClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.refusals._MOST_TOLD", 2)
    caplog.set_level(logging.INFO, logger="odradek.broker.authorization")
    asked = {"topics": [{"name": "secret"}]}
    for _ in range(3):
        ask(client, "Metadata", 9, **asked)
    assert caplog.messages == ["User:ANONYMOUS may not DESCRIBE TOPIC secret (from 127.0.0.1)"]
    ask(client, "Metadata", 9, topics=[{"name": f"t{number}"} for number in range(9)])
    assert len(caplog.messages) == 2


@pytest.mark.slow
def test_a_pattern_matches_only_topics_that_the_member_may_describe(client: WireClient) -> None:
    for kind, name, operation in ((GROUP, "g", Operation.ALL), (TOPIC, "events", Operation.DESCRIBE)):
        create(client, kind, name, operation)
    create(client, CLUSTER, "kafka-cluster", Operation.DESCRIBE)
    assert not ask(client, "FindCoordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code
    member = {"group_id": "g", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "rebalance_timeout_ms": 60_000}
    joined = ask(
        client, "ConsumerGroupHeartbeat", 1, **member, member_epoch=0, subscribed_topic_regex=".*", topic_partitions=[]
    )
    assert not joined.error_code, joined
    epoch = joined.member_epoch
    found: list[set[str]] = []

    def is_assigned() -> bool:
        nonlocal epoch
        epoch = ask(client, "ConsumerGroupHeartbeat", 1, **member, member_epoch=epoch).member_epoch
        [group] = ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups
        assert not group.error_code, group
        found.append({one.topic_name for one in group.members[0].target_assignment.topic_partitions})
        return bool(found[-1])

    wait_for(is_assigned, 20, "an assignment")
    assert found[-1] == {"events"}


# -- found by an attack


def codes_of(topics: Any) -> dict[str, int]:
    return {topic.name: int(one.error_code) for topic in topics for one in topic.partitions}


@pytest.mark.parametrize("group_id", ["", "g" * 40_000], ids=["empty", "too long"])
@pytest.mark.parametrize("api", ["OffsetCommit", "TxnOffsetCommit"])
def test_a_commit_that_fails_as_a_whole_tells_nothing_of_other_topics(
    client: WireClient, api: str, group_id: str
) -> None:
    for kind, name, operation in (
        (GROUP, "*", Operation.READ),
        (TOPIC, "events", Operation.READ),
        (TRANSACTIONAL_ID, "id", Operation.WRITE),
    ):
        create(client, kind, name, operation)
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topics = [{"name": name, "partitions": partitions} for name in ("events", "t0", "none")]
    own = {"group_id": group_id, "topics": topics}
    if api == "TxnOffsetCommit":
        answer = ask(client, api, 5, **own, transactional_id="id", producer_id=1, producer_epoch=0)
    else:
        answer = ask(client, api, 8, **own)
    codes = codes_of(answer.topics)
    assert codes.pop("events") not in (ErrorCode.none, DENIED)
    assert codes == {"t0": DENIED, "none": DENIED}


def test_asking_for_no_coordinator_creates_no_internal_topic(client: WireClient) -> None:
    create(client, TOPIC, "*", Operation.DESCRIBE)
    for key_type in (0, 1):
        assert ask(client, "FindCoordinator", 4, key_type=key_type, coordinator_keys=[]).coordinators == ()
    assert {one.name for one in ask(client, "Metadata", 9, topics=None).topics} == {"events", "t0"}


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["without a session", "in a session"])
def test_a_fetch_that_waits_gives_nothing_that_its_client_may_not_read_any_more(
    client: WireClient, session_epoch: int
) -> None:
    create(client, TOPIC, "events", Operation.READ)
    address = client.socket.getpeername()[:2]
    waits: dict[str, Any] = {"max_wait_ms": 30_000, "session_id": 0, "session_epoch": session_epoch, "rack_id": ""}
    with WireClient(*address, timeout_s=40) as reader:
        # So that the broker has accepted it, and its next request comes first.
        ask(reader, "Metadata", 9, topics=None)
        asked = reader.send(1, 12, fetch_message(**waits))
        assert delete_all(client, TOPIC) == 1
        create(client, TOPIC, "events", Operation.WRITE)
        assert produced(client.call(0, 9, produce_message(batch(b"secret")))) == (0, 0)
        [row] = reader.receive(1, 12, asked).responses[0].partitions
    assert (row.error_code, row.records or b"") == (DENIED, b"")


def test_what_a_change_of_acls_has_left_that_failed_is_enforced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder_with(tmp_path, ALTERS, (TOPIC, "events", 3, "User:*", "*", int(Operation.READ), 3))
    create_acls = MetadataChanges.create_acls

    def create_and_fail(self: MetadataChanges, acls: Sequence[Acl]) -> None:
        create_acls(self, acls)
        raise LogError("the disk failed after the ACLs were on it")

    with serve(path) as running, client_of(running) as client:
        assert client.call(1, 11, fetch_message()).responses[0].partitions[0].error_code == ErrorCode.none
        monkeypatch.setattr(MetadataChanges, "create_acls", create_and_fail)
        assert create(client, TOPIC, "events", Operation.READ, permission=2) != ErrorCode.none
        assert client.call(1, 11, fetch_message()).responses[0].partitions[0].error_code == DENIED


def test_what_a_connection_may_is_asked_again_after_each_change(client: WireClient) -> None:
    def codes(topic: str) -> list[int]:
        """Produce and fetch twice each: the second time the connection remembers."""
        found = []
        for _ in range(2):
            found.append(produced(client.call(0, 9, produce_message(batch(b"a"), topic=topic)))[0])
            found.append(client.call(1, 11, fetch_message(topic=topic)).responses[0].partitions[0].error_code)
        return found

    assert codes("events") == [DENIED] * 4
    create(client, TOPIC, "events", Operation.READ)
    assert codes("events") == [DENIED, 0] * 2
    create(client, TOPIC, "events", Operation.WRITE)
    assert codes("events") == [0] * 4
    assert codes("t0") == [DENIED] * 4
    create(client, TOPIC, "events", Operation.WRITE, permission=2)
    assert codes("events") == [DENIED, 0] * 2
    delete_all(client, TOPIC)
    assert codes("events") == [DENIED] * 4


def test_a_connection_remembers_only_so_much(client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.authorization._MOST_LEARNED", 1)
    for topic in ("events", "t0"):
        create(client, TOPIC, topic, Operation.READ)
    for topic in ("events", "t0", "events"):
        assert client.call(1, 11, fetch_message(topic=topic)).responses[0].partitions[0].error_code == 0


def test_a_connection_remembers_no_long_names(tmp_path: Path) -> None:
    """With rights to all topics a client may read what no topic is called."""
    with serve(folder_with(tmp_path, ALTERS)) as running, client_of(running) as client:
        create(client, TOPIC, "*", Operation.READ)
        for name in ("events", "x" * 250):
            client.call(1, 11, fetch_message(topic=name))
        assert [one.allowed[1] for one in running.call(lambda: list(running.server.connections))] == [{"events"}]
