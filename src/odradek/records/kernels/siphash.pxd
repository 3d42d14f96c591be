# cython: language_level=3
# SipHash-2-4 with 128 bits: a keyed hash, so that nobody who does not know the key can make two byte strings collide.
# Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF".

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define odradek_rotate(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
    #define odradek_sip_round(v) do { \
        (v)[0] += (v)[1]; (v)[1] = odradek_rotate((v)[1], 13); (v)[1] ^= (v)[0]; (v)[0] = odradek_rotate((v)[0], 32); \
        (v)[2] += (v)[3]; (v)[3] = odradek_rotate((v)[3], 16); (v)[3] ^= (v)[2]; \
        (v)[0] += (v)[3]; (v)[3] = odradek_rotate((v)[3], 21); (v)[3] ^= (v)[0]; \
        (v)[2] += (v)[1]; (v)[1] = odradek_rotate((v)[1], 17); (v)[1] ^= (v)[2]; (v)[2] = odradek_rotate((v)[2], 32); \
    } while (0)
    #define odradek_prefetch(p) __builtin_prefetch(p)
    #define odradek_scale(hash, count) ((uint64_t)(((unsigned __int128)(hash) * (count)) >> 64))
    """
    void odradek_sip_round(uint64_t*) noexcept nogil
    void odradek_prefetch(const void*) noexcept nogil
    # A hash brought down to the range of 0 to count - 1, without a division.
    uint64_t odradek_scale(uint64_t hash, uint64_t count) noexcept nogil


cdef inline void siphash128(
    const uint8_t* p, size_t size, uint64_t k0, uint64_t k1, uint64_t* first, uint64_t* second
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef const uint8_t* stop = p + (size & ~<size_t>7)
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    while p != stop:
        memcpy(&word, p, 8)
        v[3] ^= word
        odradek_sip_round(v)
        odradek_sip_round(v)
        v[0] ^= word
        p += 8
    word = 0
    memcpy(&word, p, size & 7)
    word |= <uint64_t>size << 56
    v[3] ^= word
    odradek_sip_round(v)
    odradek_sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    odradek_sip_round(v)
    odradek_sip_round(v)
    odradek_sip_round(v)
    odradek_sip_round(v)
    first[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    odradek_sip_round(v)
    odradek_sip_round(v)
    odradek_sip_round(v)
    odradek_sip_round(v)
    second[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
