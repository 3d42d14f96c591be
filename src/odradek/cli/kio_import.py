"""Imports kio without hypothesis, for the commands whose programs use kio's classes.

kio describes its types to hypothesis where that is installed, which takes longer than a broker takes to start. Only
tests of kio's classes need it. Programs that import kio through Odradek, such as tests, get it as it is.
"""

from __future__ import annotations

import sys


def import_kio() -> None:
    """Import the module of kio that would import hypothesis, as if that were not installed."""
    if "hypothesis" in sys.modules:
        # A test runs the command, and uses hypothesis.
        return
    # None makes `import hypothesis` fail.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
