"""ListPartitionReassignments: which partitions move between brokers; with one broker none do.

Source in Kafka: `ReplicationControlManager.listPartitionReassignments`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message


@api(46, "ListPartitionReassignments", range(1))
def list_partition_reassignments(request: Request) -> Message:
    """Answer that no partition moves."""
    return {"error_code": NO_ERROR, "error_message": None, "topics": []}
