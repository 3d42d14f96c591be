"""The checks of conformance, on our broker; tests/interop runs them on Apache Kafka."""

from __future__ import annotations

import pytest

from odradek.testing import Broker
from odradek.testing.conformance.suite import Check, Result, checks, run
from peers.conformance import documented_differences


def outcomes(broker: Broker, chosen: list[Check]) -> list[Result]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return list(run(host, int(port), chosen))


def areas() -> list[str]:
    return sorted({one.name.partition(".")[0] for one in checks()})


@pytest.mark.sampled
@pytest.mark.parametrize("area", areas())
def test_our_broker_passes_all_but_what_the_documentation_names(area: str) -> None:
    with Broker() as broker:
        results = outcomes(broker, checks(f"{area}.*"))
    failed = {result.name: result.reason for result in results if result.outcome == "failed"}
    differences = documented_differences()
    assert {name: reason for name, reason in failed.items() if name not in differences} == {}
    assert differences & {result.name for result in results} <= set(failed), "it does not differ any more"


def test_there_are_checks_of_each_kind_and_each_says_what_it_is_about() -> None:
    found = checks()
    assert len(found) >= 200
    assert all(one.about.endswith(".") for one in found)
