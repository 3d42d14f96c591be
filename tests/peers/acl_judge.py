"""Judges brokers by requests of users with random access control lists: all have to answer the same.

    access control lists           of several sets at once: each has its users, and a few lists are about everybody
    requests of all sets           by all connections at once; what differs is asked again, alone
    requests that change topics    one at a time

Apache Kafka needs most of its time until it has new lists, and until each client has its answer and sends the next
request: so sets share the one, and requests do not wait for each other.

What differs between any two brokers is left out of the answers: what remains are the errors, the names of what is
listed, and the operations that a client is told it may do.
"""

from __future__ import annotations

import dataclasses
import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from kio.schema.errors import ErrorCode

from odradek.broker.api import ADVERTISED
from odradek.coordination.authorization.acls import EVERYBODY
from odradek.testing.wire import WireClient
from peers.acl_requests import (
    ADDRESS,
    ASKED,
    CONSUMER_GROUP,
    DELETED,
    GROUPS,
    HOSTS,
    IDS,
    METRICS,
    SCRAM_USER,
    SHARE_GROUP,
    SHARE_KEY,
    TOKEN_ID,
    TOKEN_PREFIX,
    TOKEN_SECRET,
    TOPIC_ID,
    TOPICS,
    USERS,
    Own,
    Requests,
    new_credential,
    random_acl,
    random_acls,
    version_of,
)
from peers.process import wait_for
from peers.requests import new_topic

HANDSHAKE, AUTHENTICATE, CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS = 17, 36, 30, 31, 29
METADATA, FIND, CREATE_TOPICS, DELETE_TOPICS = 3, 10, 19, 20
ALTER_CONFIGS, ALTER_QUOTAS, ALTER_USERS = 44, 49, 51
CREATE_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKENS, INIT_PRODUCER_ID = 38, 40, 41, 22
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
PASSWORDS = {user: f"{user}-secret" for users in USERS for user in users}
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
PREFIX_LENGTH = 8
CHANGING = {19, 20, 22, 30, 31, 37, 38}
"""The APIs whose requests are not sent again, for they may have changed something."""

NOT_YET = {5, 6, 14, 15, 16, 51}

EVERY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
VARYING = {
    "error_message",
    "group_state",
    "transaction_state",
    "configs",
    "generation_id",
    "leader",
    "member_id",
    "listeners",
}
NAMES = {
    "group_id",
    "key",
    "name",
    "resource_name",
    "topic",
    "topic_name",
    "transactional_id",
    "principal",
    "topic_config_error_code",
    "user",
    "entity_name",
    "token_id",
    "principal_name",
    "token_requester_principal_name",
}


def login(port: int, user: str, host: str = HOSTS[0]) -> WireClient:
    """Returns a connection from a host, of a user that has logged in."""
    client = WireClient("127.0.0.1", port)
    client.socket.close()
    client.socket = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(host, 0))
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    answer = client.call(AUTHENTICATE, 2, {"auth_bytes": f"\0{user}\0{PASSWORDS[user]}".encode()})
    assert not answer.error_code, answer
    return client


def codes(value: Any) -> set[int]:
    """Returns all errors of an answer."""
    if dataclasses.is_dataclass(value):
        found = set[int]()
        for one in dataclasses.fields(value):
            if one.metadata.get("kafka_type") == "error_code":
                found.add(int(getattr(value, one.name)))
            found |= codes(getattr(value, one.name))
        return found - {0}
    return set().union(*map(codes, value)) if isinstance(value, tuple) else set()


