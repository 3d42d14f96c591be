"""Walks over the records of batches, of all formats and codecs, without the GIL.

    batch -> _begin: wanted? -> decompressed -> _content: anything in it? -> _record, _record, _record ...
                                                                 a record that contradicts the batch: _undo

A kernel derives from `BatchWalk` and says what is done with a batch and with its records. A batch is walked to its end,
or undone: what is refused in the end has left nothing.

Source in Kafka: `DefaultRecordBatch`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdint import int64_t, uintptr_t
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.record import (
    RawHeader,
    RawRecord,
    check_message_set,
    read_deltas,
    read_header_count,
    read_header_pair,
    read_key_and_value,
    read_message,
)
from cython.cimports.odradek.records.kernels.wire import (
    BAD_ORDER,
    BAD_RECORD,
    CODEC_MASK,
    COMPRESSED,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_MEMORY,
    OK,
    V2_HEADER,
    BatchInfo,
    crc32_function,
    header_fields,
    read_header,
)

from odradek.errors import FormatError
from odradek.records.batch import records_section
from odradek.records.compression import Decompressor
from odradek.records.crc import CRC32_ADDRESS
from odradek.records.header import BatchHeader

_crc32_address = cython.declare(uintptr_t, CRC32_ADDRESS)


@cython.cclass
class BatchWalk:
    """A walk; one thread at a time. Control batches and those whose records are refused are left to the caller."""

    def __cinit__(self):
        self._decompressor = Decompressor()

    # -- what kernels do -----------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self, info: cython.pointer(BatchInfo)) -> cython.int:
        """Begin with a batch: `OK`, `LEFT_OUT`, `BAD_RECORD` to leave it to the caller, or another to stop before."""
        if not self._selection.wants_batch(info):
            return LEFT_OUT
        return BAD_RECORD if info.magic == 2 and info.attributes & CONTROL_FLAG else OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _content(self, info: cython.pointer(BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        """Look at the bytes of a batch's records, decompressed: `OK` or `LEFT_OUT`."""
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _record(
        self,
        info: cython.pointer(BatchInfo),
        record: cython.pointer(RawRecord),
        index: int64_t,
        offset: int64_t,
        timestamp: int64_t,
        kind: cython.int,
    ) -> cython.int:
        """Take a record, the `index`-th of its batch; `kind` is 0 for CreateTime, 1 for LogAppendTime, 2 for neither.

        Its headers were read without complaint.
        """
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _undo(self) -> cython.void:
        """Forget what was done since `_begin`."""

    # -- records -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _records(self, info: cython.pointer(BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        """Walk over the uncompressed records of a v2 batch."""
        p: Bytes = start
        record: RawRecord
        header: RawHeader
        status: cython.int
        index: int64_t
        count: int64_t = info.records_count
        append_time: cython.bint = info.attributes & LOG_APPEND_TIME_FLAG != 0
        if count * 7 > stop - start:
            return BAD_RECORD
        for index in range(count):
            if read_deltas(p, stop, cython.address(record)) != cython.NULL:
                return BAD_RECORD
            if read_key_and_value(cython.address(record)) != cython.NULL:
                return BAD_RECORD
            if read_header_count(cython.address(record)) != cython.NULL:
                return BAD_RECORD
            p = record.headers
            for _ in range(record.header_count):
                if read_header_pair(cython.address(p), record.end, cython.address(header)) != cython.NULL:
                    return BAD_RECORD
            if p != record.end:
                return BAD_RECORD
            status = self._record(
                info,
                cython.address(record),
                index,
                info.base_offset + record.offset_delta,
                info.max_timestamp if append_time else info.base_timestamp + record.timestamp_delta,
                append_time,
            )
            if status != OK:
                return status
        return OK if p == stop else BAD_RECORD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(
        self,
        p: Bytes,
        info: cython.pointer(BatchInfo),
        index: int64_t,
        offset: int64_t,
        timestamp: int64_t,
        kind: cython.int,
    ) -> cython.int:
        """Take an uncompressed v0 or v1 message."""
        record: RawRecord
        if read_message(p, info, cython.address(record)) != cython.NULL:
            return BAD_RECORD
        record.headers = record.end
        record.header_count = 0
        return self._record(info, cython.address(record), index, offset, timestamp, kind)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message_set(self, info: cython.pointer(BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        """Walk over the decompressed messages of a v0 or v1 wrapper."""
        inner: BatchInfo
        status: cython.int
        p: Bytes = start
        at: Bytes = start
        index: int64_t = 0
        count: int64_t = 0
        base: int64_t = 0
        append_time: cython.bint = info.magic == 1 and info.attributes & LOG_APPEND_TIME_FLAG != 0
        if (
            check_message_set(
                start,
                stop,
                info,
                cython.cast(crc32_function, _crc32_address),
                cython.address(base),
                cython.address(at),
                cython.address(count),
            )
            != cython.NULL
        ):
            return BAD_RECORD
        while p < stop:
            read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL)
            status = self._message(
                p,
                cython.address(inner),
                index,
                base + inner.base_offset,
                info.max_timestamp if append_time else inner.max_timestamp,
                2 if info.magic == 0 else append_time,
            )
            if status != OK:
                return status
            p += inner.size_bytes
            index += 1
        return OK

    # -- batches -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _uncompressed(self, info: cython.pointer(BatchInfo), p: Bytes) -> cython.int:
        """Walk over a batch that is not compressed."""
        status: cython.int
        if info.magic == 2:
            status = self._content(info, p + V2_HEADER, p + info.size_bytes)
            return self._records(info, p + V2_HEADER, p + info.size_bytes) if status == OK else status
        status = self._content(info, p, p + info.size_bytes)
        if status != OK:
            return status
        return self._message(
            p,
            info,
            0,
            info.base_offset,
            info.max_timestamp,
            2 if info.magic == 0 else (info.attributes & LOG_APPEND_TIME_FLAG) != 0,
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(self, table: BatchTable, data: Bytes, origin: int64_t, end: int64_t) -> cython.int:
        """Walk over batches of the table from `_next` on."""
        info: cython.pointer(BatchInfo)
        status: cython.int
        while self._next < table._count:
            info = cython.address(table._rows[self._next])
            if info.position < origin or info.position - origin > end - info.size_bytes:
                return BAD_ORDER
            status = self._begin(info)
            if status == OK:
                # An empty batch has nothing to compress.
                if info.attributes & CODEC_MASK and not (info.magic == 2 and info.size_bytes == V2_HEADER):
                    return COMPRESSED
                status = self._uncompressed(info, data + (info.position - origin))
                if status != OK and status != LEFT_OUT:
                    self._undo()
            if status != OK and status != LEFT_OUT:
                return status
            self._next += 1
        return OK

    @cython.cfunc
    def _compressed(self, info: cython.pointer(BatchInfo), data, origin: int64_t) -> cython.int:
        """Walk over a compressed batch, which was begun."""
        status: cython.int = OK
        content: Py_buffer
        start: Bytes
        header = tuple.__new__(BatchHeader, header_fields(info))
        try:
            section = records_section(
                data, header._replace(position=header.position - origin) if origin else header, self._decompressor
            )
        except FormatError:
            self._undo()
            return BAD_RECORD
        PyObject_GetBuffer(section, cython.address(content), PyBUF_SIMPLE)
        try:
            start = cython.cast(Bytes, content.buf)
            with cython.nogil:
                status = self._content(info, start, start + content.len)
                if status == OK:
                    if info.magic == 2:
                        status = self._records(info, start, start + content.len)
                    else:
                        status = self._message_set(info, start, start + content.len)
                if status != OK and status != LEFT_OUT:
                    self._undo()
        finally:
            PyBuffer_Release(cython.address(content))
        if status == OK or status == LEFT_OUT:
            self._next += 1
            return OK
        return status

    @cython.cfunc
    def _walk(self, table: BatchTable, first: cython.Py_ssize_t, data, origin: int64_t) -> cython.int:
        """Walk over batches of a table from one on; `_next` is then the number of the batch to go on with.

        Returns:
            `OK`: the table is done. `BAD_RECORD`: this batch is left to the caller. Else what `_begin` stopped with.

        Raises:
            ValueError: A batch is not within the bytes.
            MemoryError: There is none left.
        """
        status: cython.int = OK
        view: cython.const[cython.uchar][::1] = data
        base: Bytes = cython.NULL
        end: int64_t = view.shape[0]
        if first < 0:
            raise IndexError(first)
        if end > 0:
            base = cython.cast(Bytes, cython.address(view[0]))
        self._next = first
        while True:
            with cython.nogil:
                status = self._run(table, base, origin, end)
            if status == COMPRESSED:
                status = self._compressed(cython.address(table._rows[self._next]), data, origin)
                if status == OK:
                    continue
            if status == BAD_ORDER:
                raise ValueError(f"batch {self._next} is not within {end} bytes from position {origin} on")
            if status == NO_MEMORY:
                raise MemoryError
            return status
