"""Python has copies of numbers that the kernels return: they are the same."""

from __future__ import annotations

import re
from pathlib import Path

import odradek
from odradek.records.builder import _Ended
from odradek.records.scan import Status

KERNELS = Path(odradek.__file__).parent / "records" / "kernels"


def test_the_statuses_are_those_of_the_kernels() -> None:
    text = (KERNELS / "wire.pxd").read_text(encoding="utf-8")
    declared = text.partition("cdef enum Status:\n")[2].partition("\n\n")[0]
    found = {name: int(number) for name, number in re.findall(r"^ +([A-Z_]+) = (\d+)", declared, re.MULTILINE)}
    assert found == {status.name: status.value for status in Status}


def test_the_reasons_why_a_run_ends_are_those_of_the_kernel() -> None:
    text = (KERNELS / "encode.py").read_text(encoding="utf-8")
    found = dict(re.findall(r"^END_([A-Z]+) = cython\.declare\(cython\.int, (\d+)\)", text, re.MULTILINE))
    # The kernel raises its last one.
    assert found.pop("ERROR") == str(len(_Ended))
    assert found == {reason.name: str(reason.value) for reason in _Ended}
