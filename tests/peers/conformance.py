"""Which checks of conformance our broker does not pass, by the documentation."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "broker.md"


def documented_differences() -> set[str]:
    """Returns the checks that docs/broker.md says our broker does not pass."""
    return set(re.findall(r"^\| `(\w+\.[\w.]+)` \|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE))
