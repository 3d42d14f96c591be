"""Records are refused without being made into objects exactly as they are refused when they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.errors import FormatError
from odradek.inspection.batches import RecordCheck
from odradek.records import BatchHeader, Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.testing.message_builder import build_message_set

CONTENTS = st.none() | st.binary(max_size=6)
RECORDS = st.lists(
    st.builds(Record, CONTENTS, CONTENTS, st.lists(st.tuples(st.text(max_size=3), CONTENTS), max_size=2)),
    min_size=1,
    max_size=4,
)


def _refusal(data: bytes, header: BatchHeader) -> str | None:
    try:
        read_records(data, header)
    except FormatError as error:
        return str(error)
    return None


@given(RECORDS, st.sampled_from([2, 2, 2, 1]), st.sampled_from([0, 0, 1]), st.integers(0, 1 << 16), st.integers(0, 255))
def test_what_is_refused(records: list[Record], magic: int, codec: int, position: int, byte: int) -> None:
    if magic == 2:
        whole = build_batch(records, codec=codec)
    else:
        whole = build_message_set([Record(r.key, r.value) for r in records], magic=magic, codec=codec)
    data = bytearray(whole)
    data[position % len(data)] = byte
    check = RecordCheck()
    # No checksum is looked at, so that the records of a batch are what is damaged.
    for header in scan_batches(data, check_crc=False):
        refusal: str | None = None
        try:
            check.batch(data, header)
        except FormatError as error:
            refusal = str(error)
        assert refusal == _refusal(bytes(data), header)
