"""Frames of requests: memory for them, and their fields one by one, without copying the records.

    size | compact size   int32 or int16, -1 for null | varint of the size + 1, 0 for null
    tags                  compact requests only: their number, then tag, size and content of each

Source in Kafka: `ByteBufferAccessor`, `NetworkReceive`.
"""

from functools import lru_cache
from uuid import UUID

import cython
from cython.cimports.cpython import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int16_t, int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels import wire

from odradek.errors import ProtocolError

_MOST_KNOWN = 127
# A larger number of fields would have more than a byte.
_MOST_ITEMS = 100_000
# An item of a byte may become some hundred bytes in memory, and as many in the answer.


def new_frame(size: cython.Py_ssize_t) -> bytearray:
    """Return memory for a frame. It holds anything until it is filled: nobody may see it before."""
    return PyByteArray_FromStringAndSize(cython.NULL, size)


def whole_frames(data, most_bytes: int64_t) -> tuple:
    """Return the frames that bytes begin with, without their sizes, and where the first one begins that is not whole.

    Args:
        data: What was received, from the size of a frame on.
        most_bytes: How many bytes a frame may have; a longer one ends the search, as one of a negative size does.
    """
    buffer: Py_buffer
    frames: list = []
    size: int64_t
    position: int64_t = 0
    PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
    try:
        start: cython.p_char = cython.cast(cython.p_char, buffer.buf)
        while buffer.len - position >= 4:
            size = wire.load_i32(cython.cast(cython.pointer(uint8_t), start + position))
            if not 0 <= size <= most_bytes or size > buffer.len - position - 4:
                break
            frames.append(PyByteArray_FromStringAndSize(start + position + 4, size))
            position += 4 + size
    finally:
        PyBuffer_Release(cython.address(buffer))
    return frames, position


@lru_cache(maxsize=1024)
def uuid_of(data: bytes):
    """Return the UUID of 16 bytes; the ids of topics come again and again."""
    return UUID(bytes=data)


