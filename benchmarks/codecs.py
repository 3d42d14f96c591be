"""Measures the packages that implement each codec, both ways, and prints one Markdown table.

    python benchmarks/codecs.py [--seconds 0.3]

The data is JSON-like records with some random bytes, in blocks of 64 KiB and of 1 MiB. Every candidate gets the same
compressed block, framed as Kafka frames it, and the best of many runs counts. `best` is the speed relative to the
fastest candidate for the same block; a package that is not installed is left out. "into" reuses one buffer from run to
run. pyarrow is included as a yardstick: the core does not import it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import string
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from odradek.records.compression import Codec, Decompressor, compress, decompress

BLOCKS = {"64 KiB": 64 << 10, "1 MiB": 1 << 20}
Candidates = dict[str, Callable[[], Any]]


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


cramjam, isal_zlib, lz4_block, lz4_frame, pyarrow, zstandard = map(
    optional, ["cramjam", "isal.isal_zlib", "lz4.block", "lz4.frame", "pyarrow", "zstandard"]
)
zstd_standard = optional("odradek.records.compression.zstd_standard")


def records(size: int) -> bytes:
    """Return text-like data: words that repeat, numbers that do not, a little noise."""
    source = random.Random(20)
    words = ["".join(source.choices(string.ascii_lowercase, k=source.randint(2, 9))).encode() for _ in range(2000)]
    data = bytearray()
    while len(data) < size:
        text = b" ".join(source.choices(words, k=12))
        data += b'{"id":%d,"user":"%s","text":"%s",' % (source.randrange(10**9), source.choice(words), text)
        data += b'"trace":"%s","raw":"%s"}' % (source.randbytes(8).hex().encode(), source.randbytes(8))
    return bytes(data[:size])


def pieces(data: bytes, size: int) -> list[memoryview]:
    return [memoryview(data)[start : start + size] for start in range(0, len(data), size)]


def framed(stream: bytes, header: int, order: Any) -> list[memoryview]:
    """Return the blocks of a xerial stream or of an LZ4 frame."""
    view, position, blocks = memoryview(stream), header, []
    while length := int.from_bytes(view[position : position + 4], order):
        blocks.append(view[position + 4 : position + 4 + length])
        position += 4 + length
    return blocks


def gzip_decoders(block: bytes, size: int, scratch: memoryview) -> Candidates:
    found: Candidates = {"zlib of Python": lambda: zlib.decompressobj(31).decompress(block, size + 1)}
    if isal_zlib:
        found["isal"] = lambda: isal_zlib.decompressobj(31).decompress(block, size + 1)
    if cramjam:
        found["cramjam"] = lambda: cramjam.gzip.decompress(block)
        found["cramjam, into"] = lambda: cramjam.gzip.decompress_into(block, scratch[:size])
    if pyarrow:
        found["pyarrow"] = partial(pyarrow.Codec("gzip").decompress, block, size)
    return found


def gzip_encoders(data: bytes) -> Candidates:
    def deflate(level: int) -> bytes:
        deflater = zlib.compressobj(level, zlib.DEFLATED, 31)
        return deflater.compress(data) + deflater.flush()

    found: Candidates = {f"zlib of Python, level {n}": partial(deflate, n) for n in (1, 6, 9)}
    if isal_zlib:
        found |= {f"isal, level {n}": partial(isal_zlib.compress, data, n, 31) for n in (1, 2, 3)}
    if cramjam:
        found["cramjam, level 6"] = lambda: cramjam.gzip.compress(data, level=6)
    return found


def snappy_decoders(block: bytes, size: int, scratch: memoryview) -> Candidates:
    blocks = framed(block, 16, "big")
    found: Candidates = {}
    if cramjam:
        raw, into = cramjam.snappy.decompress_raw, cramjam.snappy.decompress_raw_into
        slots = [scratch[n << 15 : (n + 1) << 15] for n in range(len(blocks))]
        found["cramjam"] = lambda: b"".join([bytes(raw(part)) for part in blocks])
        found["cramjam, into"] = lambda: [into(part, slot) for part, slot in zip(blocks, slots, strict=True)]
    if pyarrow:
        codec = pyarrow.Codec("snappy")
        found["pyarrow"] = lambda: b"".join([codec.decompress(part, 1 << 15, asbytes=True) for part in blocks])
    return found


def snappy_encoders(data: bytes) -> Candidates:
    parts = pieces(data, 1 << 15)
    found: Candidates = {}
    if cramjam:
        found["cramjam"] = lambda: b"".join([bytes(cramjam.snappy.compress_raw(part)) for part in parts])
    if pyarrow:
        codec = pyarrow.Codec("snappy")
        found["pyarrow"] = lambda: b"".join([codec.compress(part, asbytes=True) for part in parts])
    return found


def lz4_decoders(block: bytes, size: int, scratch: memoryview) -> Candidates:
    blocks = framed(block, 7, "little")
    most = 1 << 16
    found: Candidates = {}
    if cramjam:
        into = cramjam.lz4.decompress_block_into
        slots = [scratch[n << 16 : (n + 1) << 16] for n in range(len(blocks))]
        pairs = list(zip(blocks, slots, strict=True))
        found["cramjam, frame"] = lambda: cramjam.lz4.decompress(block)
        found["cramjam, frame, into"] = lambda: cramjam.lz4.decompress_into(block, scratch[:size])
        found["cramjam, blocks, into"] = lambda: [into(part, slot, output_len=most) for part, slot in pairs]
    if lz4_frame:
        one = lz4_block.decompress
        found["lz4, frame"] = lambda: lz4_frame.LZ4FrameDecompressor().decompress(block, size + 1)
        found["lz4, blocks"] = lambda: b"".join([one(part, uncompressed_size=most) for part in blocks])
    if pyarrow:
        found["pyarrow"] = partial(pyarrow.Codec("lz4").decompress, block, size)
    return found


def lz4_encoders(data: bytes) -> Candidates:
    parts = pieces(data, 1 << 16)
    found: Candidates = {}
    if cramjam:
        fast = cramjam.lz4.compress_block
        found["cramjam, blocks"] = lambda: b"".join([bytes(fast(part, store_size=False)) for part in parts])
        found["cramjam, frame"] = lambda: cramjam.lz4.compress(data, level=0)
    if lz4_frame:
        found["lz4, frame"] = lambda: lz4_frame.compress(data, block_size=4, block_linked=False, store_size=False)
        found["lz4, blocks"] = lambda: b"".join([lz4_block.compress(part, store_size=False) for part in parts])
    if pyarrow:
        found["pyarrow"] = partial(pyarrow.Codec("lz4").compress, data, asbytes=True)
    return found


def zstd_decoders(block: bytes, size: int, scratch: memoryview) -> Candidates:
    found: Candidates = {}
    if zstandard:
        decoder = zstandard.ZstdDecompressor()
        found["zstandard, object"] = lambda: decoder.decompressobj().decompress(block)
        found["zstandard, new object"] = lambda: zstandard.ZstdDecompressor().decompressobj().decompress(block)
        found["zstandard, size known"] = lambda: decoder.decompress(block, max_output_size=size)
        found["zstandard, into"] = lambda: decoder.stream_reader(block).readinto(scratch)
    if zstd_standard:

        def read() -> None:
            with zstd_standard.content(memoryview(block), [(0, len(block))], is_kept=False) as reader:
                while reader.readinto(scratch):
                    pass

        found["Python's library"] = read
    if cramjam:
        found["cramjam"] = lambda: cramjam.zstd.decompress(block)
        found["cramjam, into"] = lambda: cramjam.zstd.decompress_into(block, scratch[:size])
    if pyarrow:
        found["pyarrow"] = partial(pyarrow.Codec("zstd").decompress, block, size)
    return found


def zstd_encoders(data: bytes) -> Candidates:
    found: Candidates = {}
    if zstandard:
        encoder = zstandard.ZstdCompressor(level=3, write_content_size=False)

        def stream() -> bytes:
            writer = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
            stored: bytes = writer.compress(data) + writer.flush()
            return stored

        found["zstandard, new stream"] = stream
        found["zstandard, at once"] = lambda: encoder.compress(data)
    if zstd_standard:
        found["Python's library"] = partial(zstd_standard.encoder(3), data)
    if cramjam:
        found["cramjam"] = lambda: cramjam.zstd.compress(data, level=3)
    if pyarrow:
        found["pyarrow"] = partial(pyarrow.Codec("zstd", 3).compress, data, asbytes=True)
    return found


LINE_UPS: dict[Codec, tuple[Callable[[bytes, int, memoryview], Candidates], Callable[[bytes], Candidates]]] = {
    Codec.GZIP: (gzip_decoders, gzip_encoders),
    Codec.SNAPPY: (snappy_decoders, snappy_encoders),
    Codec.LZ4: (lz4_decoders, lz4_encoders),
    Codec.ZSTD: (zstd_decoders, zstd_encoders),
}


def best_seconds(candidates: Candidates, seconds: float) -> dict[str, float]:
    """Return the shortest run of each candidate; they take turns, so that a busy machine slows all of them alike."""
    best = dict.fromkeys(candidates, float("inf"))
    end = time.perf_counter() + seconds * len(candidates)
    while time.perf_counter() < end:
        for name, run in candidates.items():
            for _ in range(3):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def lines(seconds: float) -> Iterator[str]:
    yield "| codec | way | block | candidate | MB/s | best | data : compressed |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: |"
    scratch = memoryview(bytearray(4 << 20))
    decompressor = Decompressor()
    for codec, (decoders, encoders) in LINE_UPS.items():
        for label, size in BLOCKS.items():
            data = records(size)
            block = compress(codec, data)
            reading = decoders(block, size, scratch)
            reading["**Odradek, Decompressor**"] = partial(decompressor.decompress, codec, block)
            reading["**Odradek, decompress**"] = partial(decompress, codec, block)
            writing = encoders(data)
            writing["**Odradek, compress**"] = partial(compress, codec, data)
            for way, candidates in (("decompress", reading), ("compress", writing)):
                times = best_seconds(candidates, seconds)
                fastest = min(times.values())
                for name, taken in sorted(times.items(), key=lambda item: item[1]):
                    ratio = size / len(candidates[name]() if way == "compress" else block)
                    yield (
                        f"| {codec.name.lower()} | {way} | {label} | {name} | {size / taken / 1e6:,.0f} "
                        f"| {fastest / taken:.0%} | {ratio:.2f} |"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each candidate and block")
    for line in lines(parser.parse_args().seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
