# cython: language_level=3
# A JSON value, checked and written as one line: as it stands, without the white space between its parts.
#
#   {"a": [1, "x"]}  ->  {"a":[1,"x"]}
#
# What a terminal could take for more than text is escaped, as `text.pxd` says. Names may come twice, and numbers and
# escapes keep their digits. Source: RFC 8259.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from odradek.records.kernels.text cimport JSON_CARE, copy_plain, put_escape, unsafe_character, utf8_size

cdef enum:
    DEEPEST = 512           # how deep lists and objects may be nested; Python's parser refuses less than twice as much
    LONGEST_NUMBER = 200    # so that, with an exponent of two digits, none is larger than a float can be

cdef enum Expected:
    VALUE = 0
    VALUE_OR_END = 1
    NAME = 2
    NAME_OR_END = 3
    COMMA_OR_END = 4


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint is_hex(uint8_t byte) noexcept nogil:
    return is_digit(byte) or 65 <= (byte & 0xDF) <= 70


cdef inline uint8_t* put_json_string(uint8_t* out, const uint8_t** position, const uint8_t* end) noexcept nogil:
    """Write a string whose quote stands at `position`, and move there; NULL where it is none."""
    cdef const uint8_t* p = position[0] + 1
    cdef int64_t plain
    cdef uint32_t character
    cdef int size
    out[0] = b'"'
    out += 1
    while True:
        plain = copy_plain(out, p, end - p, JSON_CARE)
        p += plain
        out += plain
        if p >= end:
            return NULL
        if p[0] >= 0x80:
            size = utf8_size(p, end - p)
            if size < 0:
                return NULL
            character = unsafe_character(p, size)
            if character:
                out = put_escape(out, character)
            else:
                memcpy(out, p, size)
                out += size
        elif p[0] == b'"':
            out[0] = b'"'
            position[0] = p + 1
            return out + 1
        elif p[0] == 0x7F:
            out = put_escape(out, 0x7F)
            size = 1
        elif p[0] == b"\\" and end - p >= 2:
            size = 2
            if p[1] == b"u":
                size = 6
                if end - p < 6 or not (is_hex(p[2]) and is_hex(p[3]) and is_hex(p[4]) and is_hex(p[5])):
                    return NULL
            elif p[1] not in (b'"', b"\\", b"/", b"b", b"f", b"n", b"r", b"t"):
                return NULL
            memcpy(out, p, size)
            out += size
        else:
            return NULL
        p += size


cdef inline const uint8_t* after_number(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return where a number ends; NULL where it is none, or might be larger than a float can be."""
    cdef const uint8_t* start = p
    cdef const uint8_t* digits
    if p < end and p[0] == b"-":
        p += 1
    digits = p
    while p < end and is_digit(p[0]):
        p += 1
    if p == digits or (digits[0] == b"0" and p - digits > 1):
        return NULL
    if p < end and p[0] == b".":
        p += 1
        digits = p
        while p < end and is_digit(p[0]):
            p += 1
        if p == digits:
            return NULL
    if p < end and (p[0] == b"e" or p[0] == b"E"):
        p += 1
        if p < end and (p[0] == b"+" or p[0] == b"-"):
            p += 1
        digits = p
        while p < end and is_digit(p[0]):
            p += 1
        if p == digits or p - digits > 2:
            return NULL
    return p if p - start <= LONGEST_NUMBER else NULL


cdef inline const uint8_t* after_word(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return where `true`, `false` or `null` ends; NULL where it is none."""
    if end - p >= 4 and (memcmp(p, b"true", 4) == 0 or memcmp(p, b"null", 4) == 0):
        return p + 4
    return p + 5 if end - p >= 5 and memcmp(p, b"false", 5) == 0 else NULL


cdef inline uint8_t* put_json_value(uint8_t* out, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Write a JSON value.

    Args:
        out: Room for `ESCAPED_SIZE` bytes for each.
        p: The bytes, with nothing but white space around the value.
        end: The byte after the last.

    Returns:
        The end of what was written. NULL where the bytes are no JSON in UTF-8, and where they may be such as not every
        reader takes: nested more deeply, or with larger numbers, than is said above.
    """
    cdef uint64_t objects[8]    # a bit for each level: DEEPEST
    cdef int depth = 0
    cdef int expected = VALUE
    cdef bint in_object = False
    cdef const uint8_t* after
    memset(objects, 0, sizeof(objects))
    while True:
        while p < end and (p[0] == b" " or p[0] == b"\n" or p[0] == b"\r" or p[0] == b"\t"):
            p += 1
        if p >= end:
            return out if expected == COMMA_OR_END and depth == 0 else NULL
        if (p[0] == b"}" and in_object and (expected == COMMA_OR_END or expected == NAME_OR_END)) or (
            p[0] == b"]" and depth and not in_object and (expected == COMMA_OR_END or expected == VALUE_OR_END)
        ):
            out[0] = p[0]
            depth -= 1
            in_object = depth > 0 and (objects[(depth - 1) >> 6] >> ((depth - 1) & 63)) & 1
            expected = COMMA_OR_END
        elif expected == COMMA_OR_END:
            if p[0] != b"," or depth == 0:
                return NULL
            out[0] = b","
            expected = NAME if in_object else VALUE
        elif expected == NAME or expected == NAME_OR_END:
            if p[0] != b'"':
                return NULL
            out = put_json_string(out, &p, end)
            if out == NULL:
                return NULL
            while p < end and (p[0] == b" " or p[0] == b"\n" or p[0] == b"\r" or p[0] == b"\t"):
                p += 1
            if p >= end or p[0] != b":":
                return NULL
            out[0] = b":"
            expected = VALUE
        elif p[0] == b"{" or p[0] == b"[":
            if depth == DEEPEST:
                return NULL
            in_object = p[0] == b"{"
            objects[depth >> 6] &= ~(<uint64_t>1 << (depth & 63))
            objects[depth >> 6] |= <uint64_t>in_object << (depth & 63)
            out[0] = p[0]
            depth += 1
            expected = NAME_OR_END if in_object else VALUE_OR_END
        else:
            if p[0] == b'"':
                out = put_json_string(out, &p, end)
                if out == NULL:
                    return NULL
            else:
                after = after_number(p, end) if p[0] == b"-" or is_digit(p[0]) else after_word(p, end)
                if after == NULL:
                    return NULL
                memcpy(out, p, after - p)
                out += after - p
                p = after
            expected = COMMA_OR_END
            continue
        out += 1
        p += 1
