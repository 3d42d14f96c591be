"""Batches that decompress to much: their memory is given back, and threads never have several of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from odradek.errors import InvalidRecordError
from odradek.records import Record
from odradek.records.append import validator
from odradek.records.append.validator import AppendRules, ValidatedAppend, validate_append
from odradek.records.builder import build_batch
from odradek.records.compression import KEPT_BYTES, Codec, Decompressor, compress
from odradek.records.kernels.encode import seal
from odradek.testing.message_builder import build_message_set

CODECS = [codec for codec in Codec if codec]
LARGE = AppendRules(max_message_bytes=1 << 30)


def validate(data: bytes, rules: AppendRules = LARGE, **options: Any) -> ValidatedAppend:
    return validate_append(data, rules, base_offset=0, partition_leader_epoch=0, now_ms=0, **options)


def large(codec: Codec, size: int = KEPT_BYTES + 1) -> bytes:
    return bytes(build_batch([Record(timestamp=0, value=bytes(size))], codec=codec))


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_taken_and_its_memory_given_back(codec: Codec) -> None:
    decompressor = Decompressor()
    data = large(codec)
    found = validate(data, decompressor=decompressor)
    assert found.header.records_count == 1
    assert bytes(found.data)[61:] == data[61:]
    assert len(decompressor._scratch) <= KEPT_BYTES
    assert decompressor.limit > KEPT_BYTES


def test_threads_check_one_large_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, turn = 0, 0, threading.Lock()
    check = validator._Append._v2

    def noted(self: Any, header: Any) -> ValidatedAppend:
        nonlocal at_once, most
        if self._decompressor.limit <= KEPT_BYTES:
            return check(self, header)
        with turn:
            at_once += 1
            most = max(most, at_once)
        try:
            return check(self, header)
        finally:
            with turn:
                at_once -= 1

    monkeypatch.setattr(validator._Append, "_v2", noted)
    data = large(Codec.ZSTD)
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(lambda _: validate(data), range(8)))) == 8
    assert most == 1


@pytest.mark.sampled
@pytest.mark.parametrize("codec", CODECS)
def test_what_grows_past_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecordError, match="cannot be decompressed"):
        validate(large(codec), decompressor=Decompressor(KEPT_BYTES))
    with pytest.raises(InvalidRecordError, match="cannot be decompressed"):
        validate(large(codec, 2 * KEPT_BYTES), decompressor=Decompressor(KEPT_BYTES + 1000))


def test_a_batch_of_too_many_records_is_not_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "_MOST_REBUILT", 10)
    records = [Record(timestamp=0, value=b"a") for _ in range(11)]
    with pytest.raises(InvalidRecordError, match="11 records that would have to be rebuilt: at most 10"):
        # Its first timestamp is not that of the batch, so another codec needs all of it written anew.
        validate(stamped(records), AppendRules(codec=Codec.GZIP))
    assert validate(stamped(records[:10]), AppendRules(codec=Codec.GZIP)).header.records_count == 10
    assert validate(bytes(build_batch(records, codec=Codec.ZSTD))).header.records_count == 11


def stamped(records: list[Record]) -> bytes:
    return bytes(build_batch(records, timestamp_type="LogAppendTime", append_time_ms=0, codec=Codec.ZSTD))


def test_records_before_a_broken_one_are_not_made_to_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(timestamp=0, value=b"a") for _ in range(11)]
    whole = bytes(build_batch(records))
    broken = seal(whole[:21] + b"\0\1" + whole[23:61], compress(Codec.GZIP, whole[61:-1] + b"\x7f"))
    monkeypatch.setattr(validator, "_MOST_REBUILT", 5)
    monkeypatch.setattr(validator, "read_section", None)
    with pytest.raises(InvalidRecordError, match="record 10 at byte"):
        validate(broken)


def test_a_wrapper_that_would_make_too_many_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = bytes(build_message_set([Record(timestamp=0, value=bytes(1000))] * 2, magic=1, codec=Codec.GZIP))
    assert validate(wrapper).header.records_count == 2
    monkeypatch.setattr(validator, "_MOST_REBUILT_BYTES", 2000)
    with pytest.raises(InvalidRecordError, match="past the limit of 2000 bytes"):
        validate(wrapper)


BOMBS = """
import threading, sys
import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.kernels.encode import seal

header = bytes(build_batch([Record(timestamp=0, value=b"")], codec=Codec.ZSTD)[:61])
bomb = seal(header, compress(Codec.ZSTD, bytes(250 << 20)))
def mb(field):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) >> 10
with odradek.open(sys.argv[1]) as logs:
    logs.create_topic("events", 4)
    done, end = threading.Semaphore(0), threading.Event()
    def append(partition):
        for _ in range(2):
            try:
                logs["events", partition].append_batches(bomb)
            except odradek.OdradekError as error:
                print("refused", file=sys.stderr)
        done.release()
        end.wait()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = mb("VmRSS")
    threads = [threading.Thread(target=append, args=[partition]) for partition in range(4)]
    for thread in threads: thread.start()
    for thread in threads: done.acquire()
    print(mb("VmHWM") - before, mb("VmRSS") - before)
    end.set()
"""


@pytest.mark.slow
def test_bombs_from_many_threads_take_the_memory_of_one(tmp_path: Any) -> None:
    found = subprocess.run([sys.executable, "-c", BOMBS, tmp_path], capture_output=True, text=True, check=True)
    most, left = map(int, found.stdout.split())
    assert found.stderr.count("refused") == 8
    assert most < 400
    assert left < 100
