"""Memory that is handed out as buffers, and filled again when nobody reads it any more.

    filled -> handed out as a `Block` -> let go of by the last who reads it -> in the pool -> filled again

Memory that the system has just given costs a page fault every 4 KiB at its first touch: more than decoding into it.
The pool is the process's, and works under the GIL.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBuffer_FillInfo
from cython.cimports.libc.stdint import int64_t, uint8_t
from cython.cimports.odradek.records.kernels.blocks import odradek_free

# What the pool keeps at most: of one block, in all, and how many blocks.
_MOST_BLOCK_BYTES = cython.declare(int64_t, 32 << 20)
_MOST_BYTES = cython.declare(int64_t, 64 << 20)
_MOST_BLOCKS = cython.declare(cython.int, 64)

_Spare = cython.struct(data=cython.pointer(uint8_t), capacity=int64_t)

_spares = cython.declare(_Spare[64])
_count = cython.declare(cython.int, 0)
_bytes = cython.declare(int64_t, 0)


def take_memory(size: int64_t, capacity: cython.pointer(int64_t)):
    """Return the smallest spare block of at least `size` bytes and set its capacity; NULL where there is none."""
    global _bytes, _count
    index: cython.int
    best: cython.int = -1
    data: cython.pointer(uint8_t)
    for index in range(_count):
        if _spares[index].capacity >= size and (best < 0 or _spares[index].capacity < _spares[best].capacity):
            best = index
    if best < 0:
        return cython.NULL
    data = _spares[best].data
    capacity[0] = _spares[best].capacity
    _bytes -= capacity[0]
    _count -= 1
    _spares[best] = _spares[_count]
    return data


@cython.cfunc
def _give_back(data: cython.pointer(uint8_t), capacity: int64_t) -> cython.void:
    """Keep a block for later, or free it where there are enough."""
    global _bytes, _count
    if data == cython.NULL or _count == _MOST_BLOCKS or capacity > _MOST_BLOCK_BYTES or _bytes + capacity > _MOST_BYTES:
        odradek_free(data, capacity)
        return
    _spares[_count].data = data
    _spares[_count].capacity = capacity
    _bytes += capacity
    _count += 1


@cython.final
@cython.cclass
class Block:
    """Bytes that a decoder gave away; whoever holds the buffer keeps them."""

    def __cinit__(self):
        self.data = cython.NULL
        self.size = 0
        self.capacity = 0
        self.writable = False

    def __dealloc__(self):
        _give_back(self.data, self.capacity)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, not self.writable, flags)


def make_block(data: cython.pointer(uint8_t), size: int64_t, capacity: int64_t) -> Block:
    """Return memory as a block."""
    block: Block = Block.__new__(Block)
    block.data = data
    block.size = size
    block.capacity = capacity
    return block
