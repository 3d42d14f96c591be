"""A partition's folder with a broken file, verified, and salvaged: what comes out is sound.

input   which file: 1 byte | its new content
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Hashable, Sequence
from pathlib import Path

from mutation import mutate_batches, mutate_bytes
from odradek.errors import FormatError
from odradek.inspection import FindingKind, salvage, verify
from odradek.inspection.live_segments import find_end, live_segments
from odradek.inspection.log_files import partition_folder
from seeds import broker_files
from targets import Target, dice, scratch_folder

_NUMBER = re.compile(r"[0-9]+")
_PARTITIONS = ("4.3.1/transactional-0", "4.3.1/compacted-0", "4.3.1/__cluster_metadata-0", "2.8.2/v1-gzip-0")
_SOUND = {FindingKind.GAP, FindingKind.EPOCH, FindingKind.CONTRADICTION}
"""What may be found in what was salvaged: offsets are missing, and leader epochs are left as they are."""

_root = Path("/nowhere")
_files: list[Path] = []


def _begin() -> None:
    global _root
    _root = scratch_folder()
    for number, partition in enumerate(_PARTITIONS):
        folder = _root / f"t{number}-0"
        folder.mkdir()
        contents = {n.rsplit("/", 1)[1]: d for n, d in broker_files().items() if n.startswith(f"{partition}/")}
        kept = {name.split(".")[0] for name in sorted(name for name in contents if name.endswith(".log"))[:2]}
        for name, data in sorted(contents.items()):
            if name.split(".")[0] in kept or not name[0].isdigit():
                (folder / name).write_bytes(data)
                if len(data) <= 30_000:
                    _files.append(folder / name)


def _end() -> None:
    shutil.rmtree(_root, ignore_errors=True)


def _seeds() -> Sequence[bytes]:
    return [bytes([number]) + path.read_bytes() for number, path in enumerate(_files)]


def _mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    number, content = data[:1] or b"\0", data[1:]
    path = _files[number[0] % len(_files)]
    mutate = mutate_batches if path.suffix in {".log", ".checkpoint"} and rng.random() < 0.8 else mutate_bytes
    return number + mutate(rng, content, [rng.choice(others)[1:]])


def _check(data: bytes) -> Hashable:
    path = _files[data[0] % len(_files)] if data else _files[0]
    folder, target = path.parent, _root / "salvaged"
    sound = path.read_bytes()
    path.write_bytes(data[1:])
    rng = dice(data)
    try:
        found = list(verify(folder, decode=rng.random() < 0.3))
        for segment in live_segments(partition_folder(folder)):
            try:
                find_end(segment)
            except FormatError as error:
                raise AssertionError(f"the end of {segment} is not found") from error
        if path.suffix == ".log" or rng.random() < 0.1:
            report = salvage(folder, target)
            # A batch whose checksum holds is kept, whatever it holds.
            told = {finding.reason for finding in found}
            left = [finding for finding in verify(target / folder.name) if finding.kind not in _SOUND]
            left = [finding for finding in left if finding.reason not in told]
            assert not left, f"salvaged, and yet {left[0]}"
            assert found or report.is_clean, "nothing was found, and yet something was lost"
    finally:
        path.write_bytes(sound)
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(target.with_name("salvaged.incomplete"), ignore_errors=True)
    return path.suffix, min(len(found), 4), _NUMBER.sub("#", found[0].reason) if found else ""


TARGETS = [Target("inspection", _seeds, _mutate, _check, _begin, _end)]
