"""DescribeCluster: the brokers, and which of them is the controller: this one.

v1 (KIP-919) can ask for the controllers, which is an error here as at Apache Kafka's brokers; v2 (KIP-1073) for fenced
brokers, of which there are none.

Source in Kafka: `KafkaApis.handleDescribeCluster`, `AuthHelper.computeDescribeClusterResponse`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k03_metadata import cluster_operations
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.operations import NOT_ASKED
from odradek.broker.protocol import Message, given

_BROKERS, _CONTROLLERS = 1, 2


@api(60, "DescribeCluster", range(3))
def describe_cluster(request: Request) -> Message:
    """Answer what the cluster is."""
    broker = request.broker
    wanted = given(request.body, "endpoint_type", _BROKERS)
    if wanted == _CONTROLLERS:
        reason = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise ApiError(ErrorCode.mismatched_endpoint_type, reason)
    if wanted != _BROKERS:
        raise ApiError(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}")
    endpoint = broker.endpoint(request.connection.listener)
    asks = request.body.include_cluster_authorized_operations
    return {
        "error_code": NO_ERROR,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": broker.cluster_id or "",
        "controller_id": broker.node_id,
        "brokers": [
            {
                "broker_id": broker.node_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.config["broker.rack"],
                "is_fenced": False,
            }
        ],
        "cluster_authorized_operations": cluster_operations(request) if asks else NOT_ASKED,
    }