@cython.final
@cython.cclass
class WireReader:
    """Reads the fields of a request one by one.

    Args:
        frame: The request.
        position: Where to begin.
        is_flexible: Whether it has compact sizes and tags.

    Attributes:
        position: Where the next field begins.
    """

    _frame: bytearray
    # It also keeps the frame from being resized.
    _view: object
    _bytes: cython.pointer(uint8_t)
    _end: int64_t
    _is_flexible: cython.bint
    # What was copied without the tags that are unknown, and how far; None while there were none.
    _kept: bytearray
    _copied: int64_t
    # How many items the arrays have together, as far as they were read.
    _items: int64_t
    position = cython.declare(int64_t, visibility="readonly")

    def __init__(self, frame: bytearray, position: int64_t, *, is_flexible: cython.bint):
        self._frame = frame
        self._view = memoryview(frame)
        self._bytes = cython.cast(cython.pointer(uint8_t), PyByteArray_AS_STRING(frame))
        self._end = PyByteArray_GET_SIZE(frame)
        self._is_flexible = is_flexible
        self._kept = None
        self._copied = 0
        self._items = 0
        if not 0 <= position <= self._end:
            raise ProtocolError("the request is cut short")
        self.position = position

    @cython.cfunc
    @cython.exceptval(-1)
    def _take(self, size: int64_t) -> int64_t:
        """Go over so many bytes; return where they begin."""
        start: int64_t = self.position
        if size < 0 or size > self._end - start:
            raise ProtocolError(f"a field of {size} bytes goes beyond the end of the request")
        self.position = start + size
        return start

    @cython.cfunc
    def _fixed(self, size: int64_t) -> cython.pointer(uint8_t):
        """Go over a field of a fixed size; return where it begins."""
        start: int64_t = self.position
        if size > self._end - start:
            raise ProtocolError("the request is cut short")
        self.position = start + size
        return self._bytes + start

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _size(self, fixed: cython.int) -> int64_t:
        """Read a size; -1 stands for null."""
        value: int64_t = 0
        shift: cython.int = 0
        byte: uint8_t
        if not self._is_flexible:
            return wire.load_i16(self._fixed(2)) if fixed == 2 else wire.load_i32(self._fixed(4))
        while shift < 35:
            byte = self._fixed(1)[0]
            value |= cython.cast(int64_t, byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1
            shift += 7
        raise ProtocolError("a variable-length integer has more than five bytes")

    def unpack(self, layout) -> tuple:
        """Read fields of fixed sizes that follow each other."""
        start: int64_t = self.position
        self._fixed(layout.size)
        return layout.unpack_from(self._frame, start)

    def int16(self) -> int16_t:
        """Read an int16."""
        return wire.load_i16(self._fixed(2))

    def int32(self) -> int32_t:
        """Read an int32."""
        return wire.load_i32(self._fixed(4))

    def int64(self) -> int64_t:
        """Read an int64."""
        return wire.load_i64(self._fixed(8))

    def uuid(self):
        """Read a UUID."""
        start: int64_t = self._take(16)
        return uuid_of(PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._bytes + start), 16))

    def nullable_count(self) -> int64_t:
        """Read the number of an array's items; -1 stands for null.

        Raises:
            ProtocolError: It is more than the request can hold, or all arrays together have too many items.
        """
        count: int64_t = self._size(4)
        if not -1 <= count <= self._end - self.position:
            raise ProtocolError(f"an array of {count} items does not fit the request")
        self._add_items(max(0, count))
        return count

    @cython.cfunc
    def _add_items(self, count: int64_t) -> cython.void:
        self._items += count
        if self._items > _MOST_ITEMS:
            raise ProtocolError(f"the request has more than {_MOST_ITEMS:,} items of arrays and tagged fields")

    def count(self) -> int64_t:
        """Read the number of an array's items.

        Raises:
            ProtocolError: It is null, or more than the request can hold.
        """
        count: int64_t = self.nullable_count()
        if count < 0:
            raise ProtocolError("an array that must not be null is")
        return count

    def skip(self, size: int64_t) -> None:
        """Skip so many bytes."""
        self._take(size)

    def skip_text(self) -> None:
        """Skip a text, or null."""
        self._take(max(0, self._size(2)))

    def skip_bytes(self) -> None:
        """Skip bytes, or null."""
        self._take(max(0, self._size(4)))

    def is_present(self) -> bool:
        """Read whether there is a structure, or null."""
        return self._bytes[self._take(1)] < 0x80

    def nullable_text(self):
        """Read a text, or null."""
        size: int64_t = self._size(2)
        if size < 0:
            return None
        start: int64_t = self._take(size)
        try:
            return self._bytes[start : start + size].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a text is not UTF-8: {error}") from None

    def text(self) -> str:
        """Read a text.

        Raises:
            ProtocolError: It is null.
        """
        text = self.nullable_text()
        if text is None:
            raise ProtocolError("a text that must not be null is")
        return text

    def records(self):
        """Return the memory of records, or None."""
        size: int64_t = self._size(4)
        if size < 0:
            return None
        start: int64_t = self._take(size)
        return self._view[start : start + size]

    def produced(self, has_ids: cython.bint) -> tuple:
        """Read the topics of a Produce request.

        Args:
            has_ids: Whether they are named by their ids.

        Returns:
            The records by the topic, a name and an id or None, and by the number of the partition; and whether there is
            a batch of a transaction. Of a partition that is named twice the last records count, as in Kafka.
        """
        topics: dict = {}
        partitions: dict
        transactional: set = set()
        size: int64_t
        start: int64_t
        batch: cython.pointer(cython.const[uint8_t])
        for _ in range(self.count()):
            key = ("", self.uuid()) if has_ids else (self.text(), None)
            partitions = topics.setdefault(key, {})
            for _ in range(self.count()):
                number = wire.load_i32(self._fixed(4))
                size = self._size(4)
                start = self._take(max(0, size))
                partitions[number] = None if size < 0 else self._view[start : start + size]
                batch = self._bytes + start
                if (
                    size >= wire.V2_HEADER
                    and batch[wire.MAGIC_AT] == 2
                    and batch[wire.FLAGS_AT] & wire.TRANSACTIONAL_FLAG
                ):
                    transactional.add((key, number))
                elif transactional:
                    transactional.discard((key, number))
                self.tags()
            self.tags()
        return topics, len(transactional) > 0

    def tags(self, known=None) -> None:
        """Skip the tagged fields, in any order and however often; unknown ones are as long as their sizes say.

        Args:
            known: What skips the content of a field, by its tag. What is not in it `without_unknown_tags` leaves out.
        """
        start: int64_t = self.position
        place: int64_t = 0
        tag: int64_t
        size: int64_t
        is_known: cython.bint
        if not self._is_flexible:
            return
        count: int64_t = self._size(4) + 1
        if count == 0:
            return
        self._add_items(count)
        if known is not None:
            self._keep(start)
            place = len(self._kept)
            self._kept.append(0)
            self._copied = self.position
        for _ in range(count):
            start = self.position
            tag = self._size(4) + 1
            size = self._size(4) + 1
            is_known = bool(known) and tag in known
            if is_known:
                known[tag](self)
            else:
                self._take(size)
            if known is None:
                continue
            if not is_known:
                self._keep(start)
                self._copied = self.position
            elif self._kept[place] == _MOST_KNOWN:
                raise ProtocolError(f"more than {_MOST_KNOWN} tagged fields")
            else:
                self._kept[place] += 1

    @cython.cfunc
    def _keep(self, end: int64_t):
        """Copy up to a position."""
        if self._kept is None:
            self._kept = bytearray()
        if end > self._copied:
            self._kept += self._view[self._copied : end]

    def without_unknown_tags(self) -> bytes:
        """Return the request without the unknown tags of the structures that were gone through."""
        if self._kept is None:
            return bytes(self._frame)
        return bytes(self._kept + self._view[self._copied :])
