"""The APIs of the broker: a module for each, which registers itself.

    k00_produce.py   @api(0, "Produce", range(3, 14))   a function: request -> response

Each module begins with what its API does, what it leaves out, and by which KIP it changed in which version. A module is
imported with the first request for its API, so that a broker starts without them. What must be known before is in
`ADVERTISED`, which a test holds against the registrations.

Source in Kafka: `ApiKeys`, `KafkaApis`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from odradek.broker.protocol import Encoded, Message, RequestHeader, encode_response

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.connection import Connection


@dataclass(slots=True)
class Request:
    """A request, for the function that answers it.

    Attributes:
        broker: The broker.
        connection: Where it came from.
        header: Its header.
        body: Its body: an object of kio's class for its version, or what the API's own `decode` returned.
    """

    broker: Broker
    connection: Connection
    header: RequestHeader
    body: Any

    @property
    def version(self) -> int:
        """The version of the API."""
        return self.header.version

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.header.client_id or ""


Handler: TypeAlias = Callable[[Request], "Message | Awaitable[Message | None] | None"]
"""Answers a request. None: the client wants no answer."""

AtOnce: TypeAlias = "Callable[[Broker, Connection, bytearray], Encoded | None]"
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
        failed: Makes the answer of a request that failed; None if an error code and a message at the top do.
        decode: Reads the body of a request; None if kio does.
        encode: Writes a response.
        at_once: Answers the usual requests faster; None if there is no such way.
        overlaps: Whether a request may be begun before the one before it was answered.
        before_authentication: Whether a client may use it before it has authenticated.
        ends_with_client: Whether a request is dropped when its client has gone, because it only waits.
        counts_errors: Whether it counts the errors in its answers itself.
    """

    key: int
    name: str
    versions: range
    handle: Handler
    failed: Failed | None = None
    decode: Callable[[bytearray, RequestHeader], Any] | None = None
    encode: Callable[[RequestHeader, Message], Encoded] = encode_response
    at_once: AtOnce | None = None
    overlaps: bool = False
    before_authentication: bool = False
    ends_with_client: bool = False
    counts_errors: bool = False


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
    18: ("k18_api_versions", range(5)),
    19: ("k19_create_topics", range(2, 8)),
    20: ("k20_delete_topics", range(1, 7)),
    21: ("k21_delete_records", range(3)),
    22: ("k22_init_producer_id", range(6)),
    23: ("k23_offset_for_leader_epoch", range(2, 5)),
    24: ("k24_add_partitions_to_txn", range(6)),
    25: ("k25_add_offsets_to_txn", range(5)),
    26: ("k26_end_txn", range(6)),
    27: ("k27_write_txn_markers", range(1, 3)),
    28: ("k28_txn_offset_commit", range(6)),
    32: ("k32_describe_configs", range(1, 5)),
    33: ("k33_alter_configs", range(3)),
    34: ("k34_alter_replica_log_dirs", range(1, 3)),
    35: ("k35_describe_log_dirs", range(1, 6)),
    36: ("k36_sasl_authenticate", range(3)),
    37: ("k37_create_partitions", range(4)),
    42: ("k42_delete_groups", range(3)),
    43: ("k43_elect_leaders", range(3)),
    44: ("k44_incremental_alter_configs", range(2)),
    45: ("k45_alter_partition_reassignments", range(2)),
    46: ("k46_list_partition_reassignments", range(1)),
    47: ("k47_offset_delete", range(1)),
    55: ("k55_describe_quorum", range(3)),
    57: ("k57_update_features", range(3)),
    60: ("k60_describe_cluster", range(3)),
    61: ("k61_describe_producers", range(1)),
    65: ("k65_describe_transactions", range(1)),
    66: ("k66_list_transactions", range(3)),
    74: ("k74_list_config_resources", range(2)),
    75: ("k75_describe_topic_partitions", range(1)),
}
"""Of each API by its number: its module, and the versions that clients are told of."""

_registered: dict[int, Api] = {}


def api(
    key: int,
    name: str,
    versions: range,
    *,
    failed: Failed | None = None,
    decode: Callable[[bytearray, RequestHeader], Any] | None = None,
    encode: Callable[[RequestHeader, Message], Encoded] = encode_response,
    at_once: AtOnce | None = None,
    overlaps: bool = False,
    before_authentication: bool = False,
    ends_with_client: bool = False,
    counts_errors: bool = False,
) -> Callable[[Handler], Handler]:
    """Register a function as the one that answers the requests of an API; for the arguments see `Api`."""

    def register(handle: Handler) -> Handler:
        assert key not in _registered
        _registered[key] = Api(
            key,
            name,
            versions,
            handle,
            failed,
            decode,
            encode,
            at_once,
            overlaps,
            before_authentication,
            ends_with_client,
            counts_errors,
        )
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
