"""Hashes a key as Kafka's producer does: the partition of a record follows from it.

Source in Kafka: `Utils.murmur2`.
"""

import cython
from cython.cimports.libc.stdint import int32_t, uint8_t, uint32_t


def murmur2(key: bytes) -> int32_t:
    """Return the 32-bit hash of a key, signed as in Java."""
    p: cython.pointer(cython.const[uint8_t]) = key
    size: cython.Py_ssize_t = len(key)
    left: cython.Py_ssize_t = size
    m: uint32_t = 0x5BD1E995
    h: uint32_t = cython.cast(uint32_t, 0x9747B28C) ^ cython.cast(uint32_t, size)
    k: uint32_t
    while left >= 4:
        k = (
            cython.cast(uint32_t, p[0])
            | (cython.cast(uint32_t, p[1]) << 8)
            | (cython.cast(uint32_t, p[2]) << 16)
            | (cython.cast(uint32_t, p[3]) << 24)
        )
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        p += 4
        left -= 4
    if left == 3:
        h ^= cython.cast(uint32_t, p[2]) << 16
    if left >= 2:
        h ^= cython.cast(uint32_t, p[1]) << 8
    if left >= 1:
        h ^= cython.cast(uint32_t, p[0])
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return cython.cast(int32_t, h)
