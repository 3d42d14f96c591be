# cython: language_level=3
# The two checksums of Kafka's formats, for other kernels.

from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t crc32c_of(uint32_t before, const uint8_t* p, size_t size) noexcept nogil
cdef uint32_t crc32_of(uint32_t before, const uint8_t* p, size_t size) noexcept nogil
