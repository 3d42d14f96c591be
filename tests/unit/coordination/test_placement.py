"""Which partition holds a key's state; the numbers are those of Apache Kafka."""

from __future__ import annotations

import pytest

from odradek.coordination.placement import partition_for


@pytest.mark.parametrize(
    ("name", "of_50", "of_4"),
    [("g-classic", 18, 0), ("g-new", 18, 2), ("my-group", 12, 2), ("tx-A", 36, 0), ("", 0, 0), ("🦉", 11, 3)],
)
def test_partition_of_a_group(name: str, of_50: int, of_4: int) -> None:
    assert (partition_for(name, 50), partition_for(name, 4)) == (of_50, of_4)


def test_the_one_hash_without_a_positive_counterpart() -> None:
    # "polygenelubricants" is the well-known string whose Java hash is -2^31.
    assert partition_for("polygenelubricants", 50) == 0
