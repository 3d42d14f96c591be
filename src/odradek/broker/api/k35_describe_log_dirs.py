"""DescribeLogDirs: the folders of `log.dirs`, the partitions in each, their sizes, and the space of the disk.

v3 adds an error for all of it; v4 (KIP-827) the disk's space; v5 (KIP-1066) whether the folder takes new partitions:
it always does.

Source in Kafka: `ReplicaManager.describeLogDirs`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message
from odradek.storage.names import TopicPartition


def _failed(request: Request, code: int, text: str) -> Message:
    # Before the error at the top there is no place for one.
    return {"error_code": code, "results": []}


@api(35, "DescribeLogDirs", range(1, 6), failed=_failed)
async def describe_log_dirs(request: Request) -> Message:
    """Answer what is in the folders."""
    topics = request.body.topics
    wanted = None if topics is None else {(topic.topic, number) for topic in topics for number in topic.partitions}

    def describe() -> list[Message]:
        return [_folder(path, sizes, wanted) for path, sizes in request.broker.logs.sizes_bytes().items()]

    return {"error_code": NO_ERROR, "results": await request.broker.run(describe)}


def _folder(path: Path, sizes: Mapping[TopicPartition, int], wanted: set[tuple[str, int]] | None) -> Message:
    try:
        disk = shutil.disk_usage(path)
    except OSError as error:
        return {"error_code": code_of(error), "log_dir": str(path)}
    shown = sorted(place for place in sizes if wanted is None or place in wanted)
    return {
        "error_code": NO_ERROR,
        "log_dir": str(path),
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": place.partition,
                        "partition_size": sizes[place],
                        "offset_lag": 0,
                        "is_future_key": False,
                    }
                    for place in places
                ],
            }
            for name, places in groupby(shown, key=lambda place: place.topic)
        ],
        "total_bytes": disk.total,
        "usable_bytes": disk.free,
        "is_cordoned": False,
    }
