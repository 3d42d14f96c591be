# cython: language_level=3
# The blocks of blocks.py, for the kernels that fill them.

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>

    /* From this size on, memory is mapped, and in huge pages where the system has them: a fault for every 2 MiB. */
    #define ODRADEK_LARGE (8 << 20)
    #define ODRADEK_HUGE_PAGE (2 << 20)

    static void odradek_free(uint8_t *data, int64_t capacity) {
        if (capacity >= ODRADEK_LARGE)
            munmap(data, capacity);
        else
            free(data);
    }

    static uint8_t *odradek_allocate(int64_t *capacity) {
        void *data;
        if (*capacity < ODRADEK_LARGE)
            return malloc(*capacity);
        *capacity = (*capacity + ODRADEK_HUGE_PAGE - 1) / ODRADEK_HUGE_PAGE * ODRADEK_HUGE_PAGE;
        data = mmap(NULL, *capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED)
            return NULL;
    #ifdef MADV_HUGEPAGE
        madvise(data, *capacity, MADV_HUGEPAGE);
    #endif
        return data;
    }

    static uint8_t *odradek_grow(uint8_t *data, int64_t old, int64_t *capacity) {
        uint8_t *grown;
        if (*capacity < ODRADEK_LARGE)
            return realloc(data, *capacity);
        grown = odradek_allocate(capacity);
        if (grown != NULL && data != NULL) {
            memcpy(grown, data, old);
            odradek_free(data, old);
        }
        return grown;
    }
    """
    # Memory of a capacity, which is rounded up where that is of use; NULL where there is none.
    uint8_t* odradek_allocate(int64_t* capacity) noexcept nogil
    # The same memory, or a copy of its first `old` bytes, with more room; NULL leaves it as it was.
    uint8_t* odradek_grow(uint8_t* data, int64_t old, int64_t* capacity) noexcept nogil
    void odradek_free(uint8_t* data, int64_t capacity) noexcept nogil


cdef class Block:
    cdef uint8_t* data
    cdef int64_t size
    cdef int64_t capacity
    cdef bint writable


cdef Block make_block(uint8_t* data, int64_t size, int64_t capacity)
cdef uint8_t* take_memory(int64_t size, int64_t* capacity) noexcept
