"""Each codec's framing, byte by byte, with what Apache Kafka 4.3.1 makes of the same bytes as the yardstick."""

from __future__ import annotations

import gzip as python_gzip
import random
import zlib
from struct import pack

import pytest

from odradek.errors import CompressionError
from odradek.records.compression import Codec, compress, decompress

DATA = b"abcabcabc" * 4
ONE_MORE = b"xyz"

XERIAL = bytes.fromhex("82534e41505059000000000100000001")
SNAPPY_BLOCK = bytes.fromhex("2408616263820300")
SNAPPY_DATA = pack(">i", len(SNAPPY_BLOCK)) + SNAPPY_BLOCK
LZ4_BLOCK = bytes.fromhex("3f616263030009506263616263")
LZ4_FRAME = bytes.fromhex("04224d18604082") + pack("<I", len(LZ4_BLOCK)) + LZ4_BLOCK + bytes(4)
ZSTD_FRAME = bytes.fromhex("28b52ffd00584c00001861626301008e6e08010000")
GZIP_MEMBER = bytes.fromhex("1f8b08000000000000ff4b4c4a4e248400ea1601f124000000")


def content(codec: Codec, block: bytes, magic: int = 2) -> bytes:
    return bytes(decompress(codec, block, magic=magic))


def refused(codec: Codec, block: bytes, reason: str, magic: int = 2) -> None:
    with pytest.raises(CompressionError, match=reason):
        decompress(codec, block, magic=magic)


@pytest.mark.parametrize(
    ("codec", "block"),
    [
        (Codec.GZIP, GZIP_MEMBER),
        (Codec.SNAPPY, XERIAL + SNAPPY_DATA),
        (Codec.LZ4, LZ4_FRAME),
        (Codec.ZSTD, ZSTD_FRAME),
    ],
)
def test_what_kafka_4_3_1_writes(codec: Codec, block: bytes) -> None:
    assert content(codec, block) == DATA


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_the_headers_are_kafkas(codec: Codec) -> None:
    kafkas = {
        Codec.GZIP: "1f8b08000000000000ff",
        Codec.SNAPPY: XERIAL.hex(),
        Codec.LZ4: "04224d18604082",
        Codec.ZSTD: "28b52ffd",
    }
    block = compress(codec, DATA)
    assert block.hex().startswith(kafkas[codec])
    if codec == Codec.ZSTD:
        assert block[4] & 0xE7 == 0, "a content size, a checksum or a dictionary"


class TestGzip:
    def test_members_are_joined(self) -> None:
        second = python_gzip.compress(ONE_MORE)
        assert content(Codec.GZIP, GZIP_MEMBER + second + GZIP_MEMBER) == DATA + ONE_MORE + DATA

    def test_a_long_second_member(self) -> None:
        data = random.Random(1).randbytes(300_000)
        assert content(Codec.GZIP, GZIP_MEMBER + python_gzip.compress(data)) == DATA + data

    def test_many_empty_members_take_linear_time(self) -> None:
        assert content(Codec.GZIP, python_gzip.compress(b"") * 20_000 + GZIP_MEMBER) == DATA

    @pytest.mark.parametrize("rest", [bytes(8), b"xxxx", b"\x1f\x8b" + b"x" * 16])
    def test_what_is_no_member_is_padding(self, rest: bytes) -> None:
        assert content(Codec.GZIP, GZIP_MEMBER + rest) == DATA

    def test_a_second_member_must_be_whole(self) -> None:
        for cut in range(3, len(GZIP_MEMBER)):
            refused(Codec.GZIP, GZIP_MEMBER + GZIP_MEMBER[:cut], "gzip: the block ends within a member")

    def test_name_and_time_are_skipped(self) -> None:
        block = bytes.fromhex("1f8b080812345678 00ff") + b"name\0" + GZIP_MEMBER[10:]
        assert content(Codec.GZIP, block) == DATA

    @pytest.mark.parametrize("position", [-1, -5])
    def test_size_and_checksum_are_verified(self, position: int) -> None:
        block = bytearray(GZIP_MEMBER)
        block[position] ^= 1
        refused(Codec.GZIP, bytes(block), "gzip: the member that holds byte 0 is damaged")

    def test_a_size_field_that_lies_is_no_size(self) -> None:
        assert content(Codec.GZIP, GZIP_MEMBER + b"\xff" * 4) == DATA
        assert content(Codec.GZIP, compress(Codec.GZIP, bytes(100_000)) + bytes(4)) == bytes(100_000)

    def test_zlib_without_gzip_header(self) -> None:
        refused(Codec.GZIP, zlib.compress(DATA), "gzip")


