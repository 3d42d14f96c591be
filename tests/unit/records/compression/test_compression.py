"""All codecs: what goes in comes out, what is broken is refused, and nothing grows past the limit."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from struct import pack

import pytest

from odradek.errors import CompressionError
from odradek.records.compression import LEVELS, MAX_DECOMPRESSED_BYTES, Codec, Decompressor, compress, decompress

COMPRESSED = list(Codec)[1:]
SOURCE = random.Random(4)
TEXT = " ".join(SOURCE.choices(["topic", "partition", "offset", "epoch", "leader", "segment"], k=60_000)).encode()
NOISE = SOURCE.randbytes(200_000)
MIXED = b"".join(TEXT[n : n + 300] + NOISE[n : n + 50] for n in range(0, 150_000, 300))
SIZES = [0, 1, 2, 100, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 131_073, 150_000]


def magics(codec: Codec) -> list[int]:
    return [2] if codec == Codec.ZSTD else [0, 1, 2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [TEXT, NOISE, MIXED, bytes(200_000)], ids=["text", "noise", "mixed", "zeros"])
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    decompressor = Decompressor()
    for size in SIZES:
        for magic in magics(codec):
            block = compress(codec, data[:size], magic=magic)
            assert bytes(decompress(codec, block, magic=magic)) == data[:size]
            assert decompressor.decompress(codec, block, magic=magic) == data[:size]


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(LEVELS))
def test_every_level_is_readable_and_costs_or_saves_something(codec: Codec) -> None:
    default, lowest, highest = LEVELS[codec]
    sizes = {}
    for level in {default, lowest, highest, *range(max(lowest, -7), min(highest, 19) + 1)}:
        block = compress(codec, MIXED, level=level)
        assert bytes(decompress(codec, block)) == MIXED
        sizes[level] = len(block)
    assert compress(codec, MIXED) == compress(codec, MIXED, level=default)
    assert sizes[highest] < sizes[lowest]
    assert len(set(sizes.values())) > 3
    for level in (min(lowest, default) - 1, highest + 1, *([0] if lowest == 1 else [])):
        with pytest.raises(ValueError, match=f"{codec.name.lower()} has levels {lowest} to {highest}"):
            compress(codec, MIXED, level=level)


def test_the_default_level_of_lz4_is_the_fast_compressor() -> None:
    assert len(compress(Codec.LZ4, TEXT, level=9)) > len(compress(Codec.LZ4, TEXT, level=8))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_codec_without_levels_takes_none(codec: Codec) -> None:
    with pytest.raises(ValueError, match="has no levels"):
        compress(codec, b"x", level=1)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_a_codec_that_kafka_does_not_have(codec: int) -> None:
    with pytest.raises(CompressionError, match=f"codec {codec} is unknown"):
        decompress(codec, b"x")
    with pytest.raises(ValueError, match=f"codec {codec} is unknown"):
        compress(codec, b"x")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_came_with_magic_2(magic: int) -> None:
    with pytest.raises(CompressionError, match=f"magic {magic}"):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, b"x"), magic=magic)
    with pytest.raises(ValueError, match=f"magic {magic}"):
        compress(Codec.ZSTD, b"x", magic=magic)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_no_bytes_are_no_block(codec: Codec) -> None:
    with pytest.raises(CompressionError, match=codec.name.lower()):
        decompress(codec, b"")


def test_no_bytes_are_no_frames_of_zstd() -> None:
    assert bytes(decompress(Codec.ZSTD, b"")) == b""


@pytest.mark.parametrize("codec", list(Codec))
def test_any_buffer_will_do(codec: Codec) -> None:
    block = compress(codec, MIXED)
    for buffer in (bytearray(block), memoryview(block), memoryview(b"ab" + block + b"c")[2:-1]):
        assert bytes(decompress(codec, buffer)) == MIXED
    assert compress(codec, memoryview(b"x" + MIXED)[1:]) == block
    assert compress(codec, memoryview(MIXED).cast("H")) == block


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_decompressor_reuses_its_buffer_and_a_plain_call_does_not(codec: Codec) -> None:
    first, second = compress(codec, MIXED), compress(codec, bytes(reversed(MIXED)))
    kept = decompress(codec, first)
    assert bytes(decompress(codec, second)) == bytes(reversed(MIXED))
    assert kept == MIXED
    decompressor = Decompressor()
    before = decompressor.decompress(codec, first)
    copy = bytes(before)
    assert decompressor.decompress(codec, second) == bytes(reversed(MIXED))
    assert copy == MIXED
    assert bytes(decompressor.decompress(codec, compress(codec, b"short"))) == b"short"
    assert decompressor.decompress(codec, first) == MIXED


SMALL = (TEXT[:400] + NOISE[:100]) * 2


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_block_cut_anywhere_is_an_error(codec: Codec) -> None:
    block = compress(codec, SMALL)
    whole_without = {0} if codec == Codec.ZSTD else {16} if codec == Codec.SNAPPY else set()
    for cut in range(len(block)):
        if cut in whole_without:  # nothing, or a header without a block, is a stream without content
            assert bytes(decompress(codec, block[:cut])) == b""
            continue
        with pytest.raises(CompressionError, match=codec.name.lower()):
            decompress(codec, block[:cut])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_long_block_cut_at_some_places(codec: Codec) -> None:
    block = compress(codec, MIXED)
    for cut in sorted(SOURCE.sample(range(1, len(block)), 150)):
        try:
            content = decompress(codec, block[:cut])
        except CompressionError:
            continue
        # a xerial stream may end after any of its blocks
        assert codec == Codec.SNAPPY
        assert content == MIXED[: len(content)]
        assert len(content) % 32_768 == 0


@pytest.mark.sampled
@pytest.mark.parametrize("codec", COMPRESSED)
def test_any_flipped_bit_gives_an_error_or_bounded_content(codec: Codec) -> None:
    block = compress(codec, SMALL)
    refused = 0
    for position in range(len(block)):
        for bit in range(8):
            broken = bytearray(block)
            broken[position] ^= 1 << bit
            try:
                content = decompress(codec, broken, limit=4 * len(SMALL))
            except CompressionError:
                refused += 1
            else:
                assert len(content) <= 4 * len(SMALL)
    assert refused > len(block) // 4


@pytest.mark.parametrize("codec", COMPRESSED)
def test_random_bytes_are_refused(codec: Codec) -> None:
    heads = {
        Codec.GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
        Codec.SNAPPY: b"\x82SNAPPY\0" + pack(">ii", 1, 1),
        Codec.LZ4: bytes.fromhex("04224d18604082"),
        Codec.ZSTD: bytes.fromhex("28b52ffd0058"),
    }
    for length in range(1, 400):
        for head in (b"", heads[codec]):
            try:
                content = decompress(codec, head + SOURCE.randbytes(length), limit=1 << 20)
            except CompressionError:
                continue
            assert len(content) <= 1 << 20


LIMIT = 1 << 20


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_the_limit_is_the_largest_size_that_passes(codec: Codec) -> None:
    block = compress(codec, MIXED)
    assert bytes(decompress(codec, block, limit=len(MIXED))) == MIXED
    for limit in (0, 1, 1000, 65_536, len(MIXED) - 1):
        with pytest.raises(CompressionError, match=rf"{codec.name.lower()}.*past the limit of {limit} bytes"):
            decompress(codec, block, limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_does_not_fill_the_memory_of_the_process(codec: Codec, tmp_path: Path) -> None:
    """What a package allocates on its own is not traced: ask the kernel, in a process that may not have more."""
    path = tmp_path / "bomb"
    path.write_bytes(compress(codec, bytes(128 << 20)))
    program = (
        "import resource, sys\n"
        "from odradek.errors import CompressionError\n"
        "from odradek.records.compression import decompress\n"
        f"data = open({str(path)!r}, 'rb').read()\n"
        f"try: decompress({int(codec)}, b'', limit=0)\n"
        "except CompressionError: pass\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: decompress({int(codec)}, data, limit=8 << 20)\n"
        "except CompressionError as error: print(error)\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert after - before < 40 << 10, (before, after)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"past the limit of {8 << 20} bytes" in done.stdout


def test_the_limit_is_stated() -> None:
    assert MAX_DECOMPRESSED_BYTES == 256 << 20
    assert Decompressor().limit == MAX_DECOMPRESSED_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_codec_loads_no_package_but_its_own(codec: Codec) -> None:
    block = compress(codec, b"content")
    package = {Codec.GZIP: "isal", Codec.SNAPPY: "cramjam", Codec.LZ4: "cramjam", Codec.ZSTD: "zstandard"}[codec]
    program = (
        "import sys\n"
        "from odradek.records.compression import decompress\n"
        "found = lambda: {'isal', 'cramjam', 'zstandard', 'lz4'} & set(sys.modules)\n"
        "assert not found(), found()\n"
        f"assert bytes(decompress({int(codec)}, {block!r})) == b'content'\n"
        f"assert found() == {{{package!r}}}, found()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
