"""A partition's folder, read as a log, with its segments broken, or the files beside them.

input   which file: 1 byte | its new content
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
from collections.abc import Hashable, Sequence
from pathlib import Path

from decoders import Row, row_of
from mutation import mutate_batches, mutate_bytes
from odradek.errors import FormatError, LogError
from odradek.storage.log.read_only_log import ReadOnlyLog
from seeds import broker_files
from targets import Target, dice, scratch_folder

_NUMBER = re.compile(r"[0-9]+")
_PARTITIONS = ("4.3.1/transactional-0", "4.3.1/compacted-0", "2.8.2/v2-none-0", "2.8.2/v1-gzip-0")
_root = Path("/nowhere")
_files: list[Path] = []
_sound: dict[Path, tuple[list[Row], list[Row], list[int | None]]] = {}


def _begin() -> None:
    global _root
    _root = scratch_folder()
    for number, partition in enumerate(_PARTITIONS):
        folder = _root / f"t{number}-0"
        folder.mkdir()
        contents = {n.rsplit("/", 1)[1]: d for n, d in broker_files().items() if n.startswith(f"{partition}/")}
        kept = sorted(name for name in contents if name.endswith(".log"))[:3]
        for name, data in sorted(contents.items()):
            if name.split(".")[0] in {log.split(".")[0] for log in kept} or name == "leader-epoch-checkpoint":
                data = data.rstrip(b"\0") if name.endswith("index") else data
                data += bytes(-len(data) % 8) if name.endswith(".index") else b""
                data += bytes(-len(data) % 12) if name.endswith(".timeindex") else b""
                (folder / name).write_bytes(data)
                if len(data) <= 30_000:
                    _files.append(folder / name)
        _sound[folder] = _read(folder)


def _end() -> None:
    shutil.rmtree(_root, ignore_errors=True)


def _read(folder: Path) -> tuple[list[Row], list[Row], list[int | None]]:
    rng = dice(folder.name.encode())
    with ReadOnlyLog(folder) as log:
        rows = [row_of(record) for record in log.read(include_control=True)]
        committed = [row_of(record) for record in log.read(isolation="read_committed")]
        times = sorted({row[1] for row in rows if row[1] is not None})
        return rows, committed, [log.offset_for_time(time) for time in rng.sample(times, min(len(times), 5))]


def _probe(folder: Path, rng: random.Random) -> None:
    """Ask a broken log all that can be asked; each answer may be a refusal."""
    with ReadOnlyLog(folder) as log:
        for _ in range(3):
            with contextlib.suppress(FormatError, LogError):
                start = rng.randint(log.log_start_offset, max(log.log_start_offset, log.log_end_offset))
                before = start - 1
                for record in log.read(start, start + rng.choice((1, 50))):
                    assert record.offset is not None
                    assert start <= record.offset, "a record below the range"
                    before = record.offset
                assert before < start + 50
        with contextlib.suppress(FormatError):
            log.find_max_timestamp()
        with contextlib.suppress(FormatError):
            _ = log.damage
        with contextlib.suppress(FormatError, LogError):
            list(log.slices(slice_bytes=500))


def _seeds() -> Sequence[bytes]:
    return [bytes([number]) + path.read_bytes() for number, path in enumerate(_files)]


def _mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    number, content = data[:1] or b"\0", data[1:]
    path = _files[number[0] % len(_files)]
    mutate = mutate_batches if path.suffix == ".log" and rng.random() < 0.8 else mutate_bytes
    return number + mutate(rng, content, [rng.choice(others)[1:]])


def _check(data: bytes) -> Hashable:
    path = _files[data[0] % len(_files)] if data else _files[0]
    sound = path.read_bytes()
    path.write_bytes(data[1:])
    try:
        try:
            found = _read(path.parent)
        except (FormatError, LogError) as error:
            # A broken hint is passed over, never the end of reading.
            assert path.suffix not in {".index", ".timeindex"}, f"{path.name} stopped the reader: {error}"
            verdict: Hashable = path.suffix, _NUMBER.sub("#", str(error).replace(str(path), ""))
        else:
            assert path.suffix not in {".index", ".timeindex"} or found == _sound[path.parent], (
                f"{path.name} changed what is read"
            )
            verdict = path.suffix, "good"
        _probe(path.parent, dice(data))
    finally:
        path.write_bytes(sound)
    return verdict


TARGETS = [Target("folders", _seeds, _mutate, _check, _begin, _end)]
