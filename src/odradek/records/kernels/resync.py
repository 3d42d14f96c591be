"""Finds the next batch after damage, where every byte may be its first.

    offset 8 | size 4 | ... 4 | magic 1 | ...
                                ^ looked for first, a word at a time: a byte from 0 to 2

Few bytes of compressed or random data are that small, and none of a text; of those that are, size and offset leave
fewer still, and the checksum decides. Zeros, which a crash or a sparse file leaves, are passed over a word at a time:
the size field of a batch is not 0.
"""

import cython
from cython.cimports.libc.stdint import int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))


_EVERY_BYTE = cython.declare(uint64_t, 0x0101010101010101)
_TOP_BITS = cython.declare(uint64_t, 0x8080808080808080)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(p: Bytes) -> uint64_t:
    raw: uint64_t
    memcpy(cython.address(raw), p, 8)
    return raw


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _may_hold_a_magic(word: uint64_t) -> cython.bint:
    """Say whether any byte of a word is below 3."""
    return (word - 3 * _EVERY_BYTE) & ~word & _TOP_BITS != 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _find(
    base: Bytes,
    position: int64_t,
    stop: int64_t,
    end: int64_t,
    lowest: int64_t,
    offsets: uint64_t,
    budget: int64_t,
    crc32c: wire.checksum_function,
    crc32: wire.checksum_function,
) -> int64_t:
    # `at` is where the magic would be, so that whole words are looked at for it.
    at: int64_t = position + wire.MAGIC_AT
    last: int64_t = stop + wire.MAGIC_AT
    after: int64_t
    start: int64_t
    size: int64_t
    word: uint64_t
    info: wire.BatchInfo
    if last > end:
        last = end
    while at < last:
        after = at + 8
        if after <= last:
            word = _word(base + at)
            # With zeros eight bytes before, the size fields are 0 too.
            if word == 0 and _word(base + at - 8) == 0:
                at = after
                continue
            if not _may_hold_a_magic(word):
                at = after
                continue
        else:
            after = last
        while at < after:
            start = at - wire.MAGIC_AT
            at += 1
            if base[start + wire.MAGIC_AT] > 2 or base[start] > 0x7F:
                continue
            size = wire.load_i32(base + start + wire.SIZE_AT)
            if size < wire.V0_MIN or size + wire.LOG_OVERHEAD > end - start:
                continue
            if cython.cast(uint64_t, wire.load_i64(base + start)) - cython.cast(uint64_t, lowest) > offsets:
                continue
            size += wire.LOG_OVERHEAD
            if wire.read_header(base + start, size, cython.address(info), crc32c, crc32) == wire.OK:
                return start
            budget -= size
            if budget < 0:
                return -1
    return -1


def find_batch(
    data: cython.const[cython.uchar][::1],
    position: int64_t,
    stop: int64_t,
    end: int64_t,
    lowest: int64_t,
    offsets: uint64_t,
    budget: int64_t,
):
    """Return where the first batch starts whose checksum holds; -1 where there is none.

    Args:
        data: The bytes.
        position: Where to look from.
        stop: Where to stop; a batch that starts before may end after it.
        end: Where the bytes end.
        lowest: The least offset that the batch may have.
        offsets: How far above that its offset may be.
        budget: How many bytes of what turns out to be no batch may be looked at.
    """
    if end > data.shape[0] or position < 0 or stop > end or lowest < 0:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
    if end - position <= wire.MAGIC_AT:
        return -1
    base: Bytes = cython.cast(Bytes, cython.address(data[0]))
    crc32c: wire.checksum_function = crc32c_of
    crc32: wire.checksum_function = crc32_of
    found: int64_t
    with cython.nogil:
        found = _find(base, position, stop, end, lowest, offsets, budget, crc32c, crc32)
    return found
