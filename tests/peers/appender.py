"""A program that appends to a log directory until it is killed: `python -m peers.appender FOLDER TOPIC SEED`.

What a record holds follows from its offset (`value_of`), so whoever looks at the log afterwards knows whether it is
what was appended. A line on standard output, `appended FIRST END`, acknowledges the offsets of that range; a line
`durable FIRST END` says that they are on the disk too.
"""

from __future__ import annotations

import random
import sys

from odradek.records import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory


def value_of(offset: int) -> bytes:
    """Returns the value of the record at an offset."""
    return b"%d %s" % (offset, b"x" * (offset * 7 % 97))


def main(folder: str, topic: str, seed: int) -> None:
    """Appends for ever."""
    rng = random.Random(seed)
    with WritableLogDirectory(folder) as logs:
        log = logs[topic, 0]
        print("open", log.log_end_offset, flush=True)
        while True:
            first = log.log_end_offset
            count = rng.choice((1, 1, 2, 10, 50))
            is_durable = rng.random() < 0.02
            records = [Record(b"%d" % (offset % 50), value_of(offset)) for offset in range(first, first + count)]
            log.append(records, durable=is_durable)
            print("durable" if is_durable else "appended", first, first + count, flush=True)
            if rng.random() < 0.02:
                logs.maintain()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
