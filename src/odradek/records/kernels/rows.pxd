# cython: language_level=3
# What a source of rows is, for the kernel that writes them.

from libc.stdint cimport int64_t, uint8_t

ctypedef const uint8_t* Bytes

cdef enum Refusal:
    # What is wrong with a row; lower numbers say why a batch ended (see encode.py).
    BAD_OFFSET = 5
    BAD_TIMESTAMP = 6
    BAD_SIZE = 7
    BAD_COLUMN = 8
    OUT_OF_MEMORY = 9

cdef struct Row:
    Bytes key
    Bytes value
    Bytes headers           # the headers as they stand in a record, without their count
    int64_t key_size        # -1 for null
    int64_t value_size
    int64_t headers_size
    int64_t header_count
    int64_t timestamp
    int64_t offset          # -1 where it is implied

cdef class Rows:
    cdef readonly int64_t count
    cdef int _row(self, int64_t index, Row* row) noexcept nogil
