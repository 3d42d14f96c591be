"""Produce requests that ask for nothing special: each is read in one call, and its answer is made in another.

    request   header | transactional id: null | acks | time-out | topics: (name or id, partitions: (number, batch))
    answer    header | topics: (name or id, partitions: (number, error: 0, offsets and time, wrong records: none))

The answer is written as the request is read, since it has the same topics and partitions; the offsets are filled in
when the batches are in the log. A request of any other form, wrong or only rare, is left to the code that knows all of
them: `odradek.broker.api.k00_produce` and `odradek.broker.data_responses`. Tests hold both ways together.

Source in Kafka: `ProduceRequest.json`, `ProduceResponse.json`.
"""

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.records.kernels import wire

from odradek.records.kernels.frames import uuid_of

Bytes = cython.typedef(cython.pointer(uint8_t))

_FIRST = cython.declare(cython.int, 3)
_FIRST_WITH_START = cython.declare(cython.int, 5)
_FIRST_WITH_ERRORS = cython.declare(cython.int, 8)
_FIRST_FLEXIBLE = cython.declare(cython.int, 9)
_FIRST_WITH_IDS = cython.declare(cython.int, 13)
_LAST = cython.declare(cython.int, 13)

# Batches that are compressed, or of a transaction.
_NOT_PLAIN = cython.declare(cython.int, wire.CODEC_MASK | wire.TRANSACTIONAL_FLAG | wire.CONTROL_FLAG)

# A greater size, in a compact array or text, has more than a byte.
_MOST_ITEMS = cython.declare(cython.int, 126)
_MOST_ANSWER_BYTES = cython.declare(cython.int, 4096)

Exchange = cython.struct(
    request=Bytes,
    position=int64_t,
    end=int64_t,
    is_flexible=cython.bint,
    is_other=cython.bint,  # it is of another form; what was read and written since then is anything
    answer=Bytes,
    answer_size=int64_t,
)


@cython.cfunc
@cython.exceptval(check=False)
def _read(exchange: cython.pointer(Exchange), size: int64_t) -> Bytes:
    """Go over so many bytes of the request; return where they are."""
    found: Bytes = exchange.request + exchange.position
    if size < 0 or size > exchange.end - exchange.position:
        exchange.is_other = True
        # No number has more bytes than a request has at least.
        return exchange.request
    exchange.position += size
    return found


@cython.cfunc
@cython.exceptval(check=False)
def _room(exchange: cython.pointer(Exchange), size: int64_t) -> Bytes:
    """Make the answer longer; return where the new bytes are, which are zeros."""
    room: Bytes = exchange.answer + exchange.answer_size
    if size < 0 or size > _MOST_ANSWER_BYTES - exchange.answer_size:
        exchange.is_other = True
        return exchange.answer
    memset(room, 0, size)
    exchange.answer_size += size
    return room


@cython.cfunc
@cython.exceptval(check=False)
def _copy(exchange: cython.pointer(Exchange), size: int64_t) -> Bytes:
    """Go over so many bytes of the request, which the answer has as well; return where they are."""
    found: Bytes = _read(exchange, size)
    room: Bytes = _room(exchange, size)
    if not exchange.is_other:
        memcpy(room, found, size)
    return found


