"""Faults planted into our broker: the checks of conformance that name the rule see each one, and pass without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.testing.conformance import target
from odradek.testing.conformance.means import Means
from odradek.testing.conformance.suite import Result, checks, run
from peers.mutants import MUTANTS, Edit, Mutant, plant
from peers.restarting_broker import RestartingBroker

_PATIENCE_S = 3.0


def outcomes(path: Path, pattern: str, until_restart: Edit | None, patience_s: float | None = None) -> list[Result]:
    chosen = checks(pattern)
    assert chosen, f"there is no check {pattern}"
    config = {"group.consumer.max.size": "20"}
    with pytest.MonkeyPatch.context() as patch, RestartingBroker(path, config) as broker:
        before_restart = pytest.MonkeyPatch()
        if until_restart is not None:
            plant(until_restart, before_restart)
        if patience_s is not None:
            patch.setattr(target, "_PATIENCE_S", patience_s)

        def restart() -> None:
            before_restart.undo()
            broker.restart()

        try:
            return list(run("127.0.0.1", broker.port, chosen, Means(broker.advance, restart)))
        finally:
            before_restart.undo()


def test_there_are_forty_mutants() -> None:
    assert len(MUTANTS) >= 40


def test_every_fault_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a change of the source would show only where each of them is planted, in the laboratory."""
    missing = []
    for mutant in MUTANTS:
        for edit in filter(None, (mutant.fault, mutant.until_restart)):
            with monkeypatch.context() as patch:
                try:
                    plant(edit, patch)
                except AssertionError as error:
                    missing.append(str(error))
    assert missing == []


@pytest.mark.slow
@pytest.mark.costly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.fault.where.rpartition(':')[2]}-{one.checks}")
def test_a_mutant_is_killed_by_the_checks_of_its_rule(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(mutant.fault, monkeypatch)
    found = outcomes(tmp_path / "data", mutant.checks, mutant.until_restart, _PATIENCE_S)
    assert "failed" in {one.outcome for one in found}, f"{mutant.checks} does not see it"


@pytest.mark.slow
@pytest.mark.parametrize("area", ["timers", "consumer_timers", "restarts"])
def test_what_time_and_restarts_bring(area: str, tmp_path: Path) -> None:
    found = outcomes(tmp_path / "data", f"{area}.*", None)
    assert {one.name: one.reason for one in found if one.outcome != "ok"} == {}


@pytest.mark.slow
def test_a_commit_that_was_only_decided_is_completed_after_a_restart(tmp_path: Path) -> None:
    (mutant,) = (one for one in MUTANTS if one.until_restart is not None)
    (found,) = outcomes(tmp_path / "data", mutant.checks, mutant.until_restart)
    assert (found.outcome, found.reason) == ("ok", "")
