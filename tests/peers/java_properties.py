"""Properties files, as programs of Java read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def read_properties(text: str) -> dict[str, str]:
    """Reads the lines `name=value`; comments are left out."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Writes settings to a file, and returns it."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    path.write_text(text.replace("\\", "\\\\"), encoding="utf-8")
    return path