class TestSnappy:
    def test_blocks_hold_32_kib(self) -> None:
        block = compress(Codec.SNAPPY, bytes(100_000))
        position, sizes = len(XERIAL), []
        while position < len(block):
            length = int.from_bytes(block[position : position + 4], "big")
            sizes.append(len(decompress(Codec.SNAPPY, block[position + 4 : position + 4 + length])))
            position += 4 + length
        assert sizes == [32_768, 32_768, 32_768, 100_000 - 3 * 32_768]

    def test_one_bare_block(self) -> None:
        assert content(Codec.SNAPPY, SNAPPY_BLOCK) == DATA
        assert content(Codec.SNAPPY, b"\0") == b""

    def test_a_bare_block_and_something_more(self) -> None:
        refused(Codec.SNAPPY, SNAPPY_BLOCK + b"x", "snappy: the block at byte 0 is damaged")

    def test_a_header_alone_is_an_empty_stream(self) -> None:
        assert compress(Codec.SNAPPY, b"") == XERIAL
        assert content(Codec.SNAPPY, XERIAL) == b""

    def test_streams_are_joined(self) -> None:
        stream = XERIAL + SNAPPY_DATA
        assert content(Codec.SNAPPY, stream * 3) == DATA * 3
        assert content(Codec.SNAPPY, XERIAL * 3 + SNAPPY_DATA) == DATA

    @pytest.mark.parametrize(("version", "compatible"), [(0, 0), (1, 5), (9, 9), (9, 0)])
    def test_any_version_opens_a_stream(self, version: int, compatible: int) -> None:
        assert content(Codec.SNAPPY, XERIAL[:8] + pack(">ii", version, compatible) + SNAPPY_DATA) == DATA

    def test_a_later_header_needs_a_version(self) -> None:
        later = XERIAL[:4] + b"xxxx" + pack(">ii", 7, 0)  # Kafka looks at no more of its magic
        assert content(Codec.SNAPPY, XERIAL + SNAPPY_DATA + later + SNAPPY_DATA) == DATA * 2
        refused(Codec.SNAPPY, XERIAL + SNAPPY_DATA + XERIAL[:8] + bytes(8) + SNAPPY_DATA, "has version 0, below 1")

    def test_a_later_header_that_is_cut(self) -> None:
        for cut in range(4, 16):
            refused(Codec.SNAPPY, XERIAL + SNAPPY_DATA + XERIAL[:cut], "snappy: the stream ends within the header")

    def test_an_empty_block(self) -> None:
        assert content(Codec.SNAPPY, XERIAL + b"\0\0\0\1\0" + SNAPPY_DATA) == DATA

    @pytest.mark.parametrize("length", [0, -1, -(2**31), 9, 2**31 - 1])
    def test_a_length_that_cannot_be(self, length: int) -> None:
        block = XERIAL + SNAPPY_DATA + pack(">i", length) + SNAPPY_BLOCK
        refused(Codec.SNAPPY, block, f"snappy: the block at byte 28 claims {length} bytes, 8 are left")

    def test_a_length_that_is_cut(self) -> None:
        for cut in (1, 2, 3):
            refused(Codec.SNAPPY, XERIAL + SNAPPY_DATA + SNAPPY_DATA[:cut], "ends within a length, at byte")

    @pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x01", b"\xe8\x07"])
    def test_content_that_so_few_bytes_cannot_hold(self, claim: bytes) -> None:
        for head in (b"", XERIAL + pack(">i", len(claim) + 6)):
            refused(
                Codec.SNAPPY, head + claim + SNAPPY_BLOCK[2:], r"snappy: the block at byte \d+ claims \d+ bytes, more"
            )

    def test_a_claim_that_its_block_does_not_keep(self) -> None:
        refused(
            Codec.SNAPPY, XERIAL + pack(">i", 8) + b"\x25" + SNAPPY_BLOCK[1:], "snappy: the block at byte 20 is damaged"
        )

    def test_a_length_without_an_end(self) -> None:
        refused(Codec.SNAPPY, b"\xff" * 12, "snappy: the block at byte 0 has no valid length")


def lz4_header(flags: int, descriptor: int, size: bytes, checksum: int) -> bytes:
    return bytes.fromhex("04224d18") + bytes([flags, descriptor]) + size + bytes([checksum])


