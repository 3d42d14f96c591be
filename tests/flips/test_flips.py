"""Whatever is done to one file of a folder, no answer is silently wrong.

A damage that fails is named as `--damage` takes it, which asks it alone, and goes into `FOUND_BEFORE` once it is
understood.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice, zip_longest
from pathlib import Path

import pytest

from flips.answers import VERDICTS, Examination
from flips.damage import Damage, damages
from flips.folders import NAMES, STATES, Folder, make
from peers.kafka_fixture import KafkaFixture

FOUND_BEFORE: list[str] = [
    # A transaction index that is short, or says something else, was believed: aborted records were given.
    "bootstrap,clean,transactions-0/00000000000000000000.txnindex,emptied,0",
    "bootstrap,clean,transactions-0/00000000000000000000.txnindex,halved,0",
    "kraft,crashed,transactions-0/00000000000000000000.txnindex,cut,0",
    "bootstrap,clean,transactions-0/00000000000000000000.txnindex,removed,0",
    "bootstrap,clean,transactions-0/00000000000000000000.txnindex,bit,213",
    # The log start was guessed from the leaders' terms.
    "bootstrap,clean,plain-0/leader-epoch-checkpoint,bit,49",
    # Deleted records were there again, without a word.
    "bootstrap,crashed,log-start-offset-checkpoint,removed,0",
    "bootstrap,crashed,log-start-offset-checkpoint,emptied,0",
    # A log start offset beyond the end was believed.
    "bootstrap,clean,log-start-offset-checkpoint,bit,123",
    # Of a message of v0 the offset, which no checksum covers, made the log end a thousand million records later.
    "bootstrap,clean,v0-0/00000000000000000009.log,bit,-39",
    # Without a word there were no topics, and the next change would have cut the metadata log.
    "kraft,clean,__cluster_metadata-0/00000000000000000000.log,halved,0",
]
"""Damage that was passed over in silence, as the folders were read then."""

FOLDERS = [(name, state) for name in NAMES for state in STATES]


@pytest.fixture
def folders(
    memory_folder: Path, fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture
) -> dict[tuple[str, str], Folder]:
    made = [folder for name in NAMES for folder in make(name, memory_folder / "made", fixture_4_3_1, fixture_2_8_2)]
    return {(folder.name, folder.state): folder for folder in made}


def sample(folder: Folder, count: int, seed: int) -> list[Damage]:
    """Return some of what can be done to a folder, of each kind of file in turn."""
    rng, kinds = random.Random(seed), defaultdict(list)
    for damage in damages(folder):
        kinds[damage.kind].append(damage)
    turns = [rng.sample(found, len(found)) for found in kinds.values()]
    rng.shuffle(turns)
    in_turn = (damage for round_ in zip_longest(*turns) for damage in round_ if damage is not None)
    return list(islice(in_turn, count))


def judge(folder: Folder, path: Path, chosen: Iterable[Damage]) -> None:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, str, str], str] = {}
    with Examination(folder, path / "judged") as examination:
        for damage in chosen:
            for mode, verdict in examination.judge(damage).items():
                counts[damage.kind, mode][verdict.name] += 1
                if verdict.is_bad:
                    example = f"--damage {damage}\n        {verdict.reason}"
                    examples.setdefault((damage.kind, mode, verdict.name), example)
    table = table_of(counts)
    print(f"{folder.name}, {folder.state}\n{table}")
    bad = [f"{kind}, mode {mode}, {name}: {example}" for (kind, mode, name), example in examples.items()]
    assert not bad, "\n".join([table, *bad])


def table_of(counts: dict[tuple[str, str], Counter[str]]) -> str:
    """Return how often who dealt with what in which way."""
    width = max(len(kind) for kind, _ in counts) + 6
    lines = ["".join([f"{'damage, mode':{width}}", *(f"{name:>9}" for name in VERDICTS)])]
    for (kind, mode), found in sorted(counts.items()):
        lines.append("".join([f"{f'{kind}, {mode}':{width}}", *(f"{found[name] or '':>9}" for name in VERDICTS)]))
    total = sum(counts.values(), Counter[str]())
    lines.append("".join([f"{'all':{width}}", *(f"{total[name]:>9}" for name in VERDICTS)]))
    return "\n".join(lines)


@pytest.mark.costly
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("name", "state"), FOLDERS)
@pytest.mark.parametrize(
    "count", [pytest.param(53, marks=pytest.mark.slow), pytest.param(None, marks=pytest.mark.laboratory)]
)
def test_damage(
    folders: dict[tuple[str, str], Folder], memory_folder: Path, name: str, state: str, count: int | None
) -> None:
    folder = folders[name, state]
    judge(folder, memory_folder, damages(folder) if count is None else sample(folder, count, seed=2))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "found" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--damage")
        metafunc.parametrize("found", [asked] if asked else FOUND_BEFORE)


@pytest.mark.sampled
def test_found_before(folders: dict[tuple[str, str], Folder], memory_folder: Path, found: str) -> None:
    damage = Damage.parse(found)
    judge(folders[damage.folder, damage.state], memory_folder, [damage])
