# cython: language_level=3
# The attributes of Record, for the kernels that read them without a look-up, and what decodes one of them.

from libc.stdint cimport uint8_t
from odradek.records.kernels.wire cimport BatchInfo

cdef class Record:
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly object timestamp
    cdef readonly object offset
    cdef readonly object timestamp_type

cdef object decode_one(const uint8_t* batch, Py_ssize_t position, Py_ssize_t end, BatchInfo* info)
