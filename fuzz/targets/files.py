"""The files beside a segment and in the root of a log directory. The first byte of an input says which kind it is."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from decoders import words
from mutation import mutate_bytes
from odradek.errors import FormatError
from odradek.records.kernels.checksums import crc32c
from odradek.storage.formats import metadata_snapshot as snapshot
from odradek.storage.formats.checkpoints import (
    format_leader_epochs,
    format_offset_checkpoint,
    parse_leader_epochs,
    parse_offset_checkpoint,
    read_leader_epochs,
    read_offset_checkpoint,
)
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.partition_metadata import (
    format_partition_metadata,
    parse_partition_metadata,
    read_partition_metadata,
)
from odradek.storage.formats.producer_snapshot import format_snapshot, parse_snapshot, read_snapshot
from odradek.storage.formats.quorum_state import read_quorum_state
from odradek.storage.formats.time_index import TimeIndex
from odradek.storage.formats.transaction_index import TransactionIndex, format_transaction, parse_transaction_index
from seeds import broker_files
from targets import Target, dice, scratch_folder

_NUMBER = re.compile(r"[0-9]+|'.*'")
_folder = Path("/nowhere")


def _begin() -> None:
    global _folder
    _folder = scratch_folder()


def _end() -> None:
    shutil.rmtree(_folder, ignore_errors=True)


def _offset_index(path: Path, data: bytes) -> None:
    index = OffsetIndex(path, 1000)
    entries = list(index.entries())
    assert len(entries) == index.count <= len(data) // 8
    rng = dice(data)
    is_sound = _is_sound(index)
    for _ in range(4):
        offset = rng.choice([-1, 0, 999, 1000, 1 << 62, *(entry.offset + rng.choice((-1, 0, 1)) for entry in entries)])
        found, number = index.lookup(offset), index.floor_position(offset)
        if is_sound:
            assert found == max([e for e in entries if e.offset <= offset], default=(1000, 0)), "lookup"
            assert number == max([n for n, e in enumerate(entries) if e.position <= offset], default=-1), "floor"
    index.close()


def _time_index(path: Path, data: bytes) -> None:
    index = TimeIndex(path, 1000)
    entries = list(index.entries())
    assert len(entries) == index.count <= len(data) // 12
    rng = dice(data)
    is_sound = _is_sound(index)
    for _ in range(4):
        time = rng.choice([-1, 0, 1 << 62, (1 << 63) - 1, *(e.timestamp + rng.choice((-1, 0, 1)) for e in entries)])
        found, number = index.lookup(time), index.floor_entry_of_offset(time)
        if is_sound:
            below = [e for e in entries if 0 <= e.timestamp <= time]
            assert found == (below[-1] if below else (-1, 1000)), "lookup"
            assert number == max([n for n, e in enumerate(entries) if e.offset <= time], default=-1), "floor"
    index.close()


def _is_sound(index: OffsetIndex | TimeIndex) -> bool:
    try:
        index.check()
    except FormatError:
        return False
    return True


def _transaction_index(path: Path, data: bytes) -> None:
    index = TransactionIndex(path, 0)
    again = b"".join(map(format_transaction, index.transactions))
    assert parse_transaction_index(again) == index.transactions
    index.check()


def _snapshot(path: Path, data: bytes) -> None:
    entries = read_snapshot(path)
    assert format_snapshot(entries) == data == format_snapshot(parse_snapshot(data))


def _offset_checkpoint(path: Path, data: bytes) -> None:
    offsets = read_offset_checkpoint(path)
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets).decode()) == offsets


def _leader_epochs(path: Path, data: bytes) -> None:
    epochs = read_leader_epochs(path)
    assert parse_leader_epochs(format_leader_epochs(epochs).decode()) == epochs


def _meta_properties(path: Path, data: bytes) -> None:
    read = MetaProperties.read(path)
    assert read is not None
    assert MetaProperties.parse(read.format().decode("latin-1")) == read


def _partition_metadata(path: Path, data: bytes) -> None:
    read = read_partition_metadata(path)
    assert read is not None
    assert parse_partition_metadata(format_partition_metadata(read).decode()) == read


def _quorum_state(path: Path, data: bytes) -> None:
    read = read_quorum_state(path)
    assert read is not None
    assert read.version in {0, 1}


def _metadata_snapshot(path: Path, data: bytes) -> None:
    read = snapshot.read_snapshot(path)
    path.write_bytes(snapshot.format_snapshot(read.values, voters=read.voters))
    assert snapshot.read_snapshot(path).values == read.values


_KINDS: tuple[tuple[str, Callable[[Path, bytes], None]], ...] = (
    (".index", _offset_index),
    (".timeindex", _time_index),
    (".txnindex", _transaction_index),
    (".snapshot", _snapshot),
    ("-offset-checkpoint", _offset_checkpoint),
    ("leader-epoch-checkpoint", _leader_epochs),
    ("meta.properties", _meta_properties),
    ("partition.metadata", _partition_metadata),
    ("quorum-state", _quorum_state),
    (".checkpoint", _metadata_snapshot),
)


def _seeds() -> Sequence[bytes]:
    found = []
    for number, (suffix, _) in enumerate(_KINDS):
        contents = {
            data.rstrip(b"\0") if "index" in suffix else data
            for n, data in broker_files().items()
            if n.endswith(suffix)
        }
        short = sorted(content for content in contents if len(content) <= 2000)
        found += [bytes([number]) + content for content in short[:: max(1, len(short) // 8)]]
    found.append(b"\x06" + b"version=1\\\n\n! comment\nnode.id : 7\ncluster.id=\\u0041\\=x\n")
    return found


def _mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    kind, content = data[:1] or b"\0", data[1:]
    alike = [other[1:] for other in others[-200:] if other[:1] == kind]
    changed = mutate_bytes(rng, content, alike)
    if kind == b"\x03" and rng.random() < 0.9:
        changed = changed[:2] + crc32c(changed[6:]).to_bytes(4, "big") + changed[6:]
    return kind + changed


def _check(data: bytes) -> Hashable:
    number = data[0] % len(_KINDS) if data else 0
    suffix, check = _KINDS[number]
    path = _folder / f"00000000000000001000{suffix}"
    path.write_bytes(data[1:])
    try:
        check(path, data[1:])
    except FormatError as error:
        assert error.path == str(path), "an error without the file's name"
        return number, _NUMBER.sub("#", error.reason)
    return number, "good"


def _words(data: bytes) -> str:
    suffix, check = _KINDS[data[0]]
    path = _folder / f"00000000000000001000{suffix}"
    path.write_bytes(data[1:])
    try:
        check(path, data[1:])
        if suffix in {".index", ".timeindex"}:  # readable whatever they hold: it is a tool that asks this
            (OffsetIndex if suffix == ".index" else TimeIndex)(path, 1000).check()
    except FormatError as error:
        return words(error)
    return "none"


TARGETS = [Target("files", _seeds, _mutate, _check, _begin, _end, _words)]
