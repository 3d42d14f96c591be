"""The two checksums of Kafka's formats.

CRC-32C (Castagnoli) covers a v2 batch from its attributes on; CRC-32 (IEEE) covers a v0 or v1 message from its magic
on. No library has both for every system that this package runs on, by an address that kernels can call: a Python call
for each batch of one record would cost more than its sum.
"""

import cython
from cython.cimports.libc.stdint import uint8_t, uint32_t
from cython.cimports.odradek.records.kernels import crc

crc.odradek_crc_fill()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def crc32c_of(before: uint32_t, p: cython.pointer(cython.const[uint8_t]), size: cython.size_t) -> uint32_t:
    """Return the CRC-32C of bytes after others, whose sum is given; 0 for none."""
    return crc.odradek_crc32c(before, p, size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def crc32_of(before: uint32_t, p: cython.pointer(cython.const[uint8_t]), size: cython.size_t) -> uint32_t:
    """Return the CRC-32 of bytes after others, whose sum is given; 0 for none."""
    return crc.odradek_crc32(before, p, size)


def crc32c(data: cython.const[cython.uchar][::1], by_tables: cython.bint = False) -> uint32_t:
    """Return the CRC-32C of bytes.

    Args:
        data: Any contiguous bytes.
        by_tables: Whether to do without the processor's instruction, as where it has none.
    """
    p: cython.pointer(cython.const[uint8_t]) = cython.address(data[0]) if data.shape[0] else cython.NULL
    if by_tables:
        return crc.odradek_crc_by_tables(crc.ODRADEK_CRC32C, 0, p, data.shape[0])
    return crc.odradek_crc32c(0, p, data.shape[0])
