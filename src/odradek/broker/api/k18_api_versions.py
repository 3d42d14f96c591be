"""ApiVersions: which APIs the broker has, and in which versions; the first request of nearly every client.

A version that the broker does not know is answered too, in the form of version 0 and with an error (KIP-511), so that a
newer client can ask again. v3 (KIP-511) adds the client's software, and features (KIP-584); v4 (KIP-848) lets feature
levels begin at 0. v5 (KIP-1242) names the cluster and the node that the client takes the broker for: it is told to
bootstrap again if the address is another one's by now.

Source in Kafka: `ApiVersionManager`, `ApiVersionsResponse`.
"""

from __future__ import annotations

import re
from functools import cache

from kio.schema.errors import ErrorCode

from odradek.broker.api import ADVERTISED, Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import API_VERSIONS_KEY, Constant, Message, given
from odradek.errors import ProtocolError

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


_NO_NODE = -1


@cache
def _advertised() -> Constant:
    return Constant(
        {"api_key": key, "min_version": versions.start, "max_version": versions.stop - 1}
        for key, (_, versions) in ADVERTISED.items()
    )


def unsupported_version() -> Message:
    """Return the answer to a request of a version that the broker does not know."""
    own = [entry for entry in _advertised() if entry["api_key"] == API_VERSIONS_KEY]
    return {"error_code": int(ErrorCode.unsupported_version), "api_keys": own}


def _failed(request: Request, code: int, text: str) -> Message:
    # A client that gets no APIs gives up; one whose connection was closed tries again.
    raise ProtocolError(f"ApiVersions failed: {text}")


def _refused(request: Request, error: ErrorCode) -> Message:
    request.broker.metrics.failed("ApiVersions", int(error))
    return {"error_code": int(error), "api_keys": []}


@api(API_VERSIONS_KEY, "ApiVersions", range(6), failed=_failed, before_authentication=True, counts_errors=True)
def api_versions(request: Request) -> Message:
    """Answer what the broker has."""
    if request.version >= 3:
        name = given(request.body, "client_software_name", "")
        version = given(request.body, "client_software_version", "")
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return _refused(request, ErrorCode.invalid_request)
        cluster_id, node_id = given(request.body, "cluster_id"), given(request.body, "node_id", _NO_NODE)
        if (cluster_id is None) != (node_id == _NO_NODE):
            return _refused(request, ErrorCode.invalid_request)
        own = request.broker.cluster_id, request.broker.node_id
        if cluster_id is not None and (cluster_id, node_id) != own:
            return _refused(request, ErrorCode.rebootstrap_required)
        request.connection.state["software"] = name, version
    image = request.broker.logs.metadata_image
    # Before v4 there is no level 0.
    supported = [
        {"name": name, "min_version": low, "max_version": high}
        for name, (low, high) in request.broker.features.items()
        if low > 0 or request.version >= 4
    ]
    # A feature that the folder has and the broker does not, such as a kind of groups, is not listed.
    finalized = [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, (_, high) in request.broker.features.items()
        if (level := min(image.features.get(name, 0), high)) > 0
    ]
    return {
        "error_code": NO_ERROR,
        "api_keys": _advertised(),
        "supported_features": supported,
        "finalized_features_epoch": request.broker.logs.metadata.offset,
        "finalized_features": finalized,
        "zk_migration_ready": False,
    }