class Judged:
    """A broker with topics, groups and transactions of known names.

    Args:
        name: What it is called when it differs.
        port: Where nobody logs in, and everybody may do everything.
        sasl_port: Where users log in.
    """

    def __init__(self, name: str, port: int, sasl_port: int) -> None:
        self.name = name
        self.admin = WireClient("127.0.0.1", port)
        self.users = {(user, host): login(sasl_port, user, host) for user in PASSWORDS for host in HOSTS}
        self.own: dict[Own, Any] = {}
        self.owners: dict[Any, Own] = {}
        self.new_tokens: list[tuple[str, bytes]] = []

    def close(self) -> None:
        """Close the connections."""
        for client in (self.admin, *self.users.values()):
            client.close()

    def set_up(self) -> None:
        """Create what the requests are about."""
        self.create({**TOPICS, **dict.fromkeys(DELETED, 1)})
        self.set_configs()
        self.create_tokens()
        for key_type, key in ((0, "any"), (1, "any"), (2, SHARE_KEY)):
            self.later(FIND, 6, {"key_type": key_type, "coordinator_keys": [key]})
        for group in GROUPS:
            rows = [
                {"partition_index": 0, "committed_offset": 0, "committed_metadata": "", "committed_leader_epoch": -1}
            ]
            topics: list[dict[str, Any]] = [{"name": name, "partitions": rows} for name in ("t-a", "x")]
            fields = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
            self.later(8, 7, {"group_id": group, **fields, "topics": topics})
        for one in IDS:
            asked = {
                "transactional_id": one,
                "transaction_timeout_ms": 900_000,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            made = self.later(22, 4, asked)
            topics = [{"name": name, "partitions": [0]} for name in ("t-b", "x")]
            message = {
                "v3_and_below_transactional_id": one,
                "v3_and_below_producer_id": made.producer_id,
                "v3_and_below_producer_epoch": made.producer_epoch,
                "v3_and_below_topics": topics,
            }
            self.later(24, 3, message)
        joining: dict[str, Any] = {
            "member_id": MEMBER_ID,
            "member_epoch": 0,
            "rack_id": None,
            "subscribed_topic_names": ["t-a", "t-b"],
        }
        more: dict[str, Any] = {
            "instance_id": None,
            "rebalance_timeout_ms": 600_000,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        self.later(68, 1, {"group_id": CONSUMER_GROUP, **joining, **more})
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            answer = self.later(76, 1, {"group_id": SHARE_GROUP, **joining, "member_epoch": epoch})
            epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        wait_for(is_assigned, 60, "an assignment")

    def set_configs(self) -> None:
        """Set what the requests about settings, quotas and users of SCRAM are about."""
        configs = [{"name": "interval.ms", "config_operation": 0, "value": "1000"}]
        metrics = {"resource_type": 16, "resource_name": METRICS, "configs": configs}
        self.later(ALTER_CONFIGS, 1, {"resources": [metrics], "validate_only": False})
        # A quota of clients would send all Produce requests of this broker by the longer way.
        entity = [{"entity_type": "ip", "entity_name": ADDRESS}]
        ops = [{"key": "connection_creation_rate", "value": 1000.0, "remove": False}]
        self.later(ALTER_QUOTAS, 1, {"entries": [{"entity": entity, "ops": ops}], "validate_only": False})
        self.later(ALTER_USERS, 0, {"deletions": [], "upsertions": [new_credential(SCRAM_USER, 4096)]})

    def later(self, key: int, version: int, message: Mapping[str, Any]) -> Any:
        """Returns the answer to a request, once the broker is ready."""
        answers: list[Any] = []

        def is_ready() -> bool:
            answers[:] = [self.admin.call(key, version, message)]
            return not NOT_YET & codes(answers[0])

        wait_for(is_ready, 60, ADVERTISED[key][0])
        assert not codes(answers[0]), answers[0]
        return answers[0]

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics, and wait until they can be used."""
        rows = [new_topic(name, count) for name, count in topics.items()]
        created = self.admin.call(CREATE_TOPICS, 7, {"topics": rows, "timeout_ms": 10_000, "validate_only": False})
        new_ids = {one.name: one.topic_id for one in created.topics if not one.error_code}

        def are_known() -> bool:
            asked = {
                "topics": [{"name": name, "topic_id": None} for name in topics],
                "allow_auto_topic_creation": False,
            }
            answer = self.admin.call(METADATA, 12, asked)
            found = {one.name: one.topic_id for one in answer.topics}
            self.know({Own(TOPIC_ID, name): topic_id for name, topic_id in found.items() if topic_id is not None})
            # Apache Kafka's broker may not know yet that the topic before was deleted.
            return not codes(answer) and new_ids.items() <= found.items()

        wait_for(are_known, 30, "topics")

    def know(self, own: Mapping[Own, Any]) -> None:
        """Remember what is this broker's own."""
        self.own |= own
        self.owners = {value: one for one, value in self.own.items()}

    def create_tokens(self) -> None:
        """Have each user create a delegation token, which another user of its set may renew."""
        for alice, bob, carol in USERS:
            for user, renewer in ((alice, bob), (bob, carol), (carol, alice)):
                renewers = [{"principal_type": "User", "principal_name": renewer}]
                message = {"renewers": renewers, "max_lifetime_ms": -1}
                made = self.users[user, HOSTS[0]].call(CREATE_TOKEN, 2, message)
                assert not made.error_code, made
                prefix = made.token_id[:PREFIX_LENGTH]
                found = {TOKEN_ID: made.token_id, TOKEN_PREFIX: prefix, TOKEN_SECRET: made.hmac}
                self.know({Own(kind, user): one for kind, one in found.items()})

    def remove_tokens(self) -> None:
        """Remove the tokens that requests have created."""
        tokens, self.new_tokens = self.new_tokens, []
        for owner, hmac in tokens:
            client, message = self.users[owner, HOSTS[0]], {"hmac": hmac, "expiry_time_period_ms": -1}
            assert not client.call(EXPIRE_TOKEN, 2, message).error_code, owner

    def send_acls(self, acls: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
        """Have the access control lists replaced; returns what `have_acls` waits for."""
        deletion = self.admin.send(DELETE_ACLS, 3, {"filters": [EVERY]})
        creation = self.admin.send(CREATE_ACLS, 3, {"creations": self.message(acls)})
        return [(DELETE_ACLS, 3, deletion), (CREATE_ACLS, 3, creation)]

    def have_acls(self, acls: list[dict[str, Any]], sent: list[tuple[int, int, int]]) -> list[int]:
        """Wait until the lists are as they were sent; returns the error of each one."""
        deleted, created = [self.admin.receive(*one) for one in sent]
        assert not codes(deleted), deleted
        found = [int(one.error_code) for one in created.results]
        made = {tuple(acl.values()) for acl, code in zip(self.message(acls), found, strict=True) if not code}

        def are_there() -> bool:
            answer = self.admin.call(DESCRIBE_ACLS, 3, EVERY)
            listed = [
                (
                    *(int(one.resource_type), one.resource_name, int(one.pattern_type)),
                    *(acl.principal, acl.host, int(acl.operation), int(acl.permission_type)),
                )
                for one in answer.resources
                for acl in one.acls
            ]
            return set(listed) == made and len(listed) == len(made)

        wait_for(are_there, 30, "ACLs", 0.02)
        return found

    def send(self, asked: Asked) -> int:
        """Send a request; returns its number."""
        return self.users[asked.client].send(asked.key, asked.version, self.message(asked.message))

    def receive(self, asked: Asked, number: int) -> Any:
        """Returns what the next answer of a connection says."""
        answer = self.users[asked.client].receive(asked.key, asked.version, number)
        if asked.key == CREATE_TOKEN and not answer.error_code:
            self.new_tokens.append((answer.principal_name, answer.hmac))
        return self.plain(answer)

    def ask(self, asked: Asked) -> Any:
        """Returns what the answer to a request says."""
        return self.receive(asked, self.send(asked))

    def message(self, value: Any) -> Any:
        """Returns a message with what is this broker's own instead of `Own` objects."""
        if isinstance(value, Own):
            unknown = b"nothing" if value.kind == TOKEN_SECRET else uuid5(NAMESPACE_URL, value.name)
            return self.own.get(value, unknown)
        if isinstance(value, dict):
            return {key: self.message(one) for key, one in value.items()}
        return [self.message(one) for one in value] if isinstance(value, list) else value

    def plain(self, value: Any, name: str = "") -> Any:
        """Returns what an answer says that must be the same everywhere."""
        if dataclasses.is_dataclass(value):
            found = {}
            for one in dataclasses.fields(value):
                field = getattr(value, one.name)
                is_code = one.metadata.get("kafka_type") == "error_code"
                is_kept = is_code or one.name in NAMES or one.name.endswith(("operations", "_type", "topic_id"))
                is_kept = is_kept or isinstance(field, tuple)
                if is_kept and one.name not in VARYING:
                    found[one.name] = self.plain(field, one.name)
            return found
        if isinstance(value, tuple):
            # Tokens that requests have created are described or not, as it happens.
            known = (one for one in value if getattr(one, "token_id", None) in (None, *self.owners))
            return sorted(map(self.plain, known), key=repr)
        if isinstance(value, UUID) or (name == "token_id" and value):
            return self.owners.get(value, "unknown")
        if isinstance(value, str):
            return self.owners.get(value, value)
        return value.name if isinstance(value, Enum) else value


class Asked(NamedTuple):
    """A request.

    Attributes:
        key: The API key.
        version: The version.
        client: The user and the host that it comes from.
        message: What it says.
    """

    key: int
    version: int
    client: tuple[str, str]
    message: dict[str, Any]


def _drawn(chance: random.Random, users: Sequence[str], count: int) -> list[Asked]:
    """Returns random requests."""
    requests, found = Requests(chance, users), []
    for _ in range(count):
        key = chance.choice([*ASKED, DESCRIBE_TOKENS, DESCRIBE_TOKENS])
        version = version_of(key, chance)
        client = chance.choice(users), chance.choice(HOSTS)
        message = requests.message(key, version)
        # Only requests of a connection are in order: each has its own sessions and new transactional ids.
        if key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            message["member_id"] = "-".join(client)
        elif key == INIT_PRODUCER_ID and message["transactional_id"] is not None:
            message["transactional_id"] += "-".join(client)
        found.append(Asked(key, version, client, message))
    return found


def compare(brokers: Sequence[Judged], seeds: Sequence[int], requests: int) -> list[str]:
    """Returns where two brokers differ, with some sets together.

    Args:
        brokers: The brokers.
        seeds: The seeds of the sets, of which there may be as many as `USERS` has.
        requests: How many requests each set has.
    """
    everybody = random.Random(f"everybody {seeds[0]}")
    acls = [random_acl(everybody, USERS[0], [EVERYBODY]) for _ in range(everybody.randint(0, 3))]
    asked: list[Asked] = []
    for seed, users in zip(seeds, USERS, strict=False):
        chance = random.Random(seed)
        acls += random_acls(chance, users)
        asked += _drawn(chance, users, requests)
    sent = [broker.send_acls(acls) for broker in brokers]
    made = [broker.have_acls(acls, one) for broker, one in zip(brokers, sent, strict=True)]
    found = [f"{made}"] if made[0] != made[1] else []
    for broker in brokers:
        # A broker knows those of the last sets, since it has the ACLs that came after them.
        broker.remove_tokens()
    together = [one for one in asked if one.key != DELETE_TOPICS]
    numbers = [[broker.send(one) for broker in brokers] for one in together]
    different = []
    for one, of_one in zip(together, numbers, strict=True):
        answers = [broker.receive(one, number) for broker, number in zip(brokers, of_one, strict=True)]
        if answers[0] != answers[1]:
            different.append((one, answers))
    for one, answers in different:
        in_the_end = answers if one.key in CHANGING else _answers_in_the_end(brokers, one)
        found += _differences(brokers, one, in_the_end)
    for one in asked:
        if one.key == DELETE_TOPICS:
            answers = [broker.ask(one) for broker in brokers]
            found += _differences(brokers, one, answers)
            if any(row["error_code"] == ErrorCode.none.name for row in answers[0]["responses"]):
                for broker in brokers:
                    broker.create(dict.fromkeys(DELETED, 1))
    return [f"{seeds}: {one}\n" + "\n".join(f"      {acl}" for acl in acls) for one in found]


def _answers_in_the_end(brokers: Sequence[Judged], asked: Asked) -> list[Any]:
    """Returns what brokers answer to a request alone, as soon as it is the same: one may be late with a change."""
    answers: list[Any] = []

    def are_same() -> bool:
        answers[:] = [broker.ask(asked) for broker in brokers]
        return bool(answers[0] == answers[1])

    with suppress(TimeoutError):
        wait_for(are_same, 1, "the same answers")
    return answers


def _differences(brokers: Sequence[Judged], asked: Asked, answers: list[Any]) -> list[str]:
    if answers[0] == answers[1]:
        return []
    told = "\n".join(f"    {one.name}: {answer}" for one, answer in zip(brokers, answers, strict=True))
    return [f"{ADVERTISED[asked.key][0]} v{asked.version} {asked.client} {asked.message}\n{told}"]
