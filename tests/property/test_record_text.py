"""Arrow rows become the lines that records become, whatever they hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.columnar.record_schema import SCHEMA
from odradek.inspection.record_json import LineWriter
from odradek.records import Record
from odradek.storage.names import TopicPartition
from odradek.transfer import record_text
from odradek.transfer.record_text import RowLines

BYTES = st.binary(max_size=6) | st.text(max_size=6).map(str.encode) | st.just(b'base64:"')
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "offset": st.integers(0, 1 << 62),
            "timestamp": st.none() | st.integers(0, 1 << 40),
            "timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime", None]),
            "key": st.none() | BYTES,
            "value": st.none() | BYTES,
            "headers": st.lists(st.tuples(st.text(max_size=3), st.none() | BYTES), max_size=2),
        }
    ),
    max_size=5,
)


def _batch(rows: list[dict[str, Any]], topic: str) -> pa.RecordBatch:
    columns = {name: [row.get(name) for row in rows] for name in SCHEMA.names}
    columns |= {"topic": [topic] * len(rows), "partition": [3] * len(rows)}
    columns["headers"] = [[{"key": name, "value": value} for name, value in row["headers"]] for row in rows]
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@given(rows=ROWS, form=st.sampled_from(["jsonl", "csv"]), first=st.integers(0, 3))
def test_rows_are_written_as_records_are(rows: list[dict[str, Any]], form: str, first: int) -> None:
    lines = RowLines(form)
    expected = b""
    written = b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_text, "_BLOCK_BYTES", 64)
        # The rows of two partitions, and of a part of a record batch.
        for topic in ("events", "other"):
            batch = _batch(rows, topic).slice(first)
            written += b"".join(bytes(memoryview(block)) for block in lines.lines(batch))
            write = LineWriter(form, TopicPartition(topic, 3))
            expected += b"".join(write(Record(**row)) for row in rows[first:])
    assert written == expected
