"""Searches the records of batches for literals, and gathers the texts of those that a pattern is to be tried on.

    | batch .............. | batch ..........X... |     the bytes are searched as they stand, without the GIL
                             | record | record |        where a literal stands, the records are walked over
                                        ^ key, value and headers are searched; the record is found

A record that was found is known by its mark: the number of its batch in the table, and its own in the batch.

    mark    | number of the batch 31 | number of the record 32 |
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint64_t
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.blocks import Block, make_block, odradek_free, odradek_grow, take_memory
from cython.cimports.odradek.records.kernels.literals import Literal, find_literal
from cython.cimports.odradek.records.kernels.record import RawHeader, RawRecord, read_header_pair
from cython.cimports.odradek.records.kernels.selection import Selection
from cython.cimports.odradek.records.kernels.text import utf8_size
from cython.cimports.odradek.records.kernels.walk import LEFT_OUT, BatchWalk, Bytes
from cython.cimports.odradek.records.kernels.wire import FULL, NO_MEMORY, OK, BatchInfo

# How common a byte is in keys and values, from rare to common: text, JSON, numbers.
_COMMON = b"~`^|\\$%&#@!?;<>*+=()[]/'\tQZXJKVYWGHBUOPFDLMNCRTSIEA\n\rqzjx{}k_wyvb-987654321pfgumchdlsnr.o,iat:\"e0 "

# How many bytes of texts are gathered before they are handed out.
_MOST_BYTES = cython.declare(int64_t, 2 << 20)

Growing = cython.struct(data=cython.pointer(uint8_t), used=int64_t, capacity=int64_t)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _reserve(growing: cython.pointer(Growing), more: int64_t) -> cython.bint:
    """Make room for `more` bytes; False where there is no memory."""
    wanted: int64_t = growing.used + more
    grown: cython.pointer(uint8_t)
    if wanted <= growing.capacity:
        return True
    if wanted < 2 * growing.capacity:
        wanted = 2 * growing.capacity
    if wanted < 4096:
        wanted = 4096
    grown = odradek_grow(growing.data, growing.capacity, cython.address(wanted))
    if grown == cython.NULL:
        return False
    growing.data = grown
    growing.capacity = wanted
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _push(growing: cython.pointer(Growing), number: int64_t) -> cython.bint:
    if not _reserve(growing, 8):
        return False
    cython.cast(cython.pointer(int64_t), growing.data + growing.used)[0] = number
    growing.used += 8
    return True


@cython.cfunc
def _renew(growing: cython.pointer(Growing), size: int64_t):
    """Begin with memory that was used before, where there is some."""
    if growing.data == cython.NULL:
        growing.data = take_memory(size, cython.address(growing.capacity))


@cython.cfunc
def _block(growing: cython.pointer(Growing)) -> Block:
    """Hand out what grew, and start again."""
    block: Block = make_block(growing.data, growing.used, growing.capacity)
    growing.data = cython.NULL
    growing.used = 0
    growing.capacity = 0
    return block


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_plain(p: Bytes, size: int64_t, ascii_only: cython.bint) -> cython.bint:
    """Whether bytes are ASCII, or if that is enough, UTF-8."""
    end: Bytes = p + size
    count: cython.int
    word: uint64_t
    ones: uint64_t = 0x0101010101010101
    while p < end:
        while end - p >= 8:
            memcpy(cython.address(word), p, 8)
            if word & (ones * 0x80):
                break
            p += 8
        while p < end and p[0] < 0x80:
            p += 1
        if p < end:
            if ascii_only:
                return False
            count = utf8_size(p, end - p)
            if count < 0:
                return False
            p += count
    return True


@cython.final
@cython.cclass
class Texts:
    """The texts of records: their keys, values, and the names and values of headers, as far as they are searched.

    Attributes:
        ends: Where each text ends, after a zero: int64.
        data: Their bytes.
    """

    ends = cython.declare(Block, visibility="readonly")
    data = cython.declare(Block, visibility="readonly")
    _firsts: Block
    _plain: Block

    def __len__(self):
        """Return of how many records they are."""
        return self._plain.size

    @property
    def count(self):
        """How many texts there are."""
        return self.ends.size // 8 - 1

    def of(self, number: cython.Py_ssize_t):
        """Return the texts of a record; a byte that is not UTF-8 is the surrogate that stands for it."""
        index: int64_t
        firsts: cython.pointer(int64_t) = cython.cast(cython.pointer(int64_t), self._firsts.data)
        ends: cython.pointer(int64_t) = cython.cast(cython.pointer(int64_t), self.ends.data)
        texts: list = []
        if number < 0 or number >= self._plain.size:
            raise IndexError(number)
        for index in range(firsts[number], firsts[number + 1]):
            texts.append(
                PyUnicode_DecodeUTF8(
                    cython.cast(cython.pointer(cython.const[cython.char]), self.data.data + ends[index]),
                    ends[index + 1] - ends[index],
                    b"surrogateescape",
                )
            )
        return texts

    def verdicts(self, bits: cython.const[cython.uchar][::1], offset: int64_t):
        """Return what a match of each text says of the records.

        Args:
            bits: A bit for each text, as Arrow has them.
            offset: The number of the first bit.

        Returns:
            A byte for each record: 1 if a text of it matches, 0 if none does, 2 if one of them is not plain.
        """
        verdicts = bytearray(self._plain.size)
        written: cython.uchar[::1] = verdicts
        firsts: cython.pointer(int64_t) = cython.cast(cython.pointer(int64_t), self._firsts.data)
        record: int64_t
        index: int64_t
        if offset < 0 or (offset + self.ends.size // 8 - 1 + 7) // 8 > bits.shape[0]:
            raise ValueError(f"{bits.shape[0]} bytes of bits are too few")
        for record in range(self._plain.size):
            if not self._plain.data[record]:
                written[record] = 2
                continue
            for index in range(offset + firsts[record], offset + firsts[record + 1]):
                if (bits[index >> 3] >> (index & 7)) & 1:
                    written[record] = 1
                    break
        return verdicts


@cython.final
@cython.cclass
class RecordSearch(BatchWalk):
    """Finds records that have any of some literals; all of them where there are none. One thread at a time.

    Args:
        literals: Bytes, not empty, and whether the case of their ASCII letters is ignored.
        in_key: Whether keys are searched.
        in_value: Whether values are searched.
        in_headers: Whether the names and the values of headers are searched.
        inverts: Whether the records are found that have none of the literals.
        gathers: Whether the texts of what is found are gathered.
        ascii_only: Whether a text is plain if it is ASCII; else if it is UTF-8.
        start_offset: The first offset wanted.
        end_offset: The offset after the last one wanted.
        start_timestamp: The first timestamp wanted, in ms.
        end_timestamp: The timestamp after the last one wanted, in ms.
        aborted: Transactions to leave out: producer id, first offset, offset of the abort marker.
    """

    _literals: cython.pointer(Literal)
    _found: cython.pointer(Bytes)
    _count: cython.Py_ssize_t
    _kept: list
    _in_key: cython.bint
    _in_value: cython.bint
    _in_headers: cython.bint
    _inverts: cython.bint
    _gathers: cython.bint
    _ascii_only: cython.bint
    _hit: Bytes
    _hit_size: cython.Py_ssize_t
    _stop: Bytes
    _marks: Growing
    _firsts: Growing
    _ends: Growing
    _plain_ones: Growing
    _texts: Growing
    _before: int64_t[5]

    def __cinit__(self):
        self._literals = cython.NULL
        self._found = cython.NULL

    def __dealloc__(self):
        free(self._literals)
        free(self._found)
        odradek_free(self._marks.data, self._marks.capacity)
        odradek_free(self._firsts.data, self._firsts.capacity)
        odradek_free(self._ends.data, self._ends.capacity)
        odradek_free(self._plain_ones.data, self._plain_ones.capacity)
        odradek_free(self._texts.data, self._texts.capacity)

    def __init__(
        self,
        open_section,
        literals,
        in_key,
        in_value,
        in_headers,
        inverts=False,
        gathers=False,
        ascii_only=False,
        start_offset=0,
        end_offset=(1 << 63) - 1,
        start_timestamp=-(1 << 63),
        end_timestamp=(1 << 63) - 1,
        aborted=(),
    ):
        self._open_section = open_section
        given = list(literals)
        if not all(literal for literal, _ in given) or self._literals != cython.NULL:
            raise ValueError("a search takes literals, none of them empty, once")
        self._selection = Selection(start_offset, end_offset, start_timestamp, end_timestamp, aborted, False)
        self._inverts, self._gathers, self._ascii_only = inverts, gathers, ascii_only
        self._count = len(given)
        self._kept = []
        self._in_key, self._in_value, self._in_headers = in_key, in_value, in_headers
        self._literals = cython.cast(cython.pointer(Literal), malloc((self._count + 1) * cython.sizeof(Literal)))
        self._found = cython.cast(cython.pointer(Bytes), malloc((self._count + 1) * cython.sizeof(Bytes)))
        if self._literals == cython.NULL or self._found == cython.NULL:
            raise MemoryError
        for number, (literal, ignores_case) in enumerate(given):
            self._set(cython.address(self._literals[number]), bytes(literal), bool(ignores_case))

    @cython.cfunc
    def _set(self, literal: cython.pointer(Literal), data: bytes, ignores_case: cython.bint):
        bits = bytes([0x20 if ignores_case and bytes([byte]).isalpha() else 0 for byte in data])
        folded = bytes([byte | bit for byte, bit in zip(data, bits, strict=True)])
        self._kept += [bits, folded]
        order = sorted(range(len(folded)), key=lambda place: _COMMON.find(folded[place]))
        literal.folded = cython.cast(cython.pointer(cython.const[uint8_t]), PyBytes_AS_STRING(folded))
        literal.bits = cython.cast(cython.pointer(cython.const[uint8_t]), PyBytes_AS_STRING(bits))
        literal.size = len(folded)
        literal.first = order[0]
        literal.second = order[min(1, len(order) - 1)]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has(self, p: cython.pointer(cython.const[uint8_t]), size: int32_t) -> cython.bint:
        """Whether one of the literals stands in a field; a size below 0 is that of null."""
        index: cython.Py_ssize_t
        if size > 0:
            for index in range(self._count):
                if find_literal(p, p + size, cython.address(self._literals[index])) != cython.NULL:
                    return True
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _look(self, p: Bytes, afresh: cython.bint) -> cython.void:
        """Find where a literal stands first from `p` on: at `_hit`. What was found before is looked up."""
        index: cython.Py_ssize_t
        found: Bytes
        self._hit = self._stop
        for index in range(self._count):
            found = self._found[index]
            if afresh or found < p:
                found = find_literal(p, self._stop, cython.address(self._literals[index]))
                if found == cython.NULL:
                    found = self._stop
                self._found[index] = found
            if found < self._hit:
                self._hit = found
                self._hit_size = self._literals[index].size

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_within(self, p: Bytes, size: int32_t) -> cython.bint:
        """Whether the literal that was found stands in a field."""
        return size > 0 and p <= self._hit and self._hit + self._hit_size <= p + size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_literal(self, record: cython.pointer(RawRecord)) -> cython.bint:
        """Whether a record has a literal in a field that is searched."""
        header: RawHeader
        p: Bytes = record.headers
        if self._hit >= record.end:
            return False
        if self._in_value and self._is_within(record.value, record.value_size):
            return True
        if self._in_key and self._is_within(record.key, record.key_size):
            return True
        # What was found may stand in another field, or across two.
        if self._in_key and self._has(record.key, record.key_size):
            return True
        if self._in_value and self._has(record.value, record.value_size):
            return True
        if self._in_headers:
            for _ in range(record.header_count):
                read_header_pair(cython.address(p), record.end, cython.address(header))
                if self._has(header.name, header.name_size) or self._has(header.value, header.value_size):
                    return True
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self, info: cython.pointer(BatchInfo)) -> cython.int:
        if self._texts.used >= _MOST_BYTES or self._marks.used >= _MOST_BYTES:
            return FULL
        if not self._selection.wants_batch(info):
            return LEFT_OUT
        self._keep()
        return OK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_full(self) -> cython.bint:
        # To write the lines of what is handed out, the batch is decompressed again, each time.
        return self._texts.used >= 8 * _MOST_BYTES or self._marks.used >= 8 * _MOST_BYTES

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(self) -> cython.void:
        self._before[0] = self._marks.used
        self._before[1] = self._firsts.used
        self._before[2] = self._ends.used
        self._before[3] = self._plain_ones.used
        self._before[4] = self._texts.used

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _undo(self) -> cython.void:
        self._marks.used = self._before[0]
        self._firsts.used = self._before[1]
        self._ends.used = self._before[2]
        self._plain_ones.used = self._before[3]
        self._texts.used = self._before[4]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _content(self, info: cython.pointer(BatchInfo), start: Bytes, stop: Bytes) -> cython.int:
        self._stop = stop
        self._look(start, True)
        return LEFT_OUT if self._hit == stop and self._count and not self._inverts else OK

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
        has: cython.bint
        status: cython.int = OK
        if self._count:
            has = self._has_literal(record)
            if has != self._inverts and self._selects(offset, timestamp):
                status = self._take(record, index)
            if self._hit < record.end:
                self._look(record.end, False)
        elif self._selects(offset, timestamp):
            status = self._take(record, index)
        return status

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take(self, record: cython.pointer(RawRecord), index: int64_t) -> cython.int:
        """Note that a record is found."""
        if not _push(cython.address(self._marks), (cython.cast(int64_t, self._next) << 32) | index):
            return NO_MEMORY
        return OK if not self._gathers or self._gather(record) else NO_MEMORY

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _gather(self, record: cython.pointer(RawRecord)) -> cython.bint:
        """Add the texts of a record."""
        header: RawHeader
        p: Bytes = record.headers
        plain: cython.bint = True
        if self._ends.used == 0 and not _push(cython.address(self._ends), 0):
            return False
        if not _push(cython.address(self._firsts), self._ends.used // 8 - 1):
            return False
        if self._in_value and not self._add(record.value, record.value_size, cython.address(plain)):
            return False
        if self._in_key and not self._add(record.key, record.key_size, cython.address(plain)):
            return False
        if self._in_headers:
            for _ in range(record.header_count):
                read_header_pair(cython.address(p), record.end, cython.address(header))
                if not self._add(header.name, header.name_size, cython.address(plain)):
                    return False
                if not self._add(header.value, header.value_size, cython.address(plain)):
                    return False
        if not _reserve(cython.address(self._plain_ones), 1):
            return False
        self._plain_ones.data[self._plain_ones.used] = plain
        self._plain_ones.used += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(self, p: Bytes, size: int32_t, plain: cython.pointer(cython.bint)) -> cython.bint:
        """Add a text, unless it is null, or has none of the literals, so that it cannot match."""
        if size < 0 or (self._count and not self._is_within(p, size) and not self._has(p, size)):
            return True
        if plain[0]:
            plain[0] = _is_plain(p, size, self._ascii_only)
        if not _reserve(cython.address(self._texts), size + 1):
            return False
        memcpy(self._texts.data + self._texts.used, p, size)
        self._texts.used += size
        return _push(cython.address(self._ends), self._texts.used)

    def search(self, table: BatchTable, first: cython.Py_ssize_t, data, origin: int64_t = 0):
        """Search batches, from one of a table on; control batches are left out.

        Args:
            table: The headers of consecutive batches, as `walk_batches` read them from the same bytes.
            first: The number of the first batch.
            data: The bytes.
            origin: The position that `data` starts at: that of the positions in the table.

        Returns:
            A status and the number of the batch to go on with, after a `take`. `OK`: the table is done. `FULL`: there
            is more. `BAD_RECORD`: the records of this batch cannot be read.
        """
        status: cython.int
        _renew(cython.address(self._marks), 1 << 16)
        if self._gathers:
            _renew(cython.address(self._firsts), 1 << 16)
            _renew(cython.address(self._ends), 1 << 16)
            _renew(cython.address(self._plain_ones), 1 << 14)
            _renew(cython.address(self._texts), _MOST_BYTES + (_MOST_BYTES >> 1))
        status = self._walk(table, first, data, origin)
        return (status, self._next)

    def take(self):
        """Hand out the marks of what was found, as a buffer of int64, and its texts; None if none were gathered."""
        texts: Texts = None
        if self._gathers and self._plain_ones.used:
            if not _push(cython.address(self._firsts), self._ends.used // 8 - 1):
                raise MemoryError
            texts = Texts.__new__(Texts)
            texts._firsts = _block(cython.address(self._firsts))
            texts.ends = _block(cython.address(self._ends))
            texts._plain = _block(cython.address(self._plain_ones))
            texts.data = _block(cython.address(self._texts))
        return (_block(cython.address(self._marks)), texts)


def chosen(marks: cython.const[cython.longlong][::1], verdicts: cython.const[cython.uchar][::1], inverts: cython.bint):
    """Return the marks whose verdict is 1, or if `inverts` those whose verdict is 0, as a buffer of int64."""
    growing: Growing
    index: cython.Py_ssize_t
    growing.data = cython.NULL
    growing.used = 0
    growing.capacity = 0
    if marks.shape[0] != verdicts.shape[0]:
        raise ValueError(f"{verdicts.shape[0]} verdicts on {marks.shape[0]} marks")
    for index in range(marks.shape[0]):
        if verdicts[index] == (not inverts) and not _push(cython.address(growing), marks[index]):
            odradek_free(growing.data, growing.capacity)
            raise MemoryError
    return _block(cython.address(growing))