@cython.cfunc
@cython.exceptval(check=False)
def _copy_size(exchange: cython.pointer(Exchange), fixed: cython.int) -> int64_t:
    """Go over the size of an array, or of a text, that is small and not empty; return it."""
    size: int64_t
    if exchange.is_flexible:
        size = cython.cast(int64_t, _copy(exchange, 1)[0]) - 1
    elif fixed == 2:
        size = wire.load_i16(_copy(exchange, 2))
    else:
        size = wire.load_i32(_copy(exchange, 4))
    if not 0 < size <= _MOST_ITEMS:
        exchange.is_other = True
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _records_size(exchange: cython.pointer(Exchange)) -> int64_t:
    value: int64_t = 0
    shift: cython.int = 0
    byte: uint8_t
    if not exchange.is_flexible:
        return wire.load_i32(_read(exchange, 4))
    while shift < 35:
        byte = _read(exchange, 1)[0]
        value |= cython.cast(int64_t, byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1
        shift += 7
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def _tags(exchange: cython.pointer(Exchange)) -> cython.void:
    """Go over the tagged fields; usually there are none."""
    if exchange.is_flexible and _read(exchange, 1)[0] != 0:
        exchange.is_other = True


@cython.cfunc
@cython.exceptval(check=False)
def _is_ascii(text: Bytes, size: int64_t) -> cython.bint:
    index: int64_t
    for index in range(size):
        if text[index] >= 0x80:
            return False
    return True


@cython.final
@cython.cclass
class PlainProduce:
    """A Produce request that asks for nothing special.

    It wants an answer, has no transactional id, and names each topic and each partition once, with one v2 batch that is
    neither compressed nor of a transaction. The batches themselves are not checked.

    Attributes:
        batches: Of each batch the topic (its name, or from v13 on its id), the number of the partition, and the memory
            that the batch was received into.
    """

    batches = cython.declare(list, visibility="readonly")
    _answer: bytearray
    # Of each batch, where its offset goes.
    _places: list
    _has_start: cython.bint

    def answer(self, results: list) -> bytearray:
        """Return the answer, from its size on.

        Args:
            results: Of each batch the offset of its first record, the time in ms that it was stamped with or -1, and
                the log start offset.
        """
        index: cython.Py_ssize_t
        place: Bytes
        if len(results) != len(self._places):
            raise ValueError(f"{len(results)} results of {len(self._places)} batches")
        for index in range(len(results)):
            first_offset, append_time_ms, log_start_offset = results[index]
            place = cython.cast(Bytes, PyByteArray_AS_STRING(self._answer)) + cython.cast(
                cython.Py_ssize_t, self._places[index]
            )
            wire.store_i64(place, first_offset)
            wire.store_i64(place + 8, append_time_ms)
            if self._has_start:
                wire.store_i64(place + 16, log_start_offset)
        return self._answer


def plain_produce(frame: bytearray):
    """Read a Produce request that asks for nothing special.

    Args:
        frame: The request, without its size.

    Returns:
        A `PlainProduce`; None for any other request.
    """
    answer: cython.uchar[4096]
    exchange: Exchange
    version: cython.int
    size: int64_t
    end: int64_t
    batch: Bytes
    found: Bytes
    number: int32_t
    exchange.request = cython.cast(Bytes, PyByteArray_AS_STRING(frame))
    exchange.position = 0
    exchange.end = PyByteArray_GET_SIZE(frame)
    exchange.is_flexible = False
    exchange.is_other = False
    exchange.answer = answer
    exchange.answer_size = 0
    if exchange.end <= wire.V2_HEADER or wire.load_i16(_read(cython.address(exchange), 2)) != 0:
        return None
    version = wire.load_i16(_read(cython.address(exchange), 2))
    if not _FIRST <= version <= _LAST:
        return None
    # The size of the answer, and the correlation id.
    _room(cython.address(exchange), 4)
    _copy(cython.address(exchange), 4)
    # The client's id.
    size = wire.load_i16(_read(cython.address(exchange), 2))
    found = _read(cython.address(exchange), max(0, size))
    if exchange.is_other or not _is_ascii(found, size):
        return None
    exchange.is_flexible = version >= _FIRST_FLEXIBLE
    _tags(cython.address(exchange))
    if exchange.is_flexible:
        _room(cython.address(exchange), 1)
    # The transactional id is null.
    if exchange.is_flexible:
        exchange.is_other |= _read(cython.address(exchange), 1)[0] != 0
    else:
        exchange.is_other |= wire.load_i16(_read(cython.address(exchange), 2)) != -1
    # acks, and the time-out, which nothing waits for.
    size = wire.load_i16(_read(cython.address(exchange), 2))
    if size != 1 and size != -1:
        return None
    _read(cython.address(exchange), 4)

    view = memoryview(frame)
    batches: list = []
    places: list = []
    names: set = set()
    numbers: set
    for _ in range(_copy_size(cython.address(exchange), 4)):
        size = 16 if version >= _FIRST_WITH_IDS else _copy_size(cython.address(exchange), 2)
        found = _copy(cython.address(exchange), size)
        if exchange.is_other:
            return None
        name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, found), size)
        if name in names:
            return None
        names.add(name)
        if version >= _FIRST_WITH_IDS:
            topic = uuid_of(name)
        elif _is_ascii(found, size):
            topic = name.decode()
        else:
            return None
        numbers = set()
        for _ in range(_copy_size(cython.address(exchange), 4)):
            number = wire.load_i32(_copy(cython.address(exchange), 4))
            size = _records_size(cython.address(exchange))
            batch = _read(cython.address(exchange), size)
            _tags(cython.address(exchange))
            if exchange.is_other or not wire.is_one_v2_batch(batch, size, _NOT_PLAIN) or number in numbers:
                return None
            numbers.add(number)
            end = batch - exchange.request + size
            batches.append((topic, number, view[end - size : end]))
            # No error; then offset and time, the log's first offset, no wrong records, no message, no tags.
            _room(cython.address(exchange), 2)
            places.append(exchange.answer_size)
            _room(cython.address(exchange), 24 if version >= _FIRST_WITH_START else 16)
            if exchange.is_flexible:
                _room(cython.address(exchange), 3)[0] = 1
            elif version >= _FIRST_WITH_ERRORS:
                memset(_room(cython.address(exchange), 6) + 4, 0xFF, 2)
        _tags(cython.address(exchange))
        if exchange.is_flexible:
            _room(cython.address(exchange), 1)
    _tags(cython.address(exchange))
    # The throttle time.
    _room(cython.address(exchange), 5 if exchange.is_flexible else 4)
    if exchange.is_other or exchange.position != exchange.end:
        return None
    wire.store_i32(exchange.answer, cython.cast(int32_t, exchange.answer_size - 4))
    request: PlainProduce = PlainProduce.__new__(PlainProduce)
    request.batches = batches
    request._answer = PyByteArray_FromStringAndSize(cython.cast(cython.p_char, exchange.answer), exchange.answer_size)
    request._places = places
    request._has_start = version >= _FIRST_WITH_START
    return request
