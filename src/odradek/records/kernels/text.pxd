# cython: language_level=3
# Text out of bytes: decimal numbers, base64, JSON strings, CSV fields, and what Java makes of UTF-8.
#
# Each writer gets room that the caller has made: the docstring says how much. Whole words of eight bytes are written
# where the bytes need no care, so there must be `TEXT_SLACK` bytes more.
# Java: sun.nio.cs.UTF_8.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, strlen

cdef extern from *:
    """
    #define odradek_ctz64 __builtin_ctzll
    static const char odradek_pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
        "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    static const char odradek_hex[] = "0123456789abcdef";
    static const char odradek_base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    #ifdef __SSE2__
    #include <emmintrin.h>
    /* Copies 16 bytes, and returns a bit for each that needs care: see copy_plain. */
    static inline uint32_t odradek_copy16(uint8_t *out, const uint8_t *p, int json, int csv) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p), met = bytes;
        _mm_storeu_si128((__m128i *)out, bytes);
        if (json || csv)
            met = _mm_or_si128(met, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x22)));
        if (json) {
            met = _mm_or_si128(met, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x5C)));
            met = _mm_or_si128(met, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7F)));
            met = _mm_or_si128(met, _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)));
        }
        return _mm_movemask_epi8(met);
    }
    #define ODRADEK_WIDE 16
    #else
    static inline uint32_t odradek_copy16(uint8_t *out, const uint8_t *p, int json, int csv) { return 0; }
    #define ODRADEK_WIDE 0
    #endif
    """
    uint32_t odradek_copy16(uint8_t* out, const uint8_t* p, bint json, bint csv) noexcept nogil
    const int ODRADEK_WIDE
    int odradek_ctz64(uint64_t) noexcept nogil
    const char* odradek_pairs
    const char* odradek_hex
    const char* odradek_base64

cdef enum:
    TEXT_SLACK = 32
    NUMBER_SIZE = 20        # the longest decimal number, with its sign
    ESCAPED_SIZE = 6        # what a byte becomes at most: \u0000, or a quarter of such an escape
    JAVA_SIZE = 3           # what a byte becomes at most: U+FFFD

cdef enum Care:
    # Which bytes below 0x80 a string must not simply contain.
    JSON_CARE = 0           # control characters, DEL, the quote and the backslash
    CSV_CARE = 1            # the quote
    NO_CARE = 2


cdef inline uint8_t* put(uint8_t* p, const char* text) noexcept nogil:
    """Write C text, without its end."""
    cdef size_t size = strlen(text)
    memcpy(p, text, size)
    return p + size


cdef inline uint8_t* put_number(uint8_t* p, int64_t value) noexcept nogil:
    """Write a decimal number, of at most `NUMBER_SIZE` bytes."""
    cdef uint8_t digits[NUMBER_SIZE]
    cdef int at = NUMBER_SIZE
    cdef uint64_t rest = <uint64_t>value
    cdef uint64_t next
    if value < 0:
        p[0] = b"-"
        p += 1
        rest = 0 - rest
    while rest >= 100:
        next = rest // 100
        at -= 2
        memcpy(digits + at, odradek_pairs + (rest - next * 100) * 2, 2)
        rest = next
    if rest >= 10:
        at -= 2
        memcpy(digits + at, odradek_pairs + rest * 2, 2)
    else:
        at -= 1
        digits[at] = <uint8_t>(48 + rest)
    memcpy(p, digits + at, NUMBER_SIZE - at)
    return p + (NUMBER_SIZE - at)


cdef inline uint8_t* put_base64(uint8_t* p, const uint8_t* data, int64_t size) noexcept nogil:
    """Write base64 with its padding: 4 bytes for every 3, rounded up."""
    cdef uint32_t word
    cdef int64_t index = 0
    while index + 3 <= size:
        word = (<uint32_t>data[index] << 16) | (<uint32_t>data[index + 1] << 8) | data[index + 2]
        p[0] = odradek_base64[word >> 18]
        p[1] = odradek_base64[(word >> 12) & 63]
        p[2] = odradek_base64[(word >> 6) & 63]
        p[3] = odradek_base64[word & 63]
        p += 4
        index += 3
    if index < size:
        word = <uint32_t>data[index] << 16
        if index + 1 < size:
            word |= <uint32_t>data[index + 1] << 8
        p[0] = odradek_base64[word >> 18]
        p[1] = odradek_base64[(word >> 12) & 63]
        p[2] = odradek_base64[(word >> 6) & 63] if index + 1 < size else b"="
        p[3] = b"="
        p += 4
    return p