class TestLz4:
    def test_magic_0_has_the_wrong_header_checksum(self) -> None:
        blocks = {magic: compress(Codec.LZ4, DATA, magic=magic) for magic in (0, 1, 2)}
        assert [blocks[magic][6] for magic in (0, 1, 2)] == [0x1A, 0x82, 0x82]
        assert blocks[0][7:] == blocks[1][7:] == blocks[2][7:]

    @pytest.mark.parametrize("checksum", [0x1A, 0x00, 0x83])
    def test_only_magic_0_takes_a_wrong_header_checksum(self, checksum: int) -> None:
        block = LZ4_FRAME[:6] + bytes([checksum]) + LZ4_FRAME[7:]
        assert content(Codec.LZ4, block, magic=0) == DATA
        for magic in (1, 2):
            refused(Codec.LZ4, block, f"lz4: the header checksum is {checksum:02x}, .* give 82", magic=magic)

    @pytest.mark.parametrize(
        ("descriptor", "size", "checksum"),
        [(0x40, b"", 0x82), (0x50, b"", 0xFB), (0x60, b"", 0x51), (0x70, b"", 0x73)],
    )
    def test_all_block_sizes(self, descriptor: int, size: bytes, checksum: int) -> None:
        assert content(Codec.LZ4, lz4_header(0x60, descriptor, size, checksum) + LZ4_FRAME[7:]) == DATA

    def test_a_content_size_is_skipped_but_part_of_the_checksum(self) -> None:
        head = bytes.fromhex("04224d186840 2400000000000000 ec")
        assert content(Codec.LZ4, head + LZ4_FRAME[7:]) == DATA
        lie = bytes.fromhex("04224d186840 ffffffffffffffff 00")
        assert content(Codec.LZ4, lie + LZ4_FRAME[7:], magic=0) == DATA
        refused(Codec.LZ4, lie + LZ4_FRAME[7:], "lz4: the header checksum")
        refused(Codec.LZ4, head[:-1], "lz4: the block ends within the frame's header")

    def test_a_content_checksum_is_read_and_not_verified(self) -> None:
        head = lz4_header(0x64, 0x40, b"", 0xA7)
        assert content(Codec.LZ4, head + LZ4_FRAME[7:] + b"????") == DATA
        for cut in range(4):
            refused(Codec.LZ4, head + LZ4_FRAME[7:] + b"????"[:cut], "lz4: the block ends within the content checksum")

    def test_block_checksums_are_verified(self) -> None:
        frame = bytes.fromhex("04224d187040ad") + LZ4_FRAME[7:-4] + bytes.fromhex("05aeafa8") + bytes(4)
        assert content(Codec.LZ4, frame) == DATA
        assert content(Codec.LZ4, frame[:6] + b"\0" + frame[7:], magic=0) == DATA
        broken = bytearray(frame)
        broken[-5] ^= 1
        refused(Codec.LZ4, bytes(broken), "lz4: the frame is damaged.*blockChecksum")
        for cut in range(7, len(frame)):
            refused(Codec.LZ4, frame[:cut], "lz4")

    def test_stored_blocks(self) -> None:
        stored = pack("<I", 0x80000000 | 3) + ONE_MORE
        assert (
            content(Codec.LZ4, LZ4_FRAME[:7] + stored + LZ4_FRAME[7:-4] + stored + bytes(4))
            == ONE_MORE + DATA + ONE_MORE
        )

    def test_noise_is_stored(self) -> None:
        noise = random.Random(2).randbytes(100_000)
        block = compress(Codec.LZ4, noise)
        assert block[7:11] == pack("<I", 0x80000000 | 65_536)
        assert len(block) == 7 + 4 + 65_536 + 4 + (100_000 - 65_536) + 4

    @pytest.mark.parametrize("end_mark", [b"\0\0\0\0", b"\0\0\0\x80"])
    @pytest.mark.parametrize("rest", [b"", LZ4_FRAME, b"x", bytes(100)])
    def test_what_follows_the_frame_is_ignored(self, rest: bytes, end_mark: bytes) -> None:
        assert content(Codec.LZ4, LZ4_FRAME[:-4] + end_mark + rest) == DATA

    def test_a_frame_without_blocks(self) -> None:
        assert compress(Codec.LZ4, b"") == LZ4_FRAME[:7] + bytes(4)
        assert content(Codec.LZ4, LZ4_FRAME[:7] + bytes(4)) == b""

    @pytest.mark.parametrize(
        ("flags", "descriptor", "reason"),
        [
            (0x40, 0x40, "depend on each other"),
            (0x00, 0x40, "version 0"),
            (0xA0, 0x40, "version 2"),
            (0xE0, 0x40, "version 3"),
            (0x61, 0x40, "reserved bits"),
            (0x62, 0x40, "reserved bits"),
            (0x60, 0x41, "reserved bits"),
            (0x60, 0xC0, "reserved bits"),
            (0x60, 0x30, "no block size"),
            (0x60, 0x00, "no block size"),
        ],
    )
    def test_descriptors_that_kafka_refuses(self, flags: int, descriptor: int, reason: str) -> None:
        for magic in (0, 2):
            refused(Codec.LZ4, lz4_header(flags, descriptor, b"", 0) + LZ4_FRAME[7:], reason, magic=magic)

    @pytest.mark.parametrize("length", [65_537, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000 | 65_537])
    def test_a_block_above_the_frames_size(self, length: int) -> None:
        refused(Codec.LZ4, LZ4_FRAME[:7] + pack("<I", length) + bytes(70_000), "lz4: the block at byte 7 claims")

    def test_a_block_that_grows_above_the_frames_size(self) -> None:
        block = bytes.fromhex("1f00 0100") + b"\xff" * 300 + bytes.fromhex("00 50 3030303030")
        refused(
            Codec.LZ4, LZ4_FRAME[:7] + pack("<I", len(block)) + block + bytes(4), "lz4: the block at byte 11 is damaged"
        )

    def test_another_magic(self) -> None:
        refused(Codec.LZ4, b"\x03" + LZ4_FRAME[1:], "lz4: the block starts with 03224d18")


