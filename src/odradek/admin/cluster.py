"""The cluster as a folder's metadata or a broker describe it: nodes, their settings, ACLs and users.

Passwords and other secrets are left out. If a broker refuses to describe something, the reason is noted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from odradek.coordination.authorization.acls import Acl, of_codes
from odradek.coordination.scram.credentials import MECHANISMS_BY_TYPE
from odradek.errors import BrokerError, FormatError
from odradek.storage.directory.broker_config import BROKER_CONFIGS
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.metadata.metadata_image import BROKER_RESOURCE, MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata

if TYPE_CHECKING:
    from odradek.kafka.client import BrokerClient

_ANY = 1
CONFIG_SOURCES = {
    1: "set for the topic",
    2: "set for the broker",
    3: "set for all brokers",
    4: "the broker's file",
    5: "Kafka's default",
}
"""Kafka's `ConfigSource`, in words."""
_SET_FOR_ALL = ""
_T = TypeVar("_T")


class Node(NamedTuple):
    """A broker of the cluster; the state is empty if it is not known."""

    node_id: int
    addresses: str
    rack: str | None
    state: str


class Setting(NamedTuple):
    """A node's setting and its source; the value of a secret is None."""

    node: str
    name: str
    value: str | None
    source: str


@dataclass
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: The id; None if it is not known.
        nodes: The brokers.
        settings: The brokers' settings; of a folder, those that were set while a broker ran.
        acls: The access control lists.
        users: The users of SCRAM, each with a mechanism.
        notes: Why something is not known.
    """

    cluster_id: str | None = None
    nodes: list[Node] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    acls: list[Acl] = field(default_factory=list)
    users: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def cluster_of_folder(path: Path) -> ClusterDescription:
    """Return the cluster of a log directory, as far as its metadata can be read; the notes name what is damaged."""
    found, image = ClusterDescription(), MetadataImage()
    try:
        properties = MetaProperties.read(path / META_PROPERTIES)
        found.cluster_id = None if properties is None else properties.cluster_id
    except FormatError as error:
        found.notes.append(str(error))
    try:
        image = load_metadata(path).image
    except FormatError as error:
        found.notes.append(str(error))
    for node_id, one in sorted(image.brokers.items()):
        addresses = ", ".join(f"{point.name}://{point.host}:{point.port}" for point in one.end_points)
        found.nodes.append(Node(node_id, addresses, one.rack, "fenced" if one.fenced else "was running"))
    for resource, settings in sorted(image.configs.items()):
        if resource.type == BROKER_RESOURCE:
            source = CONFIG_SOURCES[3 if resource.name == _SET_FOR_ALL else 2]
            found.settings += [
                Setting(resource.name or "all", name, value if _is_public(name) else None, source)
                for name, value in sorted(settings.items())
            ]
    found.acls = sorted(Acl.of_record(record) for record in image.acls.values())
    found.users = sorted(
        (name, MECHANISMS_BY_TYPE[kind].name)
        for kind, users in image.scram_credentials.items()
        if kind in MECHANISMS_BY_TYPE
        for name in users
    )
    return found


def _is_public(name: str) -> bool:
    """Whether a setting is known to be no secret."""
    known = BROKER_CONFIGS.get(name)
    return known is not None and known.type != "PASSWORD"


def cluster_of_broker(client: BrokerClient) -> ClusterDescription:
    """Return a broker's cluster; `notes` says what the broker refuses to describe."""
    found = ClusterDescription()

    def told(what: str, ask: Callable[[], _T], default: _T) -> _T:
        try:
            return client.attempt(what, ask)
        except BrokerError as error:
            found.notes.append(str(error))
            return default

    unknown: tuple[str | None, list[Node]] = None, []
    found.cluster_id, found.nodes = told("nodes", partial(_nodes, client), unknown)
    for node in found.nodes:
        found.settings += told(f"settings of node {node.node_id}", partial(_settings, client, node.node_id), [])
    found.acls = told("ACLs", partial(_acls, client), [])
    found.users = told("users", partial(_users, client), [])
    return found


def _nodes(client: BrokerClient) -> tuple[str | None, list[Node]]:
    from kafka.protocol.admin import DescribeClusterRequest

    answer = _checked(client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False)), "nodes")
    brokers = sorted(answer.brokers, key=lambda broker: int(broker.broker_id))
    return answer.cluster_id, [Node(one.broker_id, f"{one.host}:{one.port}", one.rack, "") for one in brokers]


def _settings(client: BrokerClient, node_id: int) -> list[Setting]:
    from odradek.kafka.configs import describe_configs

    (result,) = describe_configs(client, BROKER_RESOURCE, [node_id], node_id=node_id)
    _checked(result, f"settings of node {node_id}")
    found = []
    for one in sorted(result.configs, key=lambda one: (one.config_source, str(one.name))):
        value = None if one.is_sensitive else one.value or ""
        found.append(Setting(str(node_id), one.name, value, CONFIG_SOURCES.get(one.config_source, "unknown")))
    return found


def _acls(client: BrokerClient) -> list[Acl]:
    from kafka.protocol.admin import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return sorted(
        Acl(*of_codes(*resource, one.principal, one.host, one.operation, one.permission_type))
        for held in _checked(client.ask(request), "ACLs").resources
        for resource in [(held.resource_type, held.resource_name, held.pattern_type)]
        for one in held.acls
    )


def _users(client: BrokerClient) -> list[tuple[str, str]]:
    from kafka.protocol.admin import DescribeUserScramCredentialsRequest

    answer = _checked(client.ask(DescribeUserScramCredentialsRequest(users=None)), "users")
    return sorted(
        (user.user, MECHANISMS_BY_TYPE[one.mechanism].name)
        for user in answer.results
        for one in user.credential_infos
        if one.mechanism in MECHANISMS_BY_TYPE
    )


def _checked(answer: Any, what: str) -> Any:
    from odradek.kafka.cluster import check

    check(answer.error_code, what)
    return answer
