from __future__ import annotations

import pytest

from odradek.cli.options import Timestamp
from odradek.errors import OptionError
from odradek.records.timestamps import timestamp_ms


def test_a_time_without_a_zone_is_utc_on_the_command_line_only() -> None:
    assert Timestamp().convert("2026-11-01T12:00:00", None, None) == timestamp_ms("2026-11-01T12:00:00Z")
    with pytest.raises(OptionError, match="no time zone"):
        timestamp_ms("2026-11-01T12:00:00")