cdef inline int64_t copy_plain(uint8_t* out, const uint8_t* p, int64_t size, Care care) noexcept nogil:
    """Copy ASCII bytes up to the first that needs care; return how many."""
    cdef uint64_t word
    cdef uint64_t met
    cdef uint64_t ones = 0x0101010101010101
    cdef int64_t index = 0
    cdef uint8_t byte
    cdef uint32_t bits
    while ODRADEK_WIDE and index + 16 <= size:
        bits = odradek_copy16(out + index, p + index, care == JSON_CARE, care == CSV_CARE)
        if bits:
            return index + odradek_ctz64(bits)
        index += 16
    while index + 8 <= size:
        memcpy(&word, p + index, 8)
        memcpy(out + index, &word, 8)
        # The high bit of a byte is set where it needs care. A borrow or a carry may set others, further on only.
        if care == JSON_CARE:
            met = (
                (word - ones * 0x20) | ((word ^ (ones * 0x22)) - ones) | ((word ^ (ones * 0x5C)) - ones) | (word + ones)
            )
        elif care == CSV_CARE:
            met = (word ^ (ones * 0x22)) - ones
        else:
            met = 0
        met = (met | word) & (ones * 0x80)
        if met:
            return index + (odradek_ctz64(met) >> 3)
        index += 8
    while index < size:
        byte = p[index]
        if byte >= 0x80:
            break
        if care == JSON_CARE and (byte < 0x20 or byte == 0x22 or byte == 0x5C or byte == 0x7F):
            break
        if care == CSV_CARE and byte == 0x22:
            break
        out[index] = byte
        index += 1
    return index


cdef inline int utf8_size(const uint8_t* p, int64_t left) noexcept nogil:
    """Return how many bytes the character at `p`, not ASCII, has.

    Where they are malformed: the negative number of those that a decoder replaces by one mark.
    """
    cdef uint8_t first = p[0]
    cdef uint8_t second
    if first < 0xC2 or first > 0xF4:
        return -1
    if left < 2 or p[1] & 0xC0 != 0x80:
        return -1
    if first < 0xE0:
        return 2
    second = p[1]
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0):
            return -1
        if left < 3 or p[2] & 0xC0 != 0x80:
            return -2
        return 3
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90):
        return -1
    if left < 3 or p[2] & 0xC0 != 0x80:
        return -2
    if left < 4 or p[3] & 0xC0 != 0x80:
        return -3
    return 4


cdef inline uint8_t* put_escape(uint8_t* p, uint32_t character) noexcept nogil:
    p[0] = b"\\"
    p[1] = b"u"
    p[2] = odradek_hex[character >> 12]
    p[3] = odradek_hex[(character >> 8) & 15]
    p[4] = odradek_hex[(character >> 4) & 15]
    p[5] = odradek_hex[character & 15]
    return p + 6


cdef inline uint8_t* put_json_ascii(uint8_t* p, uint8_t byte) noexcept nogil:
    """Write an ASCII character that JSON escapes."""
    cdef uint8_t letter
    if byte == 0x22 or byte == 0x5C:
        letter = byte
    elif byte == 0x0A:
        letter = b"n"
    elif byte == 0x0D:
        letter = b"r"
    elif byte == 0x09:
        letter = b"t"
    elif byte == 0x08:
        letter = b"b"
    elif byte == 0x0C:
        letter = b"f"
    else:
        return put_escape(p, byte)
    p[0] = b"\\"
    p[1] = letter
    return p + 2


