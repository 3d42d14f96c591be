"""Memory stays bounded, whatever a batch claims."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib

import pytest

from odradek.errors import CompressionError, CorruptRecordError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, compress
from odradek.testing.message_builder import build_message_set

CODECS = [codec for codec in Codec if codec]

# Run apart, so that the limit on its memory holds for nothing else.
BOMB = """
import resource
from odradek.errors import BrokerError, CompressionError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.kernels.encode import seal
from odradek.columnar import decode_slices, select
from odradek.records.append.validator import AppendRules, validate_append

LIMIT = 16 << 20

class Slice:
    path, position, origin = "bomb.log", 0, 0
    def __init__(self, data):
        self.data, self.end_position = data, len(data)

bombs = []
for codec in Codec:
    if codec:
        # Records that were never there: only what the codec says counts.
        header = bytearray(build_batch([Record(value=b"")], codec=codec)[:61])
        bombs.append((codec, seal(bytes(header), compress(codec, bytes(128 << 20)))))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
for codec, bomb in bombs:
    (header,) = scan_batches(bomb)
    try:
        read_records(bomb, header, limit=LIMIT)
    except CompressionError as error:
        print(error)
    try:
        list(decode_slices([Slice(bomb)], select(), topic="t", partition=0, limit=LIMIT))
    except CompressionError as error:
        print(error)
    try:
        validate_append(
            bomb, AppendRules(max_message_bytes=1 << 30), base_offset=0, partition_leader_epoch=0, now_ms=0,
            decompressor=Decompressor(LIMIT),
        )
    except BrokerError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_bomb_is_refused_within_the_limit() -> None:
    """Blocks that grow to 128 MB, where the process has 100 MB to give and the limit is 16 MB."""
    result = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3 * len(CODECS)
    for number, codec in enumerate(CODECS):
        objects, columns, checked = lines[number * 3 : number * 3 + 3]
        assert objects.startswith(f"position 0: {codec.name.lower()}: ")
        assert columns.startswith(f"bomb.log, position 0: {codec.name.lower()}: ")
        assert checked.startswith("INVALID_RECORD (87): its records cannot be decompressed")
        assert all("16777216" in line for line in (objects, columns, checked))


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(5000))], codec=codec)
    (header,) = scan_batches(batch)
    section = len(build_batch([Record(value=bytes(5000))])) - 61
    assert len(read_records(batch, header, limit=section)) == 1
    with pytest.raises(CompressionError):
        read_records(batch, header, limit=section - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_in_a_wrapper_is_refused(magic: int) -> None:
    inner = build_message_set([Record(value=b"x")], magic=magic, codec=Codec.GZIP)
    nested = _wrap(inner, magic)
    (header,) = scan_batches(nested)
    with pytest.raises(CorruptRecordError, match="another format"):
        read_records(nested, header)


def _wrap(content: bytes, magic: int) -> bytes:
    data = bytearray(build_message_set([Record(None, compress(Codec.GZIP, content, magic=magic))], magic=magic))
    data[17] = Codec.GZIP
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)
