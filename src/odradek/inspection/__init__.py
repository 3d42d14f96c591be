"""Looks at the files of a log from outside, whoever wrote them and whatever has become of them.

for finding in odradek.inspection.verify("data"):                # damage, gaps, files that contradict each other
    print(finding.path, finding.position, finding.kind, finding.reason)

report = odradek.inspection.salvage("data", "rescued")           # what is sound, in a new log directory
print(report.batches, report.losses)

The command line prints what is found here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.log_files import UnknownPathError, locate
from odradek.inspection.salvaging.report import Loss, SalvagedLog, SalvageReport
from odradek.inspection.salvaging.run import salvage
from odradek.inspection.verification.run import Verification

__all__ = [
    "Finding",
    "FindingKind",
    "Loss",
    "SalvageReport",
    "SalvagedLog",
    "UnknownPathError",
    "salvage",
    "verify",
]


def verify(path: str | os.PathLike[str], *, decode: bool = False) -> Iterator[Finding]:
    """Verify a log directory, a partition's folder or a file of a log; nothing is written.

    Args:
        path: What to verify.
        decode: Whether every record is decoded too, not only the checksums of the batches verified.

    Returns:
        What is wrong, as it is found; a file that cannot be read is a finding too, and ends nothing.

    Raises:
        UnknownPathError: The path stands for nothing of a log.
    """
    located = locate(Path(path))
    return Verification(decode=decode).findings(located)
