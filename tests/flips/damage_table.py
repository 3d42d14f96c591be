"""The table of docs/damage.md: what each command, and Kafka's own tool, make of each corruption of `tests/vectors`.

    | ten sound records | the corruption | ten sound records |        a segment that begins at offset 30

`python tests/flips/damage_table.py` writes the table again, with Kafka's column if its jars are there.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from odradek.cli.app import main
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "damage.md"
CORRUPT = ROOT / "tests" / "vectors" / "corrupt"
HEAD = ("corruption", "what `verify` says", "`dump`", "`verify`", "`salvage`", "`stat`", "`explain`", "DumpLogSegments")
FIRST, WRONG, AFTER = 30, 40, 100
_SOUND = 10
_OFFSET = struct.Struct(">q")


# Only at the low offsets that it has are its inner offsets past it.
_NOT_MOVABLE = {"wrapper-inner-offsets-past-it"}


def vectors() -> list[str]:
    """Return the corruptions of batches and messages."""
    return [
        folder.name
        for folder in sorted(CORRUPT.iterdir())
        if folder.name not in _NOT_MOVABLE
        and (
            folder.name.startswith(("message-", "wrapper-"))
            or "Target: batches\n" in (folder / "README.md").read_text("utf-8")
        )
    ]


def _sound(base_offset: int) -> bytes:
    records = [Record(b"key", b"value", timestamp=1_600_000_000_000 + number) for number in range(_SOUND)]
    return build_batch(records, base_offset=base_offset)


def _placed(name: str, data: bytes) -> bytes:
    """Return a corruption with its offsets after those before it, unless they are what is wrong."""
    # The header of a wrapper has the offset of its last message.
    wanted = WRONG + 2 if name.startswith("wrapper-") else WRONG
    moved = bytearray(data)
    positions = [header.position for header in scan_batches(data, check_crc=False)] or [0]
    first = _OFFSET.unpack_from(data)[0]
    if not 0 <= first < WRONG:
        return data
    for position in positions:
        _OFFSET.pack_into(moved, position, _OFFSET.unpack_from(data, position)[0] + wanted - first)
    return bytes(moved)


def make_segment(name: str, root: Path) -> Path:
    """Write the segment of a corruption, and return its folder."""
    folder = root / "damaged-0"
    folder.mkdir(parents=True)
    data = (CORRUPT / name / "data.bin").read_bytes()
    (folder / f"{FIRST:020d}.log").write_bytes(_sound(FIRST) + _placed(name, data) + _sound(AFTER))
    return folder


class Ours(NamedTuple):
    """What our commands say."""

    verify_words: str
    dump: str
    verify: str
    salvage: str
    stat: str
    explain: str


def _lines(*arguments: str | Path) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def ours(name: str, root: Path) -> Ours:
    """Return what our commands say of a corruption."""
    folder = make_segment(name, root)
    jsonl = ("--format", "jsonl")
    dumped = _lines("dump", folder, *jsonl)
    verified = _lines("verify", "--records", folder, *jsonl)
    stat = _lines("stat", "--records", folder, *jsonl)
    explained = _lines("explain", folder, str(WRONG + 1 if name.startswith("wrapper-") else WRONG), *jsonl)
    salvaged = _lines("salvage", folder, root / "rescued", *jsonl)[0]
    rescued = _lines("dump", root / "rescued", *jsonl)[1]
    verdict = explained[1][0]["read_uncommitted"]
    assert isinstance(verdict, dict)
    return Ours(
        str(verified[1][0]["reason"]) if verified[1] else "",
        _cell(len(dumped[1]), dumped[0]),
        f"exit {verified[0]}",
        _cell(len(rescued), salvaged),
        _cell(stat[1][-1]["records"], stat[0]),
        f"{verdict['reason']}, exit {explained[0]}",
    )


def _cell(records: object, code: int) -> str:
    return f"{records}, exit {code}"


def kafkas(name: str, root: Path, tools: object) -> str:
    """Return what Kafka's tool says of a corruption."""
    from peers.kafka_tools import KafkaTools

    assert isinstance(tools, KafkaTools)
    folder = make_segment(name, root)
    segment = next(folder.glob("*.log"))
    try:
        result = tools.dump_log(segment, "--print-data-log")
    except RuntimeError:
        return "its JVM ends"
    records = len(re.findall(r"(?m)^\| offset: ", result.stdout))
    told = re.search(r"([A-Za-z]+(?:Exception|Error))\b", result.stderr)
    left = re.search(r"Found (\d+) invalid bytes at the end", result.stdout)
    words = ""
    if told is not None:
        words = f", {told[1]}"
    elif left is not None:
        words = f", {left[1]} bytes left"
    return f"{records}, exit {result.code}{words}"


def rows() -> Iterator[list[str]]:
    """Yield the rows of the page."""
    text = PAGE.read_text("utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == len(HEAD) and cells[0].startswith("`"):
            yield cells


def _measured() -> Iterator[str]:
    from peers.jars import PeerMissingError
    from peers.kafka_tools import KafkaTools

    known = {row[0]: row[-1] for row in rows()}
    try:
        tools: KafkaTools | None = KafkaTools()
    except PeerMissingError:
        tools = None
    yield f"| {' | '.join(HEAD)} |"
    yield "| --- " * len(HEAD) + "|"
    for name in vectors():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            theirs = known.get(f"`{name}`", "") if tools is None else kafkas(name, root / "theirs", tools)
            yield f"| {' | '.join([f'`{name}`', *ours(name, root / 'ours'), theirs])} |"
    if tools is not None:
        tools.close()


def _write() -> None:
    text = PAGE.read_text("utf-8")
    table = "\n".join(_measured())
    start = text.index(f"| {HEAD[0]} |")
    end = re.compile(r"\n(?!\|)").search(text, start)
    assert end is not None
    PAGE.write_text(text[:start] + table + text[end.start() :], "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    _write()
