"""Every test by both libraries of zstd."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

from odradek.records.compression import zstd


@pytest.fixture(autouse=True, params=["package", "standard"])
def zstd_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    library = import_module(f"odradek.records.compression.zstd_{request.param}")
    monkeypatch.setattr(zstd, "library", library)
    # No encoder of the other one.
    monkeypatch.setattr(zstd._encoders, "level", None)
    return library
