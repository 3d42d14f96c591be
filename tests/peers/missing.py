"""A test that misses a program is skipped, and says which one. In the gate it fails: that is not smaller than it seems.

`pytest.mark.needs("kcat")` names the programs of a test that do not say it themselves (`PeerMissingError`).
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from peers.jars import PeerMissingError, require

IS_GATE = "ODRADEK_GATE" in os.environ
"""`.ci/run` sets it."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the programs before anything else is made ready."""
    for marker in item.iter_markers("needs"):
        require(*marker.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip of a program that is missing."""
    if call.excinfo is not None and isinstance(call.excinfo.value, PeerMissingError) and not IS_GATE:
        why = str(call.excinfo.value)
        call.excinfo = pytest.CallInfo.from_call(lambda: pytest.skip(why), call.when).excinfo
    return (yield)
