"""The tests in this folder run real programs, so they have the marker `interop`. `peers.fixtures` has the fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from odradek.storage.config_def import ConfigValue

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """Our broker in this process, one for a module, with the settings of its `CONFIG`."""
    config: dict[str, ConfigValue] = {"listeners": "PLAINTEXT://127.0.0.1:0", **getattr(request.module, "CONFIG", {})}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", config, sync="off") as running:
        yield running


@pytest.fixture(scope="module")
def servers(running: BrokerThread) -> str:
    """Where clients connect to `running`."""
    endpoint = running.endpoint()
    return f"{endpoint.host}:{endpoint.port}"
