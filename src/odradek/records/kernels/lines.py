"""Writes records as lines, for people and for programs: one pass over a batch, without the GIL.

    text    t-0 offset=7 CreateTime=1 key="k" value=null headers={"h": "v"}
    jsonl   {"topic":"t","partition":0,"offset":7,"timestamp":1,"timestamp_type":"CreateTime","key":"k",...}
    csv     t,0,7,1,CreateTime,"k",,[]
    kafka   | offset: 7 CreateTime: 1 keySize: 1 valueSize: -1 sequence: -1 headerKeys: [h] key: k

What stands before the offset is given. In text and JSON lines a record is always one line: `text.pxd` escapes all that
could end it. The lines of Kafka's tool are what it prints, line breaks and all.

Source in Kafka: `DumpLogSegments`.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.blocks import Block, make_block, odradek_free, odradek_grow, take_memory
from cython.cimports.odradek.records.kernels.json_value import put_json_value
from cython.cimports.odradek.records.kernels.record import RawHeader, RawRecord, read_header_pair
from cython.cimports.odradek.records.kernels.rows import Row, Rows
from cython.cimports.odradek.records.kernels.selection import Selection
from cython.cimports.odradek.records.kernels.text import (
    ESCAPED_SIZE,
    JAVA_SIZE,
    TEXT_SLACK,
    put,
    put_base64,
    put_csv_part,
    put_java_part,
    put_json_part,
    put_number,
    utf8_size,
)
from cython.cimports.odradek.records.kernels.walk import LEFT_OUT, BatchWalk, Bytes

Room = cython.typedef(cython.pointer(uint8_t))

_TEXT = cython.declare(cython.int, 0)
_JSONL = cython.declare(cython.int, 1)
_CSV = cython.declare(cython.int, 2)
_KAFKA = cython.declare(cython.int, 3)

_FORMS = {"text": 0, "jsonl": 1, "csv": 2, "kafka": 3}

# The names and numbers of a line, or of a batch's, take less.
_LINE_BYTES = cython.declare(int64_t, 640)

# Of a batch with more records the lines are not written together.
_MOST_LINES = cython.declare(int64_t, 1 << 18)

# How many bytes of a string are written before there is room made for more.
_PART_BYTES = cython.declare(int64_t, 4096)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _character_size(p: Bytes, end: Bytes) -> cython.int:
    """Return how many bytes a character has; what is not UTF-8 counts byte by byte."""
    size: cython.int = 1 if p[0] < 0x80 else utf8_size(p, end - p)
    return size if size > 0 else 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_frame(data: Bytes, end: Bytes) -> Bytes:
    """Return where a JSON value begins: after the zero and the schema id of a schema registry, if it has them."""
    return data + 5 if end - data >= 5 and data[0] == 0 else data


def json_line(data: cython.const[cython.uchar][::1]):
    """Return a JSON value as it stands, in one line; None where it is none, or not for every reader.

    It may begin as a schema registry's serializer has it: with a zero and a schema id of four bytes.
    """
    size: cython.Py_ssize_t = data.shape[0]
    start: Bytes
    end: Room
    if size == 0:
        return None
    room = bytearray(size * ESCAPED_SIZE + TEXT_SLACK)
    written: cython.uchar[::1] = room
    start = cython.cast(Bytes, cython.address(data[0]))
    end = put_json_value(cython.address(written[0]), _after_frame(start, start + size), start + size)
    if end == cython.NULL:
        return None
    return cython.cast(cython.p_char, cython.address(written[0]))[: end - cython.address(written[0])].decode()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _matches(pattern: Bytes, pattern_end: Bytes, p: Bytes, end: Bytes) -> cython.bint:
    """Whether bytes match a pattern in which `*` is any text, `?` one character, and a backslash takes its meaning."""
    star: Bytes = cython.NULL
    again: Bytes = cython.NULL
    while p < end or pattern < pattern_end:
        if pattern < pattern_end:
            if pattern[0] == 0x2A:
                pattern += 1
                star = pattern
                again = p
                continue
            if p < end:
                if pattern[0] == 0x3F:
                    p += _character_size(p, end)
                    pattern += 1
                    continue
                if pattern[0] == 0x5C and pattern_end - pattern > 1:
                    if pattern[1] == p[0]:
                        pattern += 2
                        p += 1
                        continue
                elif pattern[0] == p[0]:
                    pattern += 1
                    p += 1
                    continue
        # What came after the last star does not fit here: let the star take one character more.
        if star == cython.NULL or again >= end:
            return False
        again += _character_size(again, end)
        p = again
        pattern = star
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _size(size: int64_t) -> int64_t:
    """Return a size as Kafka's tool prints it: that of null is -1."""
    return -1 if size < 0 else size


