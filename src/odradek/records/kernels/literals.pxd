# cython: language_level=3
# Looks for a literal in bytes: two of its bytes at a time, a block of places at once.
#
#   literal      t i m e o u t          the two of its bytes that are rarest in most data
#                    ^   ^
#   bytes        ................................................   64 places, each compared at both
#
# The comparison of a block has no branch, so the compiler makes it of vector instructions.

from libc.stdint cimport uint8_t

cdef enum:
    BLOCK = 64

cdef struct Literal:
    const uint8_t* folded       # its bytes, each with those bits set that `bits` says
    const uint8_t* bits         # of each byte, the bits that do not count: 0x20 of a letter whose case is ignored
    Py_ssize_t size             # at least 1
    Py_ssize_t first            # where its rarest byte stands
    Py_ssize_t second           # where the next one stands


cdef inline bint is_at(const uint8_t* p, const Literal* literal) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(literal.size):
        if (p[index] | literal.bits[index]) != literal.folded[index]:
            return False
    return True


cdef inline const uint8_t* find_literal(const uint8_t* p, const uint8_t* end, const Literal* literal) noexcept nogil:
    """Return where a literal stands first; NULL where it does not."""
    cdef Py_ssize_t places = end - p - literal.size + 1
    cdef uint8_t first = literal.folded[literal.first]
    cdef uint8_t second = literal.folded[literal.second]
    cdef uint8_t first_bits = literal.bits[literal.first]
    cdef uint8_t second_bits = literal.bits[literal.second]
    cdef const uint8_t* one
    cdef const uint8_t* other
    cdef uint8_t seen
    cdef int index
    while places > 0:
        if places >= BLOCK:
            one = p + literal.first
            other = p + literal.second
            seen = 0
            for index in range(BLOCK):
                seen |= <uint8_t>(((one[index] | first_bits) == first) & ((other[index] | second_bits) == second))
            if not seen:
                p += BLOCK
                places -= BLOCK
                continue
        for index in range(BLOCK if places >= BLOCK else <int>places):
            if (p[literal.first] | first_bits) == first and is_at(p, literal):
                return p
            p += 1
        places -= BLOCK
    return NULL