cdef inline uint32_t unsafe_character(const uint8_t* p, int size) noexcept nogil:
    """Return the character at `p`, not ASCII, if a terminal or a program could take it for more than text; else 0.

    C1, the line ends of Unicode, the marks of writing direction, the byte order mark.
    """
    if size == 2:
        if p[0] == 0xC2 and p[1] < 0xA0:
            return p[1]
        if p[0] == 0xD8 and p[1] == 0x9C:
            return 0x061C
    elif size == 3:
        if p[0] == 0xE2:
            if p[1] == 0x80 and (p[2] == 0x8E or p[2] == 0x8F or 0xA8 <= p[2] <= 0xAE):
                return 0x2000 + <uint32_t>(p[2] - 0x80)
            if p[1] == 0x81 and 0xA6 <= p[2] <= 0xA9:
                return 0x2040 + <uint32_t>(p[2] - 0x80)
        elif p[0] == 0xEF and p[1] == 0xBB and p[2] == 0xBF:
            return 0xFEFF
    return 0


cdef inline uint8_t* put_json_part(
    uint8_t* out, const uint8_t** position, const uint8_t* stop, const uint8_t* end
) noexcept nogil:
    """Write characters of a JSON string from `position` on, up to `stop` or a few bytes more.

    Args:
        out: Room for `ESCAPED_SIZE` bytes for each.
        position: Where to start; gets where it ended.
        stop: Where to end, or soon after.
        end: The end of the string.

    Returns:
        The end of what was written; NULL where the bytes are not UTF-8.
    """
    cdef const uint8_t* p = position[0]
    cdef int64_t plain
    cdef int size
    cdef uint32_t character
    while p < stop:
        plain = copy_plain(out, p, stop - p, JSON_CARE)
        p += plain
        out += plain
        if p >= stop:
            break
        if p[0] < 0x80:
            out = put_json_ascii(out, p[0])
            p += 1
            continue
        # Text that is not ASCII goes on like that, often.
        while p < stop and p[0] >= 0x80:
            size = utf8_size(p, end - p)
            if size < 0:
                return NULL
            character = unsafe_character(p, size)
            if character:
                out = put_escape(out, character)
            else:
                memcpy(out, p, size)
                out += size
            p += size
    position[0] = p
    return out


cdef inline uint8_t* put_csv_part(
    uint8_t* out, const uint8_t** position, const uint8_t* stop, const uint8_t* end
) noexcept nogil:
    """Write characters of a quoted CSV field, as `put_json_part` does."""
    cdef const uint8_t* p = position[0]
    cdef int64_t plain
    cdef int size
    while p < stop:
        plain = copy_plain(out, p, stop - p, CSV_CARE)
        p += plain
        out += plain
        if p >= stop:
            break
        if p[0] < 0x80:
            out[0] = p[0]
            out[1] = p[0]
            out += 2
            p += 1
            continue
        while p < stop and p[0] >= 0x80:
            size = utf8_size(p, end - p)
            if size < 0:
                return NULL
            memcpy(out, p, size)
            out += size
            p += size
    position[0] = p
    return out


cdef inline uint8_t* put_java_part(
    uint8_t* out, const uint8_t** position, const uint8_t* stop, const uint8_t* end
) noexcept nogil:
    """Write what Java decodes, as `put_json_part` does: U+FFFD for malformed bytes, one for an encoded surrogate."""
    cdef const uint8_t* p = position[0]
    cdef int64_t plain
    cdef int size
    while p < stop:
        plain = copy_plain(out, p, stop - p, NO_CARE)
        p += plain
        out += plain
        while p < stop and p[0] >= 0x80:
            size = utf8_size(p, end - p)
            if size > 0:
                memcpy(out, p, size)
                out += size
                p += size
                continue
            size = -size
            if p[0] == 0xED and end - p >= 2 and 0xA0 <= p[1] <= 0xBF:
                size = 3 if end - p >= 3 and p[2] & 0xC0 == 0x80 else 2
            out[0] = 0xEF
            out[1] = 0xBF
            out[2] = 0xBD
            out += 3
            p += size
    position[0] = p
    return out