@cython.final
@cython.cclass
class LineFormatter(BatchWalk):
    """Turns batches into lines; `take` hands out those made so far and starts again.

    A batch is written whole or not at all. Control batches, and those whose records are refused, are left to the
    caller, as are the old formats in the form of Kafka's tool.
    """

    _form: cython.int
    _base64: cython.bint
    _redacts_key: cython.bint
    _redacts_value: cython.bint
    _redacts_headers: cython.bint
    _embeds: cython.bint
    _is_deep: cython.bint
    _prints_data: cython.bint
    _skips_metadata: cython.bint
    _one_by_one: cython.bint
    _head: bytes
    _head_start: Bytes
    _head_size: int64_t
    _pattern: bytes
    _pattern_start: Bytes
    _pattern_end: Bytes
    _max_bytes: int64_t
    _left: int64_t
    _marks: cython.pointer(cython.const[int64_t])
    _marks_end: cython.pointer(cython.const[int64_t])
    _used_before: int64_t
    _left_before: int64_t
    _data: Room
    _used: int64_t
    _capacity: int64_t

    def __cinit__(self):
        self._data = cython.NULL
        self._used = 0
        self._capacity = 0
        self._marks = cython.NULL

    def __init__(
        self,
        open_section,
        form,
        head,
        base64=False,
        start_offset=0,
        end_offset=(1 << 63) - 1,
        start_timestamp=-(1 << 63),
        end_timestamp=(1 << 63) - 1,
        aborted=(),
        key_pattern=None,
        limit=(1 << 63) - 1,
        redact=(),
        is_deep=True,
        prints_data=True,
        skips_metadata=False,
        one_by_one=False,
        max_bytes=1 << 20,
        json_values=False,
    ):
        self._open_section = open_section
        self._form = _FORMS[form]
        self._base64 = base64
        self._redacts_key = "key" in redact
        self._redacts_value = "value" in redact
        self._redacts_headers = "headers" in redact
        self._is_deep = is_deep
        self._prints_data = prints_data
        self._skips_metadata = skips_metadata
        self._selection = Selection(start_offset, end_offset, start_timestamp, end_timestamp, aborted, True)
        self._head = head
        self._head_start = cython.cast(Bytes, PyBytes_AS_STRING(self._head))
        self._head_size = PyBytes_GET_SIZE(self._head)
        self._pattern = key_pattern
        self._pattern_start = cython.NULL
        if self._pattern is not None:
            self._pattern_start = cython.cast(Bytes, PyBytes_AS_STRING(self._pattern))
            self._pattern_end = self._pattern_start + PyBytes_GET_SIZE(self._pattern)
        self._one_by_one = one_by_one
        self._embeds = json_values
        self._left = limit
        self._max_bytes = max_bytes
        self._most_records = _MOST_LINES
        # A value that is no JSON leaves its batch to the caller, who cannot know what earlier windows have given.
        self._takes_windows = not json_values

    def __dealloc__(self):
        if self._data != cython.NULL:
            odradek_free(self._data, self._capacity)

    @property
    def limit(self):
        """How many records more may be written."""
        return self._left

    @property
    def is_full(self):
        """Whether the lines so far are as many bytes as were asked for."""
        return self._used >= self._max_bytes

    # -- room ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _room(self, more: int64_t) -> cython.bint:
        """Make room for `more` bytes; False where there is no memory."""
        wanted: int64_t = self._used + more + TEXT_SLACK
        grown: Room
        if wanted <= self._capacity:
            return True
        if wanted < self._capacity + self._capacity // 2:
            wanted = self._capacity + self._capacity // 2
        if wanted < 2 * self._max_bytes:
            wanted = 2 * self._max_bytes
        grown = odradek_grow(self._data, self._capacity, cython.address(wanted))
        if grown == cython.NULL:
            return False
        self._data = grown
        self._capacity = wanted
        return True

    # -- the parts of a line -------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _string(self, data: Bytes, size: int64_t, form: cython.int) -> wire.Status:
        """Write bytes as text, without quotes; `BAD_RECORD`, and nothing written, where they are not UTF-8."""
        p: Bytes = data
        end: Bytes = data + size
        stop: Bytes
        out: Room
        before: int64_t = self._used
        each: int64_t = JAVA_SIZE if form == _KAFKA else ESCAPED_SIZE
        while p < end:
            stop = p + _PART_BYTES if end - p > _PART_BYTES else end
            if not self._room((stop - p) * each):
                return wire.NO_MEMORY
            out = self._data + self._used
            if form == _KAFKA:
                out = put_java_part(out, cython.address(p), stop, end)
            elif form == _CSV:
                out = put_csv_part(out, cython.address(p), stop, end)
            else:
                out = put_json_part(out, cython.address(p), stop, end)
            if out == cython.NULL:
                self._used = before
                return wire.BAD_RECORD
            self._used = out - self._data
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(self, text: cython.p_const_char) -> cython.bint:
        """Write a short text."""
        if not self._room(_LINE_BYTES):
            return False
        self._used = put(self._data + self._used, text) - self._data
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _base64_of(
        self, data: Bytes, size: int64_t, before: cython.p_const_char, after: cython.p_const_char
    ) -> wire.Status:
        out: Room
        if not self._room(size // 3 * 4 + 4 + 2 * 16):
            return wire.NO_MEMORY
        out = put(self._data + self._used, before)
        out = put_base64(out, data, size)
        self._used = put(out, after) - self._data
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _bytes(self, data: Bytes, size: int64_t, form: cython.int, redacts: cython.bint) -> wire.Status:
        """Write a key, a value or a header's value."""
        status: wire.Status
        if size < 0:
            if form != _CSV and not self._put(b"null"):
                return wire.NO_MEMORY
            return wire.OK
        if redacts:
            return wire.OK if self._put(b'"[redacted]"') else wire.NO_MEMORY
        if self._base64:
            if form == _TEXT:
                return self._base64_of(data, size, b"base64:", b"")
            return self._base64_of(data, size, b'"', b'"')
        if form == _CSV and size >= 7 and memcmp(data, cython.cast(cython.p_const_char, b"base64:"), 7) == 0:
            # As text it would be taken for base64.
            return self._base64_of(data, size, b'"base64:', b'"')
        if form == _TEXT and size > 0 and (data[0] == 0x7B or data[0] == 0x5B):
            # In quotes, every quote of an object or an array would be escaped once more.
            status = self._json(data, size)
            if status != wire.BAD_RECORD:
                return status
        return self._quoted(data, size, form)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _quoted(self, data: Bytes, size: int64_t, form: cython.int) -> wire.Status:
        """Write bytes as text, in quotes, or as base64 where they are not UTF-8."""
        status: wire.Status
        if not self._put(b'"'):
            return wire.NO_MEMORY
        status = self._string(data, size, form)
        if status == wire.BAD_RECORD:
            self._used -= 1
            if form == _TEXT:
                return self._base64_of(data, size, b"base64:", b"")
            if form == _JSONL:
                return self._base64_of(data, size, b'{"base64":"', b'"}')
            return self._base64_of(data, size, b'"base64:', b'"')
        if status != wire.OK:
            return status
        return wire.OK if self._put(b'"') else wire.NO_MEMORY

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json(self, data: Bytes, size: int64_t) -> wire.Status:
        """Write a value that is JSON; `BAD_RECORD` where it is left to the caller."""
        status: wire.Status = wire.OK
        out: Room
        start: int64_t
        end: Bytes = data + size
        if not self._room(size * ESCAPED_SIZE + 2):
            return wire.NO_MEMORY
        if self._form == _CSV:
            self._put(b'"')
        start = self._used
        out = put_json_value(self._data + start, _after_frame(data, end), end)
        if out == cython.NULL:
            return wire.BAD_RECORD
        self._used = out - self._data
        if self._form == _CSV:
            status = self._double_quotes(start)
            if status == wire.OK and not self._put(b'"'):
                status = wire.NO_MEMORY
        return status

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _double_quotes(self, start: int64_t) -> wire.Status:
        """Make what was written from `start` on the inside of a CSV field."""
        index: int64_t
        to: int64_t
        quotes: int64_t = 0
        for index in range(start, self._used):
            quotes += self._data[index] == 0x22
        if not self._room(quotes):
            return wire.NO_MEMORY
        to = self._used + quotes
        index = self._used
        self._used = to
        while to > index:
            index -= 1
            to -= 1
            self._data[to] = self._data[index]
            if self._data[index] == 0x22:
                to -= 1
                self._data[to] = 0x22
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _headers(self, record: cython.pointer(RawRecord)) -> wire.Status:
        """Write the headers, which were read before without complaint."""
        status: wire.Status
        header: RawHeader
        p: Bytes = record.headers
        index: int64_t
        start: int64_t
        count: int64_t = record.header_count
        form: cython.int = _TEXT if self._form == _TEXT else _JSONL
        if self._form == _TEXT:
            if count == 0:
                return wire.OK
            if not self._put(b" headers={"):
                return wire.NO_MEMORY
        elif self._form == _CSV:
            if not self._put(b'"[' if count else b"[]"):
                return wire.NO_MEMORY
            if count == 0:
                return wire.OK
        start = self._used
        for index in range(count):
            read_header_pair(cython.address(p), record.end, cython.address(header))
            if self._form == _TEXT:
                if index and not self._put(b", "):
                    return wire.NO_MEMORY
            elif not self._put(b",[" if index else b"["):
                return wire.NO_MEMORY
            status = self._quoted(header.name, header.name_size, form)
            if status == wire.OK and not self._put(b": " if self._form == _TEXT else b","):
                status = wire.NO_MEMORY
            if status == wire.OK:
                status = self._bytes(header.value, header.value_size, form, self._redacts_headers)
            if status != wire.OK:
                return status
            if self._form != _TEXT and not self._put(b"]"):
                return wire.NO_MEMORY
        if self._form == _TEXT:
            return wire.OK if self._put(b"}") else wire.NO_MEMORY
        if self._form == _CSV:
            status = self._double_quotes(start)
            if status != wire.OK:
                return status
            return wire.OK if self._put(b']"') else wire.NO_MEMORY
        return wire.OK

    # -- lines ---------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _line(
        self, record: cython.pointer(RawRecord), offset: int64_t, timestamp: int64_t, kind: cython.int
    ) -> wire.Status:
        """Write a record as a line; `kind` is 0 for CreateTime, 1 for LogAppendTime, 2 for neither."""
        status: wire.Status
        out: Room
        form: cython.int = self._form
        name: cython.p_const_char = b"CreateTime"
        if kind == 1:
            name = b"LogAppendTime"
        if not self._room(self._head_size + _LINE_BYTES):
            return wire.NO_MEMORY
        out = self._data + self._used
        memcpy(out, self._head_start, self._head_size)
        out += self._head_size
        if form == _TEXT:
            out = put_number(put(out, b"offset="), offset)
            if timestamp == -1:
                out = put(out, b" no timestamp")
            else:
                out = put(out, b" ")
                out = put(out, name)
                out = put_number(put(out, b"="), timestamp)
            out = put(out, b" key=")
        elif form == _JSONL:
            out = put_number(put(out, b',"offset":'), offset)
            out = put(out, b',"timestamp":')
            out = put(out, b"null") if timestamp == -1 else put_number(out, timestamp)
            out = put(out, b',"timestamp_type":')
            if kind == 2:
                out = put(out, b"null")
            else:
                out = put(out, b'"')
                out = put(out, name)
                out = put(out, b'"')
            out = put(out, b',"key":')
        else:
            out = put_number(put(out, b","), offset)
            out = put(out, b",")
            if timestamp != -1:
                out = put_number(out, timestamp)
            out = put(out, b",")
            if kind != 2:
                out = put(out, name)
            out = put(out, b",")
        self._used = out - self._data
        status = self._bytes(record.key, record.key_size, form, self._redacts_key)
        if status != wire.OK:
            return status
        if not self._put(b" value=" if form == _TEXT else (b',"value":' if form == _JSONL else b",")):
            return wire.NO_MEMORY
        if self._embeds and record.value_size >= 0 and not self._redacts_value:
            status = self._json(record.value, record.value_size)
        else:
            status = self._bytes(record.value, record.value_size, form, self._redacts_value)
        if status != wire.OK:
            return status
        if form != _TEXT and not self._put(b',"headers":[' if form == _JSONL else b","):
            return wire.NO_MEMORY
        status = self._headers(record)
        if status != wire.OK:
            return status
        return wire.OK if self._put(b"]}\n" if form == _JSONL else b"\n") else wire.NO_MEMORY

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _kafka_batch(self, info: cython.pointer(wire.BatchInfo)) -> wire.Status:
        """Write what Kafka's tool prints of a v2 batch."""
        out: Room
        codec: cython.int = info.attributes & wire.CODEC_MASK
        if not self._room(_LINE_BYTES):
            return wire.NO_MEMORY
        out = put_number(put(self._data + self._used, b"baseOffset: "), info.base_offset)
        out = put_number(put(out, b" lastOffset: "), info.last_offset)
        out = put_number(put(out, b" count: "), info.records_count)
        out = put_number(put(out, b" baseSequence: "), info.base_sequence)
        out = put_number(put(out, b" lastSequence: "), self._sequence(info, info.last_offset_delta))
        out = put_number(put(out, b" producerId: "), info.producer_id)
        out = put_number(put(out, b" producerEpoch: "), info.producer_epoch)
        out = put_number(put(out, b" partitionLeaderEpoch: "), info.partition_leader_epoch)
        out = put(out, b" isTransactional: ")
        out = put(out, b"true" if info.attributes & wire.TRANSACTIONAL_FLAG else b"false")
        out = put(out, b" isControl: ")
        out = put(out, b"true" if info.attributes & wire.CONTROL_FLAG else b"false")
        if info.attributes & 64:
            out = put_number(put(out, b" deleteHorizonMs: OptionalLong["), info.base_timestamp)
            out = put(out, b"]")
        else:
            out = put(out, b" deleteHorizonMs: OptionalLong.empty")
        out = put_number(put(out, b" position: "), info.position)
        out = put(out, b" LogAppendTime: " if info.attributes & wire.LOG_APPEND_TIME_FLAG else b" CreateTime: ")
        out = put_number(out, info.max_timestamp)
        out = put_number(put(out, b" size: "), info.size_bytes)
        out = put(out, b" magic: 2 compresscodec: ")
        if codec == 0:
            out = put(out, b"none")
        elif codec == 1:
            out = put(out, b"gzip")
        elif codec == 2:
            out = put(out, b"snappy")
        elif codec == 3:
            out = put(out, b"lz4")
        else:
            out = put(out, b"zstd")
        out = put_number(put(out, b" crc: "), info.crc)
        self._used = put(out, b" isvalid: true\n") - self._data
        return wire.OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _sequence(self, info: cython.pointer(wire.BatchInfo), delta: int64_t) -> int64_t:
        """Return the sequence number of a record, as the header says it of its last one."""
        if info.base_sequence == -1:
            return -1
        return (info.base_sequence + delta) & 0x7FFFFFFF

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _kafka_line(
        self,
        info: cython.pointer(wire.BatchInfo),
        record: cython.pointer(RawRecord),
        offset: int64_t,
        timestamp: int64_t,
    ) -> wire.Status:
        """Write what Kafka's tool prints of a record of a v2 batch."""
        status: wire.Status
        header: RawHeader
        out: Room
        p: Bytes = record.headers
        index: int64_t
        start: int64_t = self._used
        sequence: int64_t = -1
        if not self._room(_LINE_BYTES):
            return wire.NO_MEMORY
        out = put(self._data + self._used, b"|")
        if not self._skips_metadata:
            out = put_number(put(out, b" offset: "), offset)
            out = put(out, b" LogAppendTime: " if info.attributes & wire.LOG_APPEND_TIME_FLAG else b" CreateTime: ")
            out = put_number(out, timestamp)
            if info.base_sequence >= 0:
                sequence = self._sequence(info, offset - info.base_offset)
            out = put_number(put(out, b" keySize: "), _size(record.key_size))
            out = put_number(put(out, b" valueSize: "), _size(record.value_size))
            out = put_number(put(out, b" sequence: "), sequence)
            self._used = put(out, b" headerKeys: [") - self._data
            for index in range(record.header_count):
                read_header_pair(cython.address(p), record.end, cython.address(header))
                if index and not self._put(b","):
                    return wire.NO_MEMORY
                status = self._string(header.name, header.name_size, _KAFKA)
                if status != wire.OK:
                    return status
            if not self._put(b"]"):
                return wire.NO_MEMORY
        else:
            self._used = out - self._data
        if self._prints_data:
            if record.key_size >= 0:
                if not self._put(b" key: "):
                    return wire.NO_MEMORY
                status = self._string(record.key, record.key_size, _KAFKA)
                if status != wire.OK:
                    return status
            if record.value_size >= 0:
                if not self._put(b" payload: "):
                    return wire.NO_MEMORY
                status = self._string(record.value, record.value_size, _KAFKA)
                if status != wire.OK:
                    return status
        if self._used == start + 1:
            # It has nothing to say.
            self._used = start
        return wire.OK if self._put(b"\n") else wire.NO_MEMORY

    # -- records -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _wants(self, key: Bytes, key_size: int64_t, offset: int64_t, timestamp: int64_t) -> cython.bint:
        if not self._selects(offset, timestamp):
            return False
        if self._pattern_start == cython.NULL:
            return True
        return key_size >= 0 and _matches(self._pattern_start, self._pattern_end, key, key + key_size)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_marked(self, mark: int64_t) -> cython.bint:
        """Whether a mark is among those asked for; those below it are stepped over."""
        while self._marks < self._marks_end and self._marks[0] < mark:
            self._marks += 1
        return self._marks < self._marks_end and self._marks[0] == mark

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self, info: cython.pointer(wire.BatchInfo)) -> cython.int:
        self._keep()
        if self._used >= self._max_bytes:
            return wire.FULL
        if self._left <= 0:
            return wire.END
        if self._form != _KAFKA:
            if self._marks != cython.NULL:
                self._is_marked(cython.cast(int64_t, self._next) << 32)
                if self._marks == self._marks_end or self._marks[0] >> 32 != self._next:
                    return LEFT_OUT
            status: cython.int = BatchWalk._begin(self, info)
            # Lines of a huge batch would take many times its memory: the caller writes them, and takes them in between.
            is_huge: cython.bint = (
                info.records_count > _MOST_LINES
                and self._marks == cython.NULL
                and info.attributes & wire.CODEC_MASK == 0
            )
            return wire.BAD_RECORD if status == wire.OK and (self._one_by_one or is_huge) else status
        if info.magic != 2 or (self._is_deep and info.attributes & wire.CONTROL_FLAG):
            return wire.BAD_RECORD
        if self._kafka_batch(info) != wire.OK:
            return wire.NO_MEMORY
        return wire.OK if self._is_deep else LEFT_OUT

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_full(self) -> cython.bint:
        return self._used >= self._max_bytes

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(self) -> cython.void:
        self._used_before = self._used
        self._left_before = self._left

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _undo(self) -> cython.void:
        self._used = self._used_before
        self._left = self._left_before

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _record(
        self,
        info: cython.pointer(wire.BatchInfo),
        record: cython.pointer(RawRecord),
        index: int64_t,
        offset: int64_t,
        timestamp: int64_t,
        kind: cython.int,
    ) -> cython.int:
        if self._form == _KAFKA:
            return self._kafka_line(info, record, offset, timestamp)
        if self._marks != cython.NULL and not self._is_marked((cython.cast(int64_t, self._next) << 32) | index):
            return wire.OK
        if self._left <= 0 or not self._wants(record.key, record.key_size, offset, timestamp):
            return wire.OK
        self._left -= 1
        return self._line(record, offset, timestamp, kind)

    def format(self, table: BatchTable, first: cython.Py_ssize_t, data, origin: int64_t = 0, marks=None):
        """Write batches as lines, from one of a table on.

        Args:
            table: The headers of consecutive batches, as `walk_batches` read them from the same bytes.
            first: The number of the first batch.
            data: The bytes.
            origin: The position that `data` starts at: that of the positions in the table.
            marks: A buffer of int64, rising: only these records (see `search`). None: all.

        Returns:
            A status and the number of the batch to go on with. `OK`: the table is done. `FULL`: `take` what there is,
            then go on. `END`: the limit is reached. `BAD_RECORD`: this batch is left to the caller.
        """
        status: cython.int
        wanted: cython.const[cython.longlong][::1]
        self._marks = cython.NULL
        if marks is not None:
            wanted = marks
            if wanted.shape[0] == 0:
                return (cython.cast(cython.int, wire.OK), table._count)
            self._marks = cython.cast(cython.pointer(cython.const[int64_t]), cython.address(wanted[0]))
            self._marks_end = self._marks + wanted.shape[0]
        if self._data == cython.NULL:
            self._data = take_memory(2 * self._max_bytes, cython.address(self._capacity))
        try:
            status = self._walk(table, first, data, origin)
        finally:
            self._marks = cython.NULL
        return (status, self._next)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _rows(self, rows: Rows, kinds: Bytes) -> wire.Status:
        """Write rows from `_next` on."""
        row: Row
        record: RawRecord
        status: wire.Status
        before: int64_t
        while self._next < rows.count:
            if self._used >= self._max_bytes:
                return wire.FULL
            if rows._row(self._next, cython.address(row)) or row.key_size > INT32_MAX or row.value_size > INT32_MAX:
                return wire.BAD_RECORD
            record.key = row.key
            record.key_size = cython.cast(int32_t, row.key_size)
            record.value = row.value
            record.value_size = cython.cast(int32_t, row.value_size)
            record.headers = row.headers
            record.header_count = cython.cast(int32_t, row.header_count)
            record.end = row.headers + row.headers_size
            before = self._used
            status = self._line(cython.address(record), row.offset, row.timestamp, kinds[self._next])
            if status != wire.OK:
                self._used = before
                return status
            self._next += 1
        return wire.OK

    def format_rows(self, rows: Rows, kinds: cython.const[cython.uchar][::1], first: cython.Py_ssize_t):
        """Write rows as lines, from one of them on. Nothing is selected.

        Args:
            rows: The rows.
            kinds: The timestamp type of each: 0 for CreateTime, 1 for LogAppendTime, 2 for neither.
            first: The number of the first row.

        Returns:
            The number of the row to go on with, after a `take`; the number of rows where all are written.

        Raises:
            ValueError: A value lies outside of its column, or is larger than a record can be.
        """
        status: wire.Status
        if first < 0 or kinds.shape[0] < rows.count:
            raise ValueError(f"row {first} of {rows.count}, and {kinds.shape[0]} timestamp types")
        if first >= rows.count:
            return first
        if self._data == cython.NULL:
            self._data = take_memory(2 * self._max_bytes, cython.address(self._capacity))
        self._next = first
        with cython.nogil:
            status = self._rows(rows, cython.cast(Bytes, cython.address(kinds[0])))
        if status == wire.NO_MEMORY:
            raise MemoryError
        if status == wire.BAD_RECORD:
            raise ValueError(f"row {self._next} lies outside of its columns")
        return self._next

    def takes(self, offset: int64_t, timestamp, key):
        """Whether a record that the caller writes is wanted; it then counts towards the limit."""
        p: Bytes = cython.NULL
        size: int64_t = -1
        if key is not None:
            p = cython.cast(Bytes, PyBytes_AS_STRING(key))
            size = len(key)
        if self._left <= 0 or not self._wants(p, size, offset, -1 if timestamp is None else timestamp):
            return False
        self._left -= 1
        return True

    def add(self, line: bytes):
        """Add a line that the caller has written."""
        size: int64_t = PyBytes_GET_SIZE(line)
        if not self._room(size):
            raise MemoryError
        memcpy(self._data + self._used, PyBytes_AS_STRING(line), size)
        self._used += size

    def take(self):
        """Hand out the lines so far, as a buffer, and start again."""
        block: Block = make_block(self._data, self._used, self._capacity)
        self._data = cython.NULL
        self._used = 0
        self._capacity = 0
        return block
