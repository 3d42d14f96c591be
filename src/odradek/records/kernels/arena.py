"""Memory that compressed batches are decompressed into, so that views can point at them where they came to stand.

    | batch | batch | batch | room ... |    | batch | room ... |        blocks, none of which ever moves

A view column that copied would pass over every byte once more, which costs as much as a fast codec does.
"""

import cython
from cython.cimports.libc.stdint import int64_t, uint8_t
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels.arrow_memory import FIRST_ARENA_BLOCK
from cython.cimports.odradek.records.kernels.blocks import Block, make_block, odradek_allocate, take_memory

_BLOCK_BYTES = cython.declare(int64_t, 1 << 20)

# Memory of others that is this large becomes a block itself; less is copied.
_OWN_BLOCK_BYTES = cython.declare(int64_t, 1 << 16)


@cython.final
@cython.cclass
class Arena:
    """Blocks that grow in number until they are handed out with the views into them."""

    def __cinit__(self):
        self.hand_out()

    def _grow(self, size: int64_t):
        data: cython.pointer(uint8_t)
        capacity: int64_t = 0
        block: Block
        self._close_block()
        if size < _BLOCK_BYTES:
            size = _BLOCK_BYTES
        data = take_memory(size, cython.address(capacity))
        if data == cython.NULL:
            capacity = size
            data = odradek_allocate(cython.address(capacity))
        if data == cython.NULL:
            raise MemoryError
        block = make_block(data, capacity, capacity)
        block.writable = True
        self._block = block
        self._room = memoryview(block)
        self._index = len(self._blocks)
        self._used = 0
        self._blocks.append(block)

    def _close_block(self):
        """Let the block end with its last batch: whoever writes views away writes whole blocks."""
        if self._block is not None:
            self._block.size = self._used

    def take(self, size: int64_t):
        """Return room for `size` bytes at least, until `place` says what became of it."""
        if self._block is None or size > self._block.capacity - self._used:
            self._grow(size)
        return self._room[self._used :]

    def place(
        self,
        owner,
        p: cython.pointer(cython.const[uint8_t]),
        size: int64_t,
        block: cython.pointer(int64_t),
        position: cython.pointer(int64_t),
    ):
        """Keep `size` bytes at `p`, and tell in which of Arrow's buffers they stand, and where.

        Args:
            owner: What holds the bytes, where they are not in the room that `take` gave.
            p: The bytes.
            size: How many.
            block: Gets the index of the buffer.
            position: Gets the position in it.
        """
        self.used += size
        if self._block is None or p != self._block.data + self._used:
            if size >= _OWN_BLOCK_BYTES:
                block[0] = FIRST_ARENA_BLOCK + len(self._blocks)
                position[0] = 0
                self._blocks.append(owner)
                return
            self.take(size)
            memcpy(self._block.data + self._used, p, size)
        block[0] = FIRST_ARENA_BLOCK + self._index
        position[0] = self._used
        self._used += size

    def hand_out(self):
        """Return the blocks and start again."""
        blocks = self._blocks
        self._close_block()
        self._blocks = []
        self._block = None
        self._room = None
        self._index = 0
        self._used = 0
        self.used = 0
        return blocks
