"""Messages of Apache Kafka 4.4 that kio has no classes of yet: made of those of the version before.

    ApiVersions v5       the request names the cluster and the node that its client takes the broker for (KIP-1242)
    DeleteGroups v3      the answer has a message for each group (KIP-1331)
    TxnOffsetCommit v6   topics go by their ids (KIP-1319)
    UnregisterController v0   as UnregisterBroker, for a controller

Source in Kafka: `ApiVersionsRequest.json`, `DeleteGroupsResponse.json`, `TxnOffsetCommitRequest.json` and their like.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any
from uuid import UUID

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

_Field = tuple[str, Any, Any]
_OF_CLASS = ("__type__", "__flexible__", "__api_key__", "__header_schema__")


def _next(kind: type[Any], *added: _Field, **instead: _Field) -> type[Any]:
    """Return a class of the version after one of kio's, with fields instead of others, or after all of them."""
    of_class = {"__version__": kind.__version__ + 1}
    return _like(kind, kind.__name__, of_class, *added, **instead)


def _like(kind: type[Any], name: str, of_class: dict[str, Any], /, *added: _Field, **instead: _Field) -> type[Any]:
    made: list[_Field] = []
    for one in fields(kind):
        default = {} if one.default is MISSING else {"default": one.default}
        own = (one.name, one.type, field(metadata=one.metadata, **default))
        made.append(instead.get(one.name, own))
    kept: dict[str, Any] = {one: getattr(kind, one) for one in (*_OF_CLASS, "__version__")}
    return make_dataclass(name, [*made, *added], namespace=kept | of_class, frozen=True, slots=True, kw_only=True)


def _text(name: str, kind: Any, **default: Any) -> _Field:
    return name, kind, field(metadata={"kafka_type": "string"}, **default)


_TOPIC_ID: _Field = ("topic_id", UUID | None, field(metadata={"kafka_type": "uuid"}))


def _array(name: str, kind: type[Any]) -> _Field:
    return name, tuple[kind, ...], field()  # type: ignore[valid-type]


_NODE: _Field = ("node_id", i32, field(metadata={"kafka_type": "int32"}, default=i32(-1)))
_EPOCH: _Field = ("generation_id_or_member_epoch", i32, field(metadata={"kafka_type": "int32"}, default=i32(-1)))

_KEY_94 = {"__api_key__": i16(94)}
_CONTROLLER: _Field = ("controller_id", i32, field(metadata={"kafka_type": "int32"}))
CONTROLLER_ID_NOT_REGISTERED = 136
NEWER_ERRORS = {
    134: "GROUP_DELETION_FAILED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
    CONTROLLER_ID_NOT_REGISTERED: "CONTROLLER_ID_NOT_REGISTERED",
}
"""The errors that kio does not know, by their numbers."""
_CODE: _Field = ("error_code", i16, field(metadata={"kafka_type": "int16"}))
NEWER: dict[tuple[int, int, EntityType], type[Any]] = {
    (kind.__api_key__, kind.__version__, kind.__type__): kind
    for kind in (
        _next(ApiVersionsRequest, _text("cluster_id", str | None, default=None), _NODE),
        _next(ApiVersionsResponse),
        _next(DeleteGroupsRequest),
        _next(
            DeleteGroupsResponse,
            results=_array("results", _next(DeletableGroupResult, _text("error_message", str | None, default=None))),
        ),
        _next(
            TxnOffsetCommitRequest,
            generation_id=_EPOCH,
            topics=_array("topics", _next(TxnOffsetCommitRequestTopic, name=_TOPIC_ID)),
        ),
        _next(
            TxnOffsetCommitResponse,
            topics=_array("topics", _next(TxnOffsetCommitResponseTopic, name=_TOPIC_ID)),
        ),
        _like(UnregisterBrokerRequest, "UnregisterControllerRequest", _KEY_94, broker_id=_CONTROLLER),
        _like(UnregisterBrokerResponse, "UnregisterControllerResponse", _KEY_94, error_code=_CODE),
    )
}
"""The classes, by the key of the API, the version and the kind of message."""
