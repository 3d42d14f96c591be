"""Logs with several things wrong at once: whoever looks at them says the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import odradek
from odradek.errors import OdradekError
from odradek.inspection import salvage, verify
from odradek.inspection.explaining.explanation import explain
from odradek.inspection.finding import FindingKind
from peers.mixtures import Mixture, mixture_of, rows, value_of, write

Row = tuple[int | None, bytes | None]


@pytest.fixture(params=range(4))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Mixture]]:
    rng = random.Random(request.param)
    mixtures = [mixture_of(f"t{number}", rng) for number in range(30)]
    write(tmp_path / "data", mixtures)
    return tmp_path / "data", mixtures


def kept(mixture: Mixture) -> list[Row]:
    """What is to be had of a log, each record once."""
    return [(offset, value_of(offset)) for offset in sorted(mixture.sound) if offset >= (mixture.log_start_offset or 0)]


@pytest.mark.slow
def test_salvage_keeps_each_record_once(made: tuple[Path, list[Mixture]], tmp_path: Path) -> None:
    folder, mixtures = made
    report = salvage(folder, tmp_path / "salvaged")
    with odradek.open(tmp_path / "salvaged", "r") as logs:
        for mixture in mixtures:
            assert list(rows(logs[mixture.topic, 0])) == kept(mixture), (mixture.topic, mixture.done)
    # Nothing of it is lost, so the rest of what is wrong is what salvage says that brokers make of it.
    found = [one for one in verify(tmp_path / "salvaged") if one.kind is not FindingKind.GAP]
    odd = [one for one in mixtures if one.is_foreign or (one.log_start_offset or 0) > one.end]
    assert len(found) == len(report.unserved) >= len(odd), found


def outcome(log: odradek.Log, offset: int) -> Row | str:
    try:
        record = next(iter(log.read(offset)), None)
    except OdradekError as error:
        return type(error).__name__
    return "none" if record is None else (record.offset, record.value)


@pytest.mark.slow
def test_a_reader_and_explain_agree(made: tuple[Path, list[Mixture]]) -> None:
    folder, mixtures = made
    with odradek.open(folder, "r") as logs:
        for mixture in mixtures:
            log = logs[mixture.topic, 0]
            for offset in range(log.log_start_offset, mixture.end + 2):
                found = outcome(log, offset)
                said = explain(folder / f"{mixture.topic}-0", offset).read_uncommitted
                about = (mixture.topic, mixture.done, offset, found, said.reason)
                assert said.is_given == (found == (offset, value_of(offset))), about


@pytest.mark.slow
def test_all_readers_agree(made: tuple[Path, list[Mixture]]) -> None:
    folder, mixtures = made
    with odradek.open(folder, "r") as logs:
        for mixture in mixtures:
            found: list[list[Row | str]] = [[], []]
            try:
                for row in logs[mixture.topic, 0].read():
                    found[0].append((row.offset, row.value))
            except OdradekError as error:
                found[0].append(type(error).__name__)
            try:
                for table in odradek.scan(folder, mixture.topic):
                    found[1] += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
            except OdradekError as error:
                found[1].append(type(error).__name__)
            assert found[0] == found[1], (mixture.topic, mixture.done)
