"""Walks over the records of batches, of all formats and codecs, without the GIL.

    batch -> _begin: wanted? -> decompressed -> _content: anything in it? -> _record, _record, _record ...
                                                                 a record that contradicts the batch: _undo

A kernel derives from `BatchWalk` and says what is done with a batch and with its records. A batch is walked to its end,
or undone: what is refused in the end has left nothing. One that decompresses to much is checked whole, and then walked
window by window: the walk may stop in between, until what it has done was handed out.

Source in Kafka: `DefaultRecordBatch`, `AbstractLegacyRecordBatch`.
"""

import cython
from cython.cimports.cpython import Py_buffer
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdint import INT32_MAX, int64_t
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.checksums import crc32_of
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

from odradek.errors import FormatError
from odradek.records.compression import Decompressor
from odradek.records.header import BatchHeader


@cython.cclass
class BatchWalk:
    """A walk; one thread at a time. Control batches and those whose records are refused are left to the caller."""

    def __cinit__(self):
        self._decompressor = Decompressor()
        self._most_records = INT32_MAX
        self._takes_windows = True

    # -- what kernels do -----------------------------------------------------------------------------------------

    def _begin(self, info: cython.pointer(wire.BatchInfo)) -> cython.int:
        """Begin with a batch: `OK`, `LEFT_OUT`, `BAD_RECORD` to leave it to the caller, or another to stop before."""
        if not self._selection.wants_batch(info):
            return LEFT_OUT
        return wire.BAD_RECORD if info.magic == 2 and info.attributes & wire.CONTROL_FLAG else wire.OK

    def _content(self, info: cython.pointer(wire.BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        """Look at the bytes of a batch's records, or of a window of them, decompressed: `OK` or `LEFT_OUT`."""
        return wire.OK

    def _is_full(self) -> cython.bint:
        """Whether what was done is to be handed out before the next window of a batch."""
        return False

    def _keep(self) -> cython.void:
        """Note what there is, for `_undo` to go back to."""

    def _record(
        self,
        info: cython.pointer(wire.BatchInfo),
        record: cython.pointer(RawRecord),
        index: int64_t,
        offset: int64_t,
        timestamp: int64_t,
        kind: cython.int,
    ) -> cython.int:
        """Take a record, the `index`-th of its batch; `kind` is 0 for CreateTime, 1 for LogAppendTime, 2 for neither.

        Its headers were read without complaint.
        """
        return wire.OK

    def _undo(self) -> cython.void:
        """Forget what was done since `_keep`."""

    # -- records -------------------------------------------------------------------------------------------------

    def _records(
        self, info: cython.pointer(wire.BatchInfo), start: Bytes, stop: Bytes, first: int64_t, count: int64_t
    ) -> cython.int:
        """Walk over uncompressed records of a v2 batch, the first of which has a number in it."""
        p: Bytes = start
        record: RawRecord
        header: RawHeader
        status: cython.int
        index: int64_t
        append_time: cython.bint = info.attributes & wire.LOG_APPEND_TIME_FLAG != 0
        if count * 7 > stop - start:
            return wire.BAD_RECORD
        for index in range(first, first + count):
            if read_deltas(p, stop, cython.address(record)) != cython.NULL:
                return wire.BAD_RECORD
            if read_key_and_value(cython.address(record)) != cython.NULL:
                return wire.BAD_RECORD
            if read_header_count(cython.address(record)) != cython.NULL:
                return wire.BAD_RECORD
            p = record.headers
            for _ in range(record.header_count):
                if read_header_pair(cython.address(p), record.end, cython.address(header)) != cython.NULL:
                    return wire.BAD_RECORD
            if p != record.end:
                return wire.BAD_RECORD
            status = self._record(
                info,
                cython.address(record),
                index,
                info.base_offset + record.offset_delta,
                info.max_timestamp if append_time else info.base_timestamp + record.timestamp_delta,
                append_time,
            )
            if status != wire.OK:
                return status
        return wire.OK if p == stop else wire.BAD_RECORD

    def _message(
        self,
        p: Bytes,
        info: cython.pointer(wire.BatchInfo),
        index: int64_t,
        offset: int64_t,
        timestamp: int64_t,
        kind: cython.int,
    ) -> cython.int:
        """Take an uncompressed v0 or v1 message."""
        record: RawRecord
        if read_message(p, info, cython.address(record)) != cython.NULL:
            return wire.BAD_RECORD
        record.headers = record.end
        record.header_count = 0
        return self._record(info, cython.address(record), index, offset, timestamp, kind)

    def _message_set(self, info: cython.pointer(wire.BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        """Walk over the decompressed messages of a v0 or v1 wrapper."""
        at: Bytes = start
        count: int64_t = 0
        if (
            check_message_set(
                start,
                stop,
                info,
                crc32_of,
                cython.address(self._inner_base),
                cython.address(at),
                cython.address(count),
            )
            != cython.NULL
        ):
            return wire.BAD_RECORD
        return self._messages(info, start, stop, 0)

    def _messages(self, info: cython.pointer(wire.BatchInfo), start: Bytes, stop: Bytes, first: int64_t) -> cython.int:
        """Walk over messages of a wrapper, the first of which has a number in it."""
        inner: wire.BatchInfo
        status: cython.int
        p: Bytes = start
        index: int64_t = first
        append_time: cython.bint = info.magic == 1 and info.attributes & wire.LOG_APPEND_TIME_FLAG != 0
        while p < stop:
            # A window is decompressed again after it was checked: its bytes may have changed.
            if wire.read_header(p, stop - p, cython.address(inner), cython.NULL, cython.NULL) != wire.OK:
                return wire.BAD_RECORD
            status = self._message(
                p,
                cython.address(inner),
                index,
                self._inner_base + inner.base_offset,
                info.max_timestamp if append_time else inner.max_timestamp,
                2 if info.magic == 0 else append_time,
            )
            if status != wire.OK:
                return status
            p += inner.size_bytes
            index += 1
        return wire.OK

    # -- batches -------------------------------------------------------------------------------------------------

    def _uncompressed(self, info: cython.pointer(wire.BatchInfo), p: Bytes) -> cython.int:
        """Walk over a batch that is not compressed."""
        status: cython.int
        if info.magic == 2:
            status = self._content(info, p + wire.V2_HEADER, p + info.size_bytes)
            if status != wire.OK:
                return status
            return self._records(info, p + wire.V2_HEADER, p + info.size_bytes, 0, info.records_count)
        status = self._content(info, p, p + info.size_bytes)
        if status != wire.OK:
            return status
        return self._message(
            p,
            info,
            0,
            info.base_offset,
            info.max_timestamp,
            2 if info.magic == 0 else (info.attributes & wire.LOG_APPEND_TIME_FLAG) != 0,
        )

    def _run(self, table: BatchTable, data: Bytes, origin: int64_t, end: int64_t) -> cython.int:
        """Walk over batches of the table from `_next` on."""
        info: cython.pointer(wire.BatchInfo)
        status: cython.int
        while self._next < table._count:
            info = cython.address(table._rows[self._next])
            if info.position < origin or info.position - origin > end - info.size_bytes:
                return wire.BAD_ORDER
            status = self._begin(info)
            if status == wire.OK:
                # An empty batch has nothing to compress.
                if info.attributes & wire.CODEC_MASK and not (info.magic == 2 and info.size_bytes == wire.V2_HEADER):
                    return wire.COMPRESSED
                status = self._uncompressed(info, data + (info.position - origin))
                if status != wire.OK and status != LEFT_OUT:
                    self._undo()
            if status != wire.OK and status != LEFT_OUT:
                return status
            self._next += 1
        return wire.OK

    def _large(self, info: cython.pointer(wire.BatchInfo)) -> cython.int:
        """Walk over the windows of a batch, or go on with them: `OK` at its end."""
        status: cython.int
        content: Py_buffer
        start: Bytes
        first: int64_t
        count: int64_t
        try:
            for window in self._windows:
                first, count = window.first, window.records
                PyObject_GetBuffer(window.data, cython.address(content), PyBUF_SIMPLE)
                try:
                    start = cython.cast(Bytes, content.buf)
                    with cython.nogil:
                        status = self._content(info, start, start + content.len)
                        if status == wire.OK and info.magic == 2:
                            status = self._records(info, start, start + content.len, first, count)
                        elif status == wire.OK:
                            status = self._messages(info, start, start + content.len, first)
                finally:
                    PyBuffer_Release(cython.address(content))
                if status != wire.OK and status != LEFT_OUT:
                    self._drop()
                    return status
                if self._is_full():
                    return wire.FULL
        except FormatError:
            # The bytes have changed since they were checked.
            self._drop()
            return wire.BAD_RECORD
        except BaseException:
            # Such as a KeyboardInterrupt: the windows have ended then, the batch has not.
            self._drop()
            raise
        self._windows = None
        self._next += 1
        return wire.OK

    def _drop(self):
        """Undo what was done of a batch since it was handed out last, and give up its windows."""
        self._windows = None
        self._undo()

    def _compressed(self, table: BatchTable, data, origin: int64_t) -> cython.int:
        """Walk over the compressed batch at `_next` of a table, which was begun."""
        info: cython.pointer(wire.BatchInfo) = cython.address(table._rows[self._next])
        status: cython.int = wire.OK
        content: Py_buffer
        start: Bytes
        header = tuple.__new__(BatchHeader, wire.header_fields(info))
        try:
            section = self._open_section(
                data,
                header._replace(position=header.position - origin) if origin else header,
                self._decompressor,
                self._most_records,
            )
            if hasattr(section, "windows"):
                # A `LargeSection`.
                if not self._takes_windows:
                    self._undo()
                    return wire.BAD_RECORD
                section.check()
                self._windows, self._table, self._inner_base = section.windows(), table, section.inner_base
                return self._large(info)
        except FormatError:
            self._undo()
            return wire.BAD_RECORD
        PyObject_GetBuffer(section, cython.address(content), PyBUF_SIMPLE)
        try:
            start = cython.cast(Bytes, content.buf)
            with cython.nogil:
                status = self._content(info, start, start + content.len)
                if status == wire.OK:
                    if info.magic == 2:
                        status = self._records(info, start, start + content.len, 0, info.records_count)
                    else:
                        status = self._message_set(info, start, start + content.len)
                if status != wire.OK and status != LEFT_OUT:
                    self._undo()
        finally:
            PyBuffer_Release(cython.address(content))
        if status == wire.OK or status == LEFT_OUT:
            self._next += 1
            return wire.OK
        return status

    def _walk(self, table: BatchTable, first: cython.Py_ssize_t, data, origin: int64_t) -> cython.int:
        """Walk over batches of a table from one on; `_next` is then the number of the batch to go on with.

        Returns:
            `OK`: the table is done. `BAD_RECORD`: this batch is left to the caller. Else what `_begin` stopped with.

        Raises:
            ValueError: A batch is not within the bytes.
            MemoryError: There is none left.
        """
        status: cython.int = wire.OK
        view: cython.const[cython.uchar][::1] = data
        base: Bytes = cython.NULL
        end: int64_t = view.shape[0]
        if first < 0:
            raise IndexError(first)
        if end > 0:
            base = cython.cast(Bytes, cython.address(view[0]))
        if self._windows is not None and (self._table is not table or self._next != first):
            self._windows = None
        self._next = first
        while True:
            if self._windows is not None:
                # What was done of the batch before was handed out.
                self._keep()
                status = self._large(cython.address(table._rows[first]))
                if status == wire.OK:
                    continue
            else:
                with cython.nogil:
                    status = self._run(table, base, origin, end)
                if status == wire.COMPRESSED:
                    status = self._compressed(table, data, origin)
                    if status == wire.OK:
                        continue
            if status == wire.BAD_ORDER:
                raise ValueError(f"batch {self._next} is not within {end} bytes from position {origin} on")
            if status == wire.NO_MEMORY:
                raise MemoryError
            return status
