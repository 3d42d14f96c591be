"""The APIs of the broker: a module for each, which registers itself.

    k00_produce.py   @api(0, "Produce", range(3, 14))   a function: request -> response

Each module begins with what its API does, what it leaves out, and by which KIP it changed in which version. A module is
imported with the first request for its API, so that a broker starts without them. What has to be known before that is
in `ADVERTISED`, which a test compares with the registrations.

Source in Kafka: `ApiKeys`, `KafkaApis`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from odradek.broker.errors import denied
from odradek.broker.operations import OPERATIONS
from odradek.broker.protocol import Encoded, Message, RequestHeader, encode_response
from odradek.coordination.authorization.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.connection import Connection
    from odradek.broker.quotas.client_quotas import Mutations
    from odradek.broker.quotas.throttling import LoopTime
    from odradek.broker.turns import Work


@dataclass(slots=True)
class Request:
    """A request, for the function that answers it.

    Attributes:
        broker: The broker.
        connection: Where it came from.
        header: Its header.
        body: Its body: an object of kio's class for its version, or what the API's own `decode` returned.
        size_bytes: How many bytes it has, with its header.
        loop_time: How long it has taken on the event loop, if there are quotas.
    """

    broker: Broker
    connection: Connection
    header: RequestHeader
    body: Any
    size_bytes: int = 0
    loop_time: LoopTime | None = None

    @property
    def user(self) -> str:
        """The client's user: its principal without the type."""
        return self.connection.user

    @property
    def version(self) -> int:
        """The version of the API."""
        return self.header.version

    def mutations(self, strict_since: int) -> Mutations:
        """Return what counts the partitions that it creates or deletes.

        Args:
            strict_since: The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
        """
        return self.broker.quotas.mutations(self.user, self.client_id, is_strict=self.version >= strict_since)

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.header.client_id or ""

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, *, is_told: bool = True) -> bool:
        """Return whether the client may do something.

        Args:
            operation: What it does.
            kind: The type of the resource.
            name: The name of the resource.
            is_told: Whether a refusal is logged; not where the client only asks what it may do.
        """
        found = self.broker.authorization
        return found is None or found.allows(self.connection, operation, kind, name, is_told=is_told)

    def may_with_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the client may do something with any resource of a type, whichever that is."""
        found = self.broker.authorization
        return found is None or found.allows_with_any(self.connection, operation, kind)

    def check(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Check that the client may do something.

        Raises:
            ApiError: It may not.
        """
        if not self.may(operation, kind, name):
            raise denied(kind)

    def split(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, is_told: bool = True
    ) -> Work[tuple[dict[str, None], dict[str, None]]]:
        """Work: divide names into those with which the client may do something, and the others."""
        if self.broker.authorization is None:
            return dict.fromkeys(names), {}
        allowed: dict[str, None] = {}
        others: dict[str, None] = {}
        for name in names:
            if name not in allowed and name not in others:
                (allowed if self.may(operation, kind, name, is_told=is_told) else others)[name] = None
            yield
        return allowed, others

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return what the client may do with a resource, as bits by the operations' codes."""
        found = self.broker.authorization
        supported = OPERATIONS[kind]
        return supported if found is None else supported & found.operations(self.connection, kind, name)


Handler: TypeAlias = Callable[[Request], "Message | Awaitable[Message | None] | Work[Message] | None"]
"""Answers a request, at once, later, or by work that takes its turns. None: the client wants no answer."""

AtOnce: TypeAlias = "Callable[[Broker, Connection, bytearray], Encoded | Awaitable[Encoded | None] | None]"
"""Answers a usual request by a shorter way; None if the request needs the way of all others."""

Failed: TypeAlias = Callable[[Request, int, str], Message]
"""Makes the answer to a request that failed as a whole, from Kafka's error code and a text."""


class Api(NamedTuple):
    """An API that the broker has.

    Attributes:
        key: Its number.
        name: Kafka's name for it.
        versions: The versions that it takes.
        handle: Answers its requests.
        failed: Makes the answer of a request that failed as a whole; None if `failures.failure` does.
        decode: Reads the body of a request; None if kio does.
        encode: Writes a response.
        at_once: Answers the usual requests faster; None if there is no such way.
        fenced_since: The first version whose clients know PRODUCER_FENCED (KIP-588).
        overlaps: Whether a request may start before the previous one was answered.
        before_authentication: Whether a client may use it before it has authenticated.
        ends_with_client: Whether a request is dropped when its client disconnects, because it only waits.
        counts_errors: Whether it counts the errors in its answers itself.
        group_ids: Returns the groups that a request is about, whose logs must be open before it is handled.
    """

    key: int
    name: str
    versions: range
    handle: Handler
    failed: Failed | None = None
    decode: Callable[[bytearray, RequestHeader], Any] | None = None
    encode: Callable[[RequestHeader, Message], Encoded] = encode_response
    at_once: AtOnce | None = None
    fenced_since: int = 0
    overlaps: bool = False
    before_authentication: bool = False
    ends_with_client: bool = False
    counts_errors: bool = False
    group_ids: Callable[[Request], Iterable[str]] | None = None


