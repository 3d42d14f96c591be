"""AlterReplicaLogDirs: moves partitions to other folders of `log.dirs`, which this broker does not do.

To ask for the folder that a partition is in changes nothing, and is no error; any other folder answers as one of Apache
Kafka's that is offline does.

Source in Kafka: `ReplicaManager.alterReplicaLogDirs`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.storage.names import TopicPartition


def _all_failed(request: Request, code: int, text: str) -> Message:
    return _answer(request, lambda path, topic_partition: code)


def _answer(request: Request, code_for: Callable[[str, TopicPartition], int]) -> Message:
    topics: dict[str, list[Message]] = {}
    for folder in request.body.dirs:
        for topic in folder.topics:
            topics.setdefault(topic.name, []).extend(
                {"partition_index": number, "error_code": code_for(folder.path, TopicPartition(topic.name, number))}
                for number in topic.partitions
            )
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]}


@api(34, "AlterReplicaLogDirs", range(1, 3), failed=_all_failed)
def alter_replica_log_dirs(request: Request) -> Awaitable[Message]:
    """Answer that partitions stay where they are."""
    folders = request.broker.logs.places()

    def code_for(path: str, topic_partition: TopicPartition) -> int:
        if Path(path) not in folders:
            return int(ErrorCode.log_dir_not_found)
        found = next((folder for folder, held in folders.items() if topic_partition in held), None)
        if found is None:
            return int(ErrorCode.replica_not_available)
        return NO_ERROR if found == Path(path) else int(ErrorCode.kafka_storage_error)

    # In another thread, as a request may name many partitions.
    return request.broker.run(partial(_answer, request, code_for))
