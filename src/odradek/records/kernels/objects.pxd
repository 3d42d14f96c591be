# cython: language_level=3
# The attributes of Record, for the kernels that read them without a look-up.

cdef class Record:
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly object timestamp
    cdef readonly object offset
    cdef readonly object timestamp_type