class TestZstd:
    SKIPPABLE = bytes.fromhex("502a4d18 03000000") + b"abc"

    def test_frames_are_joined(self) -> None:
        assert content(Codec.ZSTD, ZSTD_FRAME * 3) == DATA * 3

    def test_skippable_frames_are_skipped(self) -> None:
        assert content(Codec.ZSTD, self.SKIPPABLE + ZSTD_FRAME + self.SKIPPABLE + ZSTD_FRAME) == DATA * 2
        assert content(Codec.ZSTD, self.SKIPPABLE) == b""

    def test_a_skippable_frame_that_is_cut(self) -> None:
        for cut in range(1, len(self.SKIPPABLE)):
            refused(Codec.ZSTD, ZSTD_FRAME + self.SKIPPABLE[:cut], "zstd")

    def test_a_later_frame_that_is_cut(self) -> None:
        for cut in range(1, len(ZSTD_FRAME)):
            refused(Codec.ZSTD, ZSTD_FRAME + ZSTD_FRAME[:cut], "zstd: the block ends within a frame")

    def test_something_else_after_a_frame(self) -> None:
        refused(Codec.ZSTD, ZSTD_FRAME + b"xxxx", "zstd: at byte 21 stands 78787878")

    def test_raw_and_run_blocks(self) -> None:
        raw = (3 << 3).to_bytes(3, "little") + ONE_MORE
        run = (5 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"z"
        assert content(Codec.ZSTD, ZSTD_FRAME[:6] + raw + run) == b"xyzzzzzz"

    def test_a_frame_with_its_content_size(self) -> None:
        raw = (3 << 3 | 1).to_bytes(3, "little") + ONE_MORE
        assert content(Codec.ZSTD, bytes.fromhex("28b52ffd 20 03") + raw) == ONE_MORE
        refused(Codec.ZSTD, bytes.fromhex("28b52ffd 20 04") + raw, "zstd: the block is damaged")

    def test_a_content_size_of_exabytes(self) -> None:
        refused(Codec.ZSTD, bytes.fromhex("28b52ffd e0 ffffffffffffff7f") + ZSTD_FRAME[6:], "zstd")

    def test_a_checksum_is_verified(self) -> None:
        raw = (3 << 3 | 1).to_bytes(3, "little") + ONE_MORE
        head = bytes.fromhex("28b52ffd 04 58")
        refused(Codec.ZSTD, head + raw + b"\0\0\0\0", "zstd: the block is damaged")
        refused(Codec.ZSTD, head + raw + b"\0\0\0", "zstd: the block ends within a frame")

    def test_reserved_block_type(self) -> None:
        refused(Codec.ZSTD, ZSTD_FRAME[:6] + bytes([7, 0, 0]), "zstd: the block at byte 6 has type 3")

    def test_a_block_larger_than_any(self) -> None:
        block = (131_073 << 3 | 1).to_bytes(3, "little") + bytes(131_073)
        refused(Codec.ZSTD, ZSTD_FRAME[:6] + block, "zstd: the block at byte 6 has type 0 and 131073 bytes")

    def test_a_window_above_the_librarys(self) -> None:
        refused(Codec.ZSTD, ZSTD_FRAME[:5] + b"\xf8" + ZSTD_FRAME[6:], "zstd: the block is damaged.*memory")

    def test_an_unknown_dictionary(self) -> None:
        refused(Codec.ZSTD, bytes.fromhex("28b52ffd 01 58 07") + ZSTD_FRAME[6:], "zstd: the block is damaged")
