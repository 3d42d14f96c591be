"""Appends a few sentences a second to a topic of a log directory: something for a pipeline to follow.

python examples/feed.py demo/log-dir v2-none [--seconds 60]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time

import odradek

WORDS = [
    "the",
    "log",
    "is",
    "an",
    "append",
    "only",
    "totally",
    "ordered",
    "sequence",
    "of",
    "records",
    "ordered",
    "by",
    "time",
    "and",
    "nothing",
    "is",
    "done",
    "twice",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_dir")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    # SIGTERM closes the log, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    end = time.monotonic() + arguments.seconds
    with odradek.open(arguments.log_dir) as logs:
        log = logs[arguments.topic, 0]
        while time.monotonic() < end:
            now = int(time.time() * 1000)
            sentences = [" ".join(random.choices(WORDS, k=6)) for _ in range(random.randint(1, 20))]
            log.append([odradek.Record(value=sentence.encode(), timestamp=now) for sentence in sentences])
            time.sleep(0.3)


if __name__ == "__main__":
    main()
