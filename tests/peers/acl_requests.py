"""Random access control lists, and random requests of all APIs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.broker.api import ADVERTISED
from odradek.coordination.authorization.acls import (
    CLUSTER_NAME,
    EVERYBODY,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from peers.requests import new_topic

SETS_TOGETHER = 10
USERS = tuple(tuple(f"{name}{place}" for name in ("alice", "bob", "carol")) for place in range(SETS_TOGETHER))
"""The users of each set of those that are judged together."""

HOSTS = ("127.0.0.1", "127.0.0.2")
TOPICS = {"t-a": 2, "t-b": 1, "ta": 1, "x": 1}
DELETED = ("t-del", "del")
GROUPS = ("g-a", "g-b", "h")
CONSUMER_GROUP, SHARE_GROUP = "g-new", "g-share"
IDS = ("id-a", "id-b", "other")
METRICS, SCRAM_USER, ADDRESS = "metrics", "carol", "10.9.8.7"
SHARE_KEY = f"{SHARE_GROUP}:{'A' * 22}:0"
HOUR_MS = 3_600_000


def new_credential(user: str, iterations: int) -> dict[str, Any]:
    """Returns what gives a user a password for SCRAM-SHA-256."""
    return {"name": user, "mechanism": 1, "iterations": iterations, "salt": b"salt", "salted_password": bytes(32)}


class Own(NamedTuple):
    """What is another one with each broker: the id of a topic; the id, its first letters or the secret of a token.

    Attributes:
        kind: `TOPIC_ID`, `TOKEN_ID`, `TOKEN_PREFIX` or `TOKEN_SECRET`.
        name: The topic, or the user who owns the token.
    """

    kind: str
    name: str


TOPIC_ID, TOKEN_ID, TOKEN_PREFIX, TOKEN_SECRET = "topic id", "token id", "token prefix", "token secret"


def random_acls(chance: random.Random, users: Sequence[str]) -> list[dict[str, Any]]:
    """Returns access control lists of users."""
    alice, bob, carol = (f"User:{user}" for user in users)
    principals = [alice, alice, bob, carol, "Group:alice"]
    count = chance.randint(1, chance.choice([14, 14, 14, 40]))
    return [random_acl(chance, users, principals) for _ in range(count)]


def random_acl(chance: random.Random, users: Sequence[str], principals: Sequence[str]) -> dict[str, Any]:
    """Returns an access control list of one of some principals."""
    kinds = [ResourceType.TOPIC] * 5 + [ResourceType.GROUP] * 3 + [ResourceType.CLUSTER] * 2
    kinds += [ResourceType.TRANSACTIONAL_ID, ResourceType.USER, ResourceType.DELEGATION_TOKEN] * 2
    kind = chance.choice(kinds)
    tokens = [Own(one, user) for one in (TOKEN_ID, TOKEN_PREFIX) for user in users]
    names: dict[ResourceType, list[Any]] = {
        ResourceType.TOPIC: [*TOPICS, *DELETED, "*", "t", "t-", "t-n", "new", "nothing"],
        ResourceType.GROUP: [*GROUPS, CONSUMER_GROUP, SHARE_GROUP, "*", "g", "g-", "nothing"],
        ResourceType.TRANSACTIONAL_ID: [*IDS, "*", "id", "nothing"],
        ResourceType.USER: [*(f"User:{user}" for user in users), "*", "User:", "Group:alice", "alice"],
        ResourceType.DELEGATION_TOKEN: [*tokens, "*", "nothing"],
        ResourceType.CLUSTER: [CLUSTER_NAME],
    }
    operations = [one for one in Operation if one > Operation.ANY]
    usual = [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE] * 2
    if kind is ResourceType.USER:
        usual = [Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS] * 10
    elif kind is ResourceType.DELEGATION_TOKEN:
        usual = [Operation.DESCRIBE] * 10
    return {
        "resource_type": int(kind),
        "resource_name": chance.choice(names[kind]),
        "resource_pattern_type": int(chance.choice([PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED])),
        "principal": chance.choice(principals),
        "host": chance.choice(["*", "*", "*", *HOSTS]),
        "operation": int(chance.choice([*operations, *usual])),
        "permission_type": int(
            chance.choice([PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY])
        ),
    }


QUOTA_MATCHES: list[dict[str, Any]] = [
    {"match_type": 0, "match": ADDRESS},
    {"match_type": 1, "match": None},
    {"match_type": 2, "match": None},
]
"""How a request describes quotas: those of a name, of the default, of all."""


class Requests:
    """Draws requests.

    Args:
        chance: What they are drawn from.
        users: The users who send them.
    """

    def __init__(self, chance: random.Random, users: Sequence[str]) -> None:
        self.chance = chance
        self.users = users

    def some(self, names: Iterable[str], at_least: int = 1) -> list[str]:
        known = list(names)
        return self.chance.sample(known, self.chance.randint(at_least, min(len(known), at_least + 3)))

    def topics(self, more: Iterable[str] = ("nothing", "t-none")) -> list[str]:
        return self.some([*TOPICS, *more])

    def group(self) -> str:
        return self.chance.choice([*GROUPS, CONSUMER_GROUP, SHARE_GROUP, "g-none", "nothing"])

    def groups(self) -> list[str]:
        return self.some([*GROUPS, CONSUMER_GROUP, SHARE_GROUP, "g-none", "nothing"])

    def transactional_id(self) -> str:
        return self.chance.choice([*IDS, "id-none", "nothing"])

    def flag(self) -> bool:
        return self.chance.random() < 0.5

    def message(self, key: int, version: int) -> dict[str, Any]:
        """Returns a request."""
        fields: dict[str, Any] = {"timeout_ms": 10_000, "validate_only": True}
        made: Mapping[str, Any] = getattr(self, f"of_{key}")(version)
        return {**fields, **made}

    # -- records

    def of_0(self, version: int) -> dict[str, Any]:
        is_transactional = self.chance.random() < 0.3
        options: dict[str, Any] = {
            "producer_id": 123_456,
            "producer_epoch": 0,
            "base_sequence": 0,
            "is_transactional": True,
        }
        batch = bytes(build_batch([Record(value=b"v", timestamp=1)], **(options if is_transactional else {})))
        rows = [
            {"name": name, "topic_id": Own(TOPIC_ID, name), "partition_data": [{"index": index, "records": batch}]}
            for name in self.topics()
            for index in ([0] if self.flag() else [7])
        ]
        transactional_id = self.transactional_id() if is_transactional else None
        return {"transactional_id": transactional_id, "acks": 1, "topic_data": rows}

    def of_1(self, version: int) -> dict[str, Any]:
        partitions = [
            {
                "partition": self.chance.choice([0, 0, 7]),
                "current_leader_epoch": -1,
                "fetch_offset": 0,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1000,
            }
        ]
        rows = [{"topic": name, "topic_id": Own(TOPIC_ID, name), "partitions": partitions} for name in self.topics()]
        return {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": rows,
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    def of_2(self, version: int) -> dict[str, Any]:
        rows = [{"partition_index": self.chance.choice([0, 0, 7]), "current_leader_epoch": -1, "timestamp": -1}]
        topics = [{"name": name, "partitions": rows} for name in self.topics()]
        return {"replica_id": -1, "isolation_level": 0, "topics": topics}

    def of_3(self, version: int) -> dict[str, Any]:
        topics: Any = [{"name": name, "topic_id": None} for name in self.topics(["nothing", "t-none", "t:bad"])]
        if version >= 12 and self.flag():
            topics = [{"name": None, "topic_id": Own(TOPIC_ID, one["name"])} for one in topics]
        if version > 0 and self.chance.random() < 0.3:
            topics = None
        return {
            "topics": topics,
            "allow_auto_topic_creation": self.flag(),
            "include_cluster_authorized_operations": self.flag(),
            "include_topic_authorized_operations": self.flag(),
        }

    def of_21(self, version: int) -> dict[str, Any]:
        rows = [{"partition_index": self.chance.choice([0, 7]), "offset": 0}]
        return {"topics": [{"name": name, "partitions": rows} for name in self.topics()]}

    def of_23(self, version: int) -> dict[str, Any]:
        rows = [{"partition": self.chance.choice([0, 7]), "current_leader_epoch": -1, "leader_epoch": 0}]
        return {"replica_id": -1, "topics": [{"topic": name, "partitions": rows} for name in self.topics()]}

    # -- groups

    def of_8(self, version: int) -> dict[str, Any]:
        rows = [
            {
                "partition_index": self.chance.choice([0, 0, 7]),
                "committed_offset": 0,
                "committed_metadata": "",
                "committed_leader_epoch": -1,
            }
        ]
        topics = [{"name": name, "topic_id": Own(TOPIC_ID, name), "partitions": rows} for name in self.topics()]
        fields = {"generation_id_or_member_epoch": 5, "member_id": "nobody", "group_instance_id": None}
        return {"group_id": self.group(), **fields, "retention_time_ms": -1, "topics": topics}

    def of_9(self, version: int) -> dict[str, Any]:
        def topics() -> list[dict[str, Any]] | None:
            if version >= 2 and self.chance.random() < 0.3:
                return None
            return [
                {"name": name, "topic_id": Own(TOPIC_ID, name), "partition_indexes": [0, 7]} for name in self.topics()
            ]

        groups = [
            {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics()} for group in self.groups()
        ]
        return {"group_id": self.group(), "topics": topics(), "groups": groups, "require_stable": False}

    def of_10(self, version: int) -> dict[str, Any]:
        kind = self.chance.choice([0, 1, 2] if version >= 6 else [0, 1] if version else [0])
        keys = [self.groups(), self.some([*IDS, "id-none"]), [SHARE_KEY, "no key"]][kind]
        return {"key_type": kind, "coordinator_keys": keys, "key": keys[0]}

    def of_11(self, version: int) -> dict[str, Any]:
        return {
            "group_id": self.group(),
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "nobody",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }

    def of_12(self, version: int) -> dict[str, Any]:
        return {"group_id": self.group(), "generation_id": 1, "member_id": "nobody", "group_instance_id": None}

    def of_13(self, version: int) -> dict[str, Any]:
        members = [{"member_id": "nobody", "group_instance_id": None, "reason": None}]
        return {"group_id": self.group(), "member_id": "nobody", "members": members}

    def of_14(self, version: int) -> dict[str, Any]:
        protocol = {"protocol_type": self.chance.choice(["consumer", None]), "protocol_name": "range"}
        return {**self.of_12(version), **protocol, "assignments": []}

    def of_15(self, version: int) -> dict[str, Any]:
        return {"groups": self.groups(), "include_authorized_operations": self.flag()}

    def of_16(self, version: int) -> dict[str, Any]:
        return {"states_filter": [], "types_filter": []}

    def of_42(self, version: int) -> dict[str, Any]:
        return {"groups_names": self.some(["g-none", "nothing", "h-none", CONSUMER_GROUP])}

    def of_47(self, version: int) -> dict[str, Any]:
        rows = [{"name": name, "partitions": [{"partition_index": 7}]} for name in self.topics()]
        return {"group_id": self.group(), "topics": rows}

    def of_68(self, version: int) -> dict[str, Any]:
        return {
            "group_id": self.group(),
            "member_id": "nobody",
            "member_epoch": 3,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": self.chance.choice([None, [], self.topics()]),
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }

    def of_69(self, version: int) -> dict[str, Any]:
        return {"group_ids": self.groups(), "include_authorized_operations": self.flag()}

    def of_76(self, version: int) -> dict[str, Any]:
        names = self.chance.choice([None, [], self.topics()])
        member = {"member_id": self.chance.choice(["nobody", ""]), "member_epoch": 3, "rack_id": None}
        return {"group_id": self.group(), **member, "subscribed_topic_names": names}

    of_77 = of_69

    def of_78(self, version: int) -> dict[str, Any]:
        # With an authorizer Apache Kafka fails if it does not know one of the ids.
        epoch = self.chance.choice([0, -1, 5])
        rows = [
            {"topic_id": Own(TOPIC_ID, name), "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
            for name in self.some(TOPICS)
        ]
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 1}
        fields = {"share_acquire_mode": 0, "is_renew_ack": False, "topics": rows, "forgotten_topics_data": []}
        return {"group_id": self.group(), "member_id": "nobody", "share_session_epoch": epoch, **limits, **fields}

    def of_79(self, version: int) -> dict[str, Any]:
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        rows = [
            {
                "topic_id": Own(TOPIC_ID, name),
                "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}],
            }
            for name in self.some(TOPICS)
        ]
        fields = {"member_id": "nobody", "share_session_epoch": self.chance.choice([0, -1, 5]), "is_renew_ack": False}
        return {"group_id": self.group(), **fields, "topics": rows}

    def of_83(self, version: int) -> dict[str, Any]:
        row = {"partition": 0, "state_epoch": -1, "leader_epoch": -1, "start_offset": -1, "delivery_complete_count": -1}
        rows = [{**row, "state_batches": []}]
        return {"group_id": "g-none", "topics": [{"topic_id": Own(TOPIC_ID, "nothing"), "partitions": rows}]}

    of_84 = of_85 = of_86 = of_87 = of_83

    def of_90(self, version: int) -> dict[str, Any]:
        def topics() -> list[dict[str, Any]] | None:
            return None if self.flag() else [{"topic_name": name, "partitions": [0]} for name in self.topics()]

        return {"groups": [{"group_id": group, "topics": topics()} for group in self.groups()]}

    def of_91(self, version: int) -> dict[str, Any]:
        rows = [{"partition_index": 0, "start_offset": 0}]
        group = self.chance.choice(["h", SHARE_GROUP])
        return {"group_id": group, "topics": [{"topic_name": name, "partitions": rows} for name in self.topics()]}

    def of_92(self, version: int) -> dict[str, Any]:
        group = self.chance.choice(["g-none", SHARE_GROUP])
        return {"group_id": group, "topics": [{"topic_name": name} for name in self.topics()]}

    # -- transactions

    def of_22(self, version: int) -> dict[str, Any]:
        one = self.chance.choice([None, None, "id-n", "no-n"])
        return {"transactional_id": one, "transaction_timeout_ms": 10_000, "producer_id": -1, "producer_epoch": -1}

    def of_24(self, version: int) -> dict[str, Any]:
        topics = [{"name": name, "partitions": [0]} for name in self.topics(["nothing", "__consumer_offsets"])]
        one = self.transactional_id()
        return {
            "v3_and_below_transactional_id": one,
            "v3_and_below_producer_id": 123_456_789,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics,
            "transactions": [
                {
                    "transactional_id": one,
                    "producer_id": 123_456_789,
                    "producer_epoch": 0,
                    "verify_only": True,
                    "topics": topics,
                }
            ],
        }

    def of_25(self, version: int) -> dict[str, Any]:
        producer = {"producer_id": 123_456_789, "producer_epoch": 0}
        return {"transactional_id": self.transactional_id(), **producer, "group_id": self.group()}

    def of_26(self, version: int) -> dict[str, Any]:
        producer = {"producer_id": 123_456_789, "producer_epoch": 0}
        return {"transactional_id": self.transactional_id(), **producer, "committed": True}

    def of_27(self, version: int) -> dict[str, Any]:
        topics = [{"name": "nothing", "partition_indexes": [0]}]
        marker = {"producer_id": 5, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
        return {"markers": [{**marker, "topics": topics, "transaction_version": 0}]}

    def of_28(self, version: int) -> dict[str, Any]:
        producer = {"transactional_id": self.transactional_id(), "producer_id": 123_456_789, "producer_epoch": 0}
        member = {"generation_id": 5, "member_id": "nobody", "group_instance_id": None}
        return {**self.of_8(version), **producer, **member}

    def of_61(self, version: int) -> dict[str, Any]:
        topics = [{"name": name, "partition_indexes": [0]} for name in self.topics(["nothing", "t:bad"])]
        return {"topics": topics}

    def of_65(self, version: int) -> dict[str, Any]:
        return {"transactional_ids": self.some([*IDS, "id-none"])}

    def of_66(self, version: int) -> dict[str, Any]:
        pattern = self.chance.choice([None, "id-[ab]"])
        return {
            "state_filters": ["Ongoing"],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": pattern,
        }

    # -- topics and the cluster

    def of_19(self, version: int) -> dict[str, Any]:
        names = self.topics(["t-new", "new-x", "t-other", "__cluster_metadata"])
        return {"topics": [new_topic(name, self.chance.choice([1, 2, -1])) for name in names]}

    def of_20(self, version: int) -> dict[str, Any]:
        names = self.some([*DELETED, "t-none", "nothing"])
        rows = [
            {"name": None, "topic_id": Own(TOPIC_ID, name)} if self.flag() else {"name": name, "topic_id": None}
            for name in names
        ]
        return {"topics": rows, "topic_names": names}

    def of_29(self, version: int) -> dict[str, Any]:
        return {
            "resource_type_filter": self.chance.choice([1, 2, 3, 4, 5, 7, 99]),
            "resource_name_filter": self.chance.choice([None, None, "t-a", "g-a", "nothing"]),
            "pattern_type_filter": self.chance.choice([1, 2, 3, 4]),
            "principal_filter": self.chance.choice([None, None, f"User:{self.users[0]}"]),
            "host_filter": self.chance.choice([None, None, "*"]),
            "operation": self.chance.choice([1, 1, 2, 3]),
            "permission_type": self.chance.choice([1, 1, 2, 3]),
        }

    def of_30(self, version: int) -> dict[str, Any]:
        valid = random_acl(self.chance, self.users, [f"User:{self.users[0]}", EVERYBODY])
        wrong: dict[str, Any] = self.chance.choice(
            [
                {"resource_type": 99},
                {"resource_name": ""},
                {"resource_type": 4, "resource_name": "other"},
                {"resource_pattern_type": 77},
                {"resource_pattern_type": 1},
                {"resource_type": 1},
                {"principal": "alice"},
                {"operation": 99},
                {"operation": 1},
                {"permission_type": 99},
            ]
        )
        return {"creations": [{**valid, **wrong}]}

    def of_31(self, version: int) -> dict[str, Any]:
        none = {**self.of_29(version), "principal_filter": "User:nobody"}
        return {"filters": [none, {**none, "operation": self.chance.choice([3, 99])}]}

    def resources(self) -> list[dict[str, Any]]:
        topics = [{"resource_type": 2, "resource_name": name} for name in self.topics()]
        groups = [{"resource_type": 32, "resource_name": name} for name in self.groups()]
        broker = {"resource_type": 4, "resource_name": self.chance.choice(["", "1"])}
        metrics = {"resource_type": 16, "resource_name": self.chance.choice([METRICS, "nothing"])}
        found = [*topics, *groups, broker, metrics]
        return self.chance.sample(found, self.chance.randint(1, len(found)))

    def of_32(self, version: int) -> dict[str, Any]:
        rows = [{**one, "configuration_keys": None} for one in self.resources()]
        return {"resources": rows, "include_synonyms": False, "include_documentation": False}

    def of_33(self, version: int) -> dict[str, Any]:
        configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
        rows = [{**one, "configs": configs if one["resource_type"] == 2 else []} for one in self.resources()]
        return {"resources": rows}

    of_44 = of_33

    def of_34(self, version: int) -> dict[str, Any]:
        topics = [{"name": name, "partitions": [0]} for name in self.topics()]
        return {"dirs": [{"path": "/nowhere", "topics": topics}]}

    def of_35(self, version: int) -> dict[str, Any]:
        return {"topics": [{"topic": name, "partitions": [0]} for name in self.topics()]}

    def of_37(self, version: int) -> dict[str, Any]:
        rows = [{"name": name, "count": self.chance.choice([1, 5]), "assignments": None} for name in self.topics()]
        return {"topics": rows}

    def principals(self, names: Iterable[str], kinds: Iterable[str] = ("User",)) -> list[dict[str, str]]:
        known = list(kinds)
        return [{"principal_type": self.chance.choice(known), "principal_name": name} for name in names]

    def of_38(self, version: int) -> dict[str, Any]:
        # Few are created: Apache Kafka takes 50 ms for each one that is new or changed. Those of others than these
        # users could not be removed again.
        is_valid = self.chance.random() < 0.25
        owner = self.chance.choice([None, "", *self.users, *([] if is_valid else ["nothing"])])
        kind = "User" if is_valid else self.chance.choice(["User", "Group"])
        renewers = self.principals(
            self.some(self.users, 0) if is_valid else ["alice"], ["User"] if is_valid else ["Group"]
        )
        owner_type = {"owner_principal_type": None if owner is None else kind, "owner_principal_name": owner}
        return {**owner_type, "renewers": renewers, "max_lifetime_ms": self.chance.choice([-1, HOUR_MS])}

    def secret(self) -> Own:
        return Own(TOKEN_SECRET, self.chance.choice([*self.users, *["nothing"] * 9]))

    def of_39(self, version: int) -> dict[str, Any]:
        return {"hmac": self.secret(), "renew_period_ms": self.chance.choice([-1, HOUR_MS])}

    def of_40(self, version: int) -> dict[str, Any]:
        return {"hmac": self.secret(), "expiry_time_period_ms": HOUR_MS}

    def of_41(self, version: int) -> dict[str, Any]:
        owners = self.principals(self.some([*self.users, "nothing"], 0), ["User", "User", "User", "Group"])
        return {"owners": self.chance.choice([None, None, owners])}

    def of_43(self, version: int) -> dict[str, Any]:
        return {"election_type": 0, "topic_partitions": [{"topic": name, "partitions": [0]} for name in self.topics()]}

    def of_45(self, version: int) -> dict[str, Any]:
        rows = [{"partition_index": 0, "replicas": None}]
        topics = [{"name": name, "partitions": rows} for name in self.topics()]
        return {"allow_replication_factor_change": True, "topics": topics}

    def of_46(self, version: int) -> dict[str, Any]:
        return {"topics": None}

    def of_48(self, version: int) -> dict[str, Any]:
        kinds = self.some(["user", "client-id", "ip"])
        rows = [{"entity_type": kind, **self.chance.choice(QUOTA_MATCHES)} for kind in kinds]
        return {"components": self.chance.choice([[], rows]), "strict": self.flag()}

    def of_49(self, version: int) -> dict[str, Any]:
        entity: dict[str, str | None] = self.chance.choice(
            [{"user": "alice", "client-id": None}, {"ip": ADDRESS}, {"user": ""}, {"t": "t-a"}]
        )
        key = self.chance.choice(["producer_byte_rate", "connection_creation_rate", "nothing"])
        ops = [{"key": key, "value": 1000.0, "remove": self.flag()}]
        names = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        return {"entries": [{"entity": names, "ops": ops}]}

    def of_50(self, version: int) -> dict[str, Any]:
        # Apache Kafka never answers a client that may not see the users and asks for null.
        names = self.chance.choice([[], [SCRAM_USER], ["alice", SCRAM_USER, "alice"]])
        return {"users": [{"name": name} for name in names]}

    def of_51(self, version: int) -> dict[str, Any]:
        # All of them are refused: the users remain as they are.
        gone = [{"name": name, "mechanism": self.chance.choice([2, 9])} for name in self.some(["alice", SCRAM_USER], 0)]
        return {"deletions": gone, "upsertions": [new_credential(name, 1) for name in self.some(["bob", ""], 0)]}

    def of_55(self, version: int) -> dict[str, Any]:
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}

    def of_57(self, version: int) -> dict[str, Any]:
        update = {"feature": "nothing", "max_version_level": 1, "upgrade_type": 1, "allow_downgrade": False}
        return {"feature_updates": [update]}

    def of_60(self, version: int) -> dict[str, Any]:
        return {
            "include_cluster_authorized_operations": self.flag(),
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        }

    def of_74(self, version: int) -> dict[str, Any]:
        return {"resource_types": self.chance.choice([[2], [4], [16], [32], [2, 4, 16, 32], [99]])}

    def of_75(self, version: int) -> dict[str, Any]:
        names = self.chance.choice([[], self.topics(["nothing", "t:bad"])])
        return {"topics": [{"name": name} for name in names], "response_partition_limit": 2000, "cursor": None}


ASKED = sorted(int(name.removeprefix("of_")) for name in vars(Requests) if name.startswith("of_"))
"""The keys of the APIs that there are requests of."""


def version_of(key: int, chance: random.Random) -> int:
    """Returns a version of an API."""
    versions = ADVERTISED[key][1]
    lowest = {0: 3, 11: 4, 14: 0}.get(key, versions[0])
    return chance.choice([lowest, versions[-1], chance.randint(lowest, versions[-1])])
