"""Values by a schema, as the libraries of Avro and Protocol Buffers read them: for `odradek dump` and for pipelines."""

from __future__ import annotations

import io
from typing import Any


def avro_value(schema: Any, content: bytes) -> Any:
    """Return the value that bytes hold, all of them, by a schema that fastavro has parsed.

    Raises:
        ValueError: Bytes are left over.
        Exception: What the library raises; its errors of data have no common class.
    """
    import fastavro

    stream = io.BytesIO(content)
    value = fastavro.schemaless_reader(stream, schema, None)
    if stream.tell() != len(content):
        raise ValueError(f"{len(content) - stream.tell()} bytes left over")
    return value


def descriptor_pool(content: bytes) -> tuple[Any, list[str]]:
    """Return the pool of a compiled `FileDescriptorSet`, and the names of the messages that its files define.

    Raises:
        Exception: What the library makes of a wrong set.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    names: list[str] = []
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(file)
        names += [f"{file.package}.{kind.name}" if file.package else kind.name for kind in file.message_type]
    return pool, names
