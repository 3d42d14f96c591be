"""What is known of the APIs before their modules are imported, and the modules."""

from __future__ import annotations

from pathlib import Path

import odradek.broker.api
from odradek.broker.api import ADVERTISED, APIS

PRODUCE = 0
REFUSED = range(3)
"""Versions of Produce that are advertised for old clients, and refused (KIP-896)."""


def test_every_api_is_advertised_as_it_is_registered() -> None:
    for key, (module, advertised) in ADVERTISED.items():
        found = APIS[key]
        assert found is not None
        assert (found.key, found.handle.__module__) == (key, f"odradek.broker.api.{module}")
        taken = {*advertised} - ({*REFUSED} if key == PRODUCE else set())
        assert {*found.versions} == taken, found.name


def test_every_module_is_advertised() -> None:
    folder = Path(odradek.broker.api.__file__).parent
    assert sorted(path.stem for path in folder.glob("k*.py")) == [module for module, _ in ADVERTISED.values()]


def test_an_unknown_number_is_no_api() -> None:
    assert APIS[-1] is None
    assert -1 not in APIS
