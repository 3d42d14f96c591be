"""Each flag of the interface is a bool: `"false"` would be true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.inspection import verify

CALLS: Mapping[str, Callable[[Path, Any], object]] = {
    "background": lambda path, flag: odradek.open(path, background=flag),
    "adopt": lambda path, flag: odradek.open(path, adopt=flag),
    "auto_commit": lambda path, flag: odradek.consume(path, "t", auto_commit=flag),
    "follow": lambda path, flag: odradek.consume(path, "t", follow=flag),
    "views": lambda path, flag: odradek.scan(path, views=flag),
    "check_crc": lambda path, flag: odradek.scan(path, check_crc=flag),
    "check_crc of a dataset": lambda path, flag: odradek.dataset(path, check_crc=flag),
    "decode": lambda path, flag: verify(path, decode=flag),
    "include_control": lambda path, flag: odradek.open(path, "r")["t", 0].read(include_control=flag),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("flag", ["false", 0, None])
def test_a_flag_is_a_bool(tmp_path: Path, name: str, flag: object) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append(value=b"one")
    with pytest.raises(TypeError, match=f"{name.split()[0]} must be a bool, not"):
        CALLS[name](tmp_path, flag)


@pytest.mark.parametrize("flag", ["false", 0, None])
def test_nothing_is_appended_with_another_flag(tmp_path: Path, flag: Any) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        for call in (
            lambda: log.append(value=b"one", durable=flag),
            lambda: logs.topic("t").append(value=b"one", durable=flag),
            lambda: log.append_batches(b"", durable=flag),
            lambda: log.append_batches(b"", supports_epoch_bump=flag),
            lambda: log.end_transaction(1, 0, commit=flag),
        ):
            with pytest.raises(TypeError, match="must be a bool"):
                call()
        assert log.log_end_offset == 0
