"""Values of `share.auto.offset.reset`."""

from __future__ import annotations

import pytest

from odradek.coordination.shares.offset_reset import parse_offset_reset


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("earliest", ("earliest", 0)),
        ("latest", ("latest", 0)),
        ("by_duration:PT1H30M", ("by_duration", 5_400_000)),
        ("by_duration:P2DT0.5S", ("by_duration", 172_800_500)),
        ("by_duration:pt-1s", None),
        ("by_duration:-PT-1S", ("by_duration", 1_000)),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:P1DT", None),
        ("by_duration:", None),
        ("by_duration", None),
        ("none", None),
        ("Latest", None),
        ("by_duration:P" + "9" * 100 + "D", None),
        ("by_duration:P9999999999999999999D", None),
    ],
)
def test_a_value_is_read_as_java_reads_it(text: str, wanted: tuple[str, int] | None) -> None:
    if wanted is None:
        with pytest.raises(ValueError, match=r"."):
            parse_offset_reset(text)
    else:
        assert parse_offset_reset(text) == wanted
