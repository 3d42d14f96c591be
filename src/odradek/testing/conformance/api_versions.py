"""ApiVersions and frames: what every client begins with, and what is no request at all."""

from __future__ import annotations

import struct

from odradek.broker.protocol import encode_request
from odradek.errors import ProtocolError
from odradek.testing.api_names import api_key_of
from odradek.testing.conformance.target import Target, UnexpectedError, expect, expect_error
from odradek.testing.wire import WireClient

_KEY = api_key_of("ApiVersions")
_IBP_4_4_IV2 = 33


def _expect_closed(client: WireClient) -> None:
    try:
        answer = client.receive_frame()
    except (ProtocolError, ConnectionError):
        return
    raise UnexpectedError(f"an answer of {len(answer)} bytes, not a closed connection")


def _raw(client: WireClient, key: int, version: int, body: bytes = b"") -> None:
    frame = struct.pack(">hhih", key, version, 77, -1) + body
    client.socket.sendall(struct.pack(">i", len(frame)) + frame)


def unknown_version_is_answered_in_v0(target: Target) -> None:
    """A version of ApiVersions that the broker does not know is answered in v0, by UNSUPPORTED_VERSION (KIP-511)."""
    client = target.connect()
    _raw(client, _KEY, 99, b"\x00\x02a\x02b\x00")
    answer = client.receive(_KEY, 0, 77)
    expect_error("error", answer.error_code, "UNSUPPORTED_VERSION")
    expect("keys", [(int(one.api_key), one.min_version) for one in answer.api_keys], [(_KEY, 0)])


def unknown_version_keeps_the_connection(target: Target) -> None:
    """After a version of ApiVersions that it does not know the broker answers on the same connection."""
    client = target.connect()
    _raw(client, _KEY, 99, b"\x00\x02a\x02b\x00")
    client.receive_frame()
    expect_error("error", target.call("ApiVersions", 0, client=client).error_code, "NONE")


def software_name_must_be_valid(target: Target) -> None:
    """A client's software name with other characters than letters, digits, dots and dashes is an INVALID_REQUEST."""
    answer = target.call("ApiVersions", 3, client_software_name="-no/name-")
    expect_error("error", answer.error_code, "INVALID_REQUEST")


def software_version_must_be_valid(target: Target) -> None:
    """An empty software version is an INVALID_REQUEST."""
    answer = target.call("ApiVersions", 3, client_software_version="")
    expect_error("error", answer.error_code, "INVALID_REQUEST")


def the_wrong_node_is_told_to_bootstrap_again(target: Target) -> None:
    """A client that takes the broker for one of another cluster is told to bootstrap again (KIP-1242)."""
    target.needs("ApiVersions", 5)
    own = target.call("DescribeCluster", 0)
    node = own.brokers[0].broker_id
    wrong = [{"cluster_id": f"{own.cluster_id}x", "node_id": node}, {"cluster_id": own.cluster_id, "node_id": node + 7}]
    for address in wrong:
        answer = target.call("ApiVersions", 5, client_software_name="a", client_software_version="1", **address)
        expect_error("error", answer.error_code, "REBOOTSTRAP_REQUIRED")
        expect("keys", len(answer.api_keys), 0)
    if len(own.brokers) == 1:
        right = {"cluster_id": own.cluster_id, "node_id": node}
        answer = target.call("ApiVersions", 5, client_software_name="a", client_software_version="1", **right)
        expect_error("error", answer.error_code, "NONE")


def half_of_an_address_is_invalid(target: Target) -> None:
    """A cluster without a node, or a node without a cluster, is an INVALID_REQUEST (KIP-1242)."""
    target.needs("ApiVersions", 5)
    for address in ({"cluster_id": "a"}, {"cluster_id": ""}, {"node_id": 1}):
        answer = target.call("ApiVersions", 5, client_software_name="a", client_software_version="1", **address)
        expect_error("error", answer.error_code, "INVALID_REQUEST")


def all_versions_tell_the_same(target: Target) -> None:
    """Each version of ApiVersions tells of the same APIs."""
    told = [
        {int(one.api_key): (one.min_version, one.max_version) for one in target.call("ApiVersions", version).api_keys}
        for version in range(target.needs("ApiVersions") + 1)
    ]
    expect("number of different answers", len({tuple(sorted(one.items())) for one in told}), 1)


def features_are_told(target: Target) -> None:
    """The features metadata.version and transaction.version are supported."""
    answer = target.call("ApiVersions", 4)
    names = {one.name for one in answer.supported_features}
    expect("missing", {"metadata.version", "transaction.version"} - names, set())


def features_with_level_0_are_hidden_before_v4(target: Target) -> None:
    """A feature that may be at level 0 is not told before v4, whose clients could not read it."""
    answer = target.call("ApiVersions", 3)
    expect("lowest level told", min(one.min_version for one in answer.supported_features) > 0, True)


def metadata_version_is_finalized(target: Target) -> None:
    """The finalized features have metadata.version, within what is supported."""
    answer = target.call("ApiVersions", 4)
    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    found = {one.name: one.max_version_level for one in answer.finalized_features}
    low, high = supported["metadata.version"]
    expect("metadata.version is between the supported levels", low <= found["metadata.version"] <= high, True)