ADVERTISED: Mapping[int, tuple[str, range]] = {
    0: ("k00_produce", range(14)),
    1: ("k01_fetch", range(4, 19)),
    2: ("k02_list_offsets", range(1, 12)),
    3: ("k03_metadata", range(14)),
    8: ("k08_offset_commit", range(2, 11)),
    9: ("k09_offset_fetch", range(1, 11)),
    10: ("k10_find_coordinator", range(7)),
    11: ("k11_join_group", range(10)),
    12: ("k12_heartbeat", range(5)),
    13: ("k13_leave_group", range(6)),
    14: ("k14_sync_group", range(6)),
    15: ("k15_describe_groups", range(7)),
    16: ("k16_list_groups", range(6)),
    17: ("k17_sasl_handshake", range(2)),
    18: ("k18_api_versions", range(6)),
    19: ("k19_create_topics", range(2, 8)),
    20: ("k20_delete_topics", range(1, 7)),
    21: ("k21_delete_records", range(3)),
    22: ("k22_init_producer_id", range(6)),
    23: ("k23_offset_for_leader_epoch", range(2, 5)),
    24: ("k24_add_partitions_to_txn", range(6)),
    25: ("k25_add_offsets_to_txn", range(5)),
    26: ("k26_end_txn", range(6)),
    27: ("k27_write_txn_markers", range(1, 3)),
    28: ("k28_txn_offset_commit", range(7)),
    29: ("k29_describe_acls", range(1, 4)),
    30: ("k30_create_acls", range(1, 4)),
    31: ("k31_delete_acls", range(1, 4)),
    32: ("k32_describe_configs", range(1, 5)),
    33: ("k33_alter_configs", range(3)),
    34: ("k34_alter_replica_log_dirs", range(1, 3)),
    35: ("k35_describe_log_dirs", range(1, 6)),
    36: ("k36_sasl_authenticate", range(3)),
    37: ("k37_create_partitions", range(4)),
    38: ("k38_create_delegation_token", range(1, 4)),
    39: ("k39_renew_delegation_token", range(1, 3)),
    40: ("k40_expire_delegation_token", range(1, 3)),
    41: ("k41_describe_delegation_token", range(1, 4)),
    42: ("k42_delete_groups", range(4)),
    43: ("k43_elect_leaders", range(3)),
    44: ("k44_incremental_alter_configs", range(2)),
    45: ("k45_alter_partition_reassignments", range(2)),
    46: ("k46_list_partition_reassignments", range(1)),
    47: ("k47_offset_delete", range(1)),
    48: ("k48_describe_client_quotas", range(2)),
    49: ("k49_alter_client_quotas", range(2)),
    50: ("k50_describe_user_scram_credentials", range(1)),
    51: ("k51_alter_user_scram_credentials", range(1)),
    55: ("k55_describe_quorum", range(3)),
    57: ("k57_update_features", range(3)),
    60: ("k60_describe_cluster", range(3)),
    61: ("k61_describe_producers", range(1)),
    65: ("k65_describe_transactions", range(1)),
    66: ("k66_list_transactions", range(3)),
    68: ("k68_consumer_group_heartbeat", range(2)),
    69: ("k69_consumer_group_describe", range(2)),
    74: ("k74_list_config_resources", range(2)),
    75: ("k75_describe_topic_partitions", range(1)),
    76: ("k76_share_group_heartbeat", range(1, 2)),
    77: ("k77_share_group_describe", range(1, 2)),
    78: ("k78_share_fetch", range(1, 3)),
    79: ("k79_share_acknowledge", range(1, 3)),
    83: ("k83_initialize_share_group_state", range(1)),
    84: ("k84_read_share_group_state", range(1)),
    85: ("k85_write_share_group_state", range(2)),
    86: ("k86_delete_share_group_state", range(1)),
    87: ("k87_read_share_group_state_summary", range(2)),
    90: ("k90_describe_share_group_offsets", range(2)),
    91: ("k91_alter_share_group_offsets", range(1)),
    92: ("k92_delete_share_group_offsets", range(1)),
    94: ("k94_unregister_controller", range(1)),
}
"""Maps an API key to its module and its advertised versions."""

_registered: dict[int, Api] = {}


def api(key: int, name: str, versions: range, **options: Any) -> Callable[[Handler], Handler]:
    """Register the function that answers the requests of an API; for the options see `Api`."""

    def register(handle: Handler) -> Handler:
        assert key not in _registered
        _registered[key] = Api(key, name, versions, handle, **options)
        return handle

    return register


class _Apis(dict[int, "Api | None"]):
    """The APIs by their numbers, each imported when it is first asked for; None if the broker does not have it."""

    def __missing__(self, key: int) -> Api | None:
        if key not in ADVERTISED:
            # Not stored, because clients may send any number.
            return None
        importlib.import_module(f"{__name__}.{ADVERTISED[key][0]}")
        # Only now, when the module is complete: another broker may run in another thread.
        self[key] = _registered[key]
        return self[key]


APIS: Mapping[int, Api | None] = _Apis()
"""All APIs by their numbers; None for a number that the broker does not have."""


def load_apis() -> None:
    """Import what answers each API, so that no first request of one waits for that; any thread may call it."""
    for key in ADVERTISED:
        APIS[key]
