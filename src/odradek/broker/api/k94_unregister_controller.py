"""UnregisterController: this node is the only controller, and it is active.

Source in Kafka: `ClusterControlManager.unregisterController`, `QuorumController.unregisterController`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.newer_messages import CONTROLLER_ID_NOT_REGISTERED
from odradek.broker.protocol import Message


@api(94, "UnregisterController", range(1))
def unregister_controller(request: Request) -> Message:
    """Answer why the controller stays."""
    asked = request.body.controller_id
    if asked == request.broker.node_id:
        reason = "Controller cannot unregister itself while it is active."
        return {"error_code": int(ErrorCode.invalid_request), "error_message": reason}
    if not request.broker.logs.metadata_image.has_controller_unregistration:
        reason = "The current MetadataVersion is too old to support controller unregistration."
        return {"error_code": int(ErrorCode.unsupported_version), "error_message": reason}
    reason = f"Controller ID {asked} is not currently registered."
    return {"error_code": CONTROLLER_ID_NOT_REGISTERED, "error_message": reason}