def requests_of_one_connection_are_answered_in_order(target: Target) -> None:
    """A hundred requests that are sent together are answered in their order."""
    client = target.connect()
    sent = [target.send(client, "ApiVersions", number % 5) for number in range(100)]
    for receive in sent:
        expect_error("error", receive().error_code, "NONE")


def a_slow_request_keeps_its_place(target: Target) -> None:
    """A request after a Fetch that waits is answered after it."""
    topic = target.topic()
    client = target.connect()
    waiting = target.send(client, "Fetch", 12, **target.fetch_fields(topic, 0, max_wait_ms=300))
    quick = target.send(client, "ApiVersions", 0)
    expect_error("the fetch", waiting().error_code, "NONE")
    expect_error("what was sent after it", quick().error_code, "NONE")


def a_request_in_pieces_is_answered(target: Target) -> None:
    """A request that comes byte by byte is answered."""
    client = target.connect()
    frame = encode_request(_KEY, 0, 5, "conformance", {})
    for position in range(len(frame)):
        client.socket.sendall(frame[position : position + 1])
    expect_error("error", client.receive(_KEY, 0, 5).error_code, "NONE")


def a_null_client_id_is_taken(target: Target) -> None:
    """A client need not say what it is called."""
    client = target.connect(client_id=None)
    expect_error("error", target.call("ApiVersions", 3, client=client).error_code, "NONE")


def tags_of_a_header_are_skipped(target: Target) -> None:
    """A tagged field in the header that the broker does not know is skipped."""
    client = target.connect()
    body = b"\x02a\x02b\x00"
    _raw(client, _KEY, 3, b"\x01\x63\x03xyz" + body)
    expect_error("error", client.receive(_KEY, 3, 77).error_code, "NONE")


def tags_of_a_body_are_skipped(target: Target) -> None:
    """A tagged field in the body that the broker does not know is skipped."""
    client = target.connect()
    _raw(client, _KEY, 3, b"\x00" + b"\x02a\x02b" + b"\x01\x63\x03xyz")
    expect_error("error", client.receive(_KEY, 3, 77).error_code, "NONE")


def tags_within_a_body_are_skipped(target: Target) -> None:
    """Tagged fields that the broker does not know are skipped in inner structures too, in any order, also twice."""
    client = target.connect()
    tags = b"\x03\x63\x03xyz\x05\x00\x63\x00"
    topics = b"\x03" + (b"\x00" * 16 + b"\x05none" + tags) + (b"\x00" * 16 + b"\x05gone" + tags)
    _raw(client, api_key_of("Metadata"), 12, tags + topics + b"\x00\x00" + tags)
    answer = client.receive(api_key_of("Metadata"), 12, 77)
    expect("topics", sorted(topic.name for topic in answer.topics), ["gone", "none"])


def a_tag_that_is_cut_short_closes_the_connection(target: Target) -> None:
    """A tagged field that is longer than its request closes the connection."""
    client = target.connect()
    _raw(client, _KEY, 3, b"\x00" + b"\x02a\x02b" + b"\x01\x63\x04xyz")
    _expect_closed(client)


def an_unknown_api_closes_the_connection(target: Target) -> None:
    """A request of an API that the broker does not have closes the connection."""
    client = target.connect()
    _raw(client, 9999, 0)
    _expect_closed(client)


def an_unknown_version_of_an_api_closes_the_connection(target: Target) -> None:
    """A version that is not advertised closes the connection, except of ApiVersions."""
    client = target.connect()
    _raw(client, api_key_of("Metadata"), 99)
    _expect_closed(client)


def half_a_body_closes_the_connection(target: Target) -> None:
    """A request that ends in the middle of a field closes the connection."""
    client = target.connect()
    _raw(client, api_key_of("Metadata"), 1, b"\x00\x00\x00\x05\x00\x03ab")
    _expect_closed(client)


def a_negative_size_closes_the_connection(target: Target) -> None:
    """A frame with a size below 0 closes the connection."""
    client = target.connect()
    client.socket.sendall(struct.pack(">i", -5))
    _expect_closed(client)


def a_size_that_is_too_large_closes_the_connection(target: Target) -> None:
    """A frame of 2 GB closes the connection before it is read."""
    client = target.connect()
    client.socket.sendall(struct.pack(">i", (1 << 31) - 1))
    _expect_closed(client)


def text_of_http_closes_the_connection(target: Target) -> None:
    """A client that speaks HTTP is not answered: the connection is closed."""
    client = target.connect()
    client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    _expect_closed(client)


def an_array_that_cannot_fit_closes_the_connection(target: Target) -> None:
    """An array that is said to have two thousand million items closes the connection."""
    client = target.connect()
    _raw(client, api_key_of("Metadata"), 1, struct.pack(">i", (1 << 31) - 1))
    _expect_closed(client)


def a_controller_that_is_not_there(target: Target) -> None:
    """A controller that is not registered is CONTROLLER_ID_NOT_REGISTERED, or UNSUPPORTED_VERSION before 4.4-IV2."""
    target.needs("UnregisterController")
    levels = {one.name: one.max_version_level for one in target.call("ApiVersions", 4).finalized_features}
    wanted = "CONTROLLER_ID_NOT_REGISTERED" if levels["metadata.version"] >= _IBP_4_4_IV2 else "UNSUPPORTED_VERSION"
    expect_error("controller 77", target.call("UnregisterController", controller_id=77).error_code, wanted)
