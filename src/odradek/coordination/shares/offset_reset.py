"""Where a share group begins in a partition that it has no state of: `share.auto.offset.reset`.

    earliest    latest    by_duration:PT1H30M      a duration as Java reads it (ISO-8601)

Source in Kafka: `ShareGroupAutoOffsetResetStrategy`, `AutoOffsetResetStrategy`; in Java: `Duration.parse`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration"
_NUMBER = r"([-+]?[0-9]{1,19})"
_DURATION = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(?:T(?=[-+0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class OffsetReset(NamedTuple):
    """Where a group begins.

    Attributes:
        kind: `earliest`, `latest` or `by_duration`.
        duration_ms: With `by_duration`, how long ago the first record was written at most.
    """

    kind: str
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Return what a value of the setting means.

    Raises:
        ValueError: It means nothing.
    """
    if text in (EARLIEST, LATEST):
        return OffsetReset(text)
    kind, separator, duration = text.partition(":")
    match = _DURATION.fullmatch(duration)
    if kind != BY_DURATION or not separator or match is None or not any(match.groups()[1:5]):
        raise ValueError("is not earliest, latest or by_duration:PnDTnHnMn.nS")
    sign, *numbers, fraction = match.groups()
    total = sum(int(number or 0) * unit for number, unit in zip(numbers, _MS, strict=True))
    part = int(((fraction or "") + "000")[:3])
    total += -part if (numbers[-1] or "").startswith("-") else part
    total = -total if sign == "-" else total
    if not 0 <= total < 1 << 63:
        raise ValueError("has a duration that is negative or too long")
    return OffsetReset(BY_DURATION, total)
