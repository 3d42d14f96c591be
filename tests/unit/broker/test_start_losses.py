"""What a start cuts off or sets aside is logged, with records and offsets, and counted; `--strict` refuses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek import LogError, Record
from odradek.broker.running import BrokerThread
from odradek.records.builder import build_batch
from odradek.records.header import V2_HEADER_BYTES
from odradek.storage.formats.partition_metadata import PARTITION_METADATA
from peers.broker_thread import start
from peers.command import told
from peers.files import crashed
from peers.http import metrics
from unit.broker.conftest import LISTENERS


def batch(offset: int) -> bytes:
    return build_batch([Record(b"k", b"v%d" % number) for number in range(5)], base_offset=offset)


def make(folder: Path, data: bytes) -> Path:
    return crashed(folder, {"t": {0: data}})


def flipped(folder: Path) -> None:
    data = bytearray(batch(0))
    data[V2_HEADER_BYTES + 2] ^= 1
    make(folder, bytes(data) + batch(5))


def torn(folder: Path) -> None:
    make(folder, batch(0) + batch(5)[:-7])


def starts_after_its_end(folder: Path) -> None:
    make(folder, batch(0) + batch(5))
    (folder / "log-start-offset-checkpoint").write_text("0\n1\nt 0 100\n")


def of_another_topic(folder: Path) -> None:
    make(folder, batch(0))
    (folder / "t-0" / PARTITION_METADATA).write_text("version: 0\ntopic_id: x1aKva0FS9aP4CPblmQDiw\n")


LOSSES: dict[Callable[[Path], None], tuple[str, int]] = {
    flipped: (
        "truncated 222 bytes from position 0: checksum mismatch in a batch of 111 bytes; 5 sound records, "
        "offsets 5 to 9, among them",
        5,
    ),
    torn: ("truncated 104 bytes from position 111: the batch claims 111 bytes, 104 are left", 0),
    starts_after_its_end: (
        "removed 222 bytes from position 0: the log starts at 100, after its end; 10 sound records, "
        "offsets 0 to 9, among them",
        10,
    ),
    of_another_topic: ("the metadata do not have its topic, or with another id: it is renamed to end with -stray", 0),
}


@pytest.fixture(params=LOSSES)
def harm(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], None]:
    request.param(tmp_path / "data")
    found: Callable[[Path], None] = request.param
    return found


@pytest.fixture
def running(harm: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[BrokerThread]:
    with caplog.at_level(logging.WARNING), start(tmp_path / "data", **LISTENERS) as running:
        yield running


def test_each_loss_is_logged_and_counted(
    harm: Callable[[Path], None], running: BrokerThread, base: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    reason, records = LOSSES[harm]
    assert running.broker.logs["t", 0].log_start_offset in {0, 100}
    logged = [*caplog.get_records("setup"), *caplog.records]
    lines = [record.getMessage() for record in logged if record.levelno == logging.WARNING]
    assert f"{tmp_path}/data/t-0" in next(line for line in lines if line.endswith(reason))
    found = metrics(base)
    assert found["odradek_recovery_losses"] == 1
    assert found["odradek_recovery_lost_records"] == records
    assert (found["odradek_recovery_lost_bytes"] > 0) == (harm is not of_another_topic)


def test_a_strict_start_is_refused_and_leaves_what_there_is(harm: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    before = {path.name: path.read_bytes() for path in (folder / "t-0").iterdir()}
    with pytest.raises(LogError, match="nothing of this was changed, as strict demands"):
        odradek.open(folder, strict=True)
    said = told("serve", folder, "--strict", code=3)
    assert f"{LOSSES[harm][0]}; nothing of this was changed, as strict demands" in said
    after = {path.name: path.read_bytes() for path in (folder / "t-0").iterdir()}
    assert before.items() <= after.items()


@pytest.mark.parametrize("left", [b"", bytes(5000)])
def test_a_crash_that_lost_nothing_does_not_stop_a_strict_start(left: bytes, tmp_path: Path) -> None:
    """Zeros are preallocated space."""
    with odradek.open(make(tmp_path / "data", batch(0) + left), strict=True) as logs:
        assert logs["t", 0].log_end_offset == 5
