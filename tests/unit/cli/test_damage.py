"""What the commands make of each corruption: the table of docs/damage.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from flips import damage_table

ROWS = {row[0].strip("`"): row for row in damage_table.rows()}


def test_every_corruption_has_a_row() -> None:
    assert list(ROWS) == damage_table.vectors()


@pytest.mark.sampled
@pytest.mark.parametrize("name", damage_table.vectors())
def test_the_commands_say_what_the_table_says(name: str, tmp_path: Path) -> None:
    assert list(damage_table.ours(name, tmp_path)) == ROWS[name][1:-1]
