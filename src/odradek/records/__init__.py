"""Kafka's record formats: bytes to record batches and back, without any input or output.

`header` and `scan` walk over batches, `batch` and `message_set` read their records, `builder` writes them. `control`
reads the records that the broker itself writes, and `compression` has the codecs. `kernels` holds the compiled loops,
and `arrow_layout` the columns that they return.
"""

from odradek.records.batch import read_records
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.records.scan import BatchScan, scan_batches

__all__ = ["BatchHeader", "BatchScan", "Record", "read_records", "scan_batches"]
