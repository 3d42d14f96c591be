"""Inspects the files of a log from outside, whatever program wrote them and whatever their state.

for finding in odradek.inspection.verify("data"):                # damage, gaps, files that contradict each other
    print(finding.path, finding.position, finding.kind, finding.reason)

report = odradek.inspection.salvage("data", "rescued")           # copies what is sound into a new log directory
print(report.batches, report.losses)

The command line prints these results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from odradek.arguments import checked_flag, checked_path
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
    """Verify a log directory, a partition's folder or a file of a log. Nothing is written.

    Args:
        path: What to verify.
        decode: Whether to decode every record too, not only verify the checksums of the batches.

    Returns:
        The findings, as they are made; a file that cannot be read is a finding too, and does not end the run.

    Raises:
        UnknownPathError: The path is no file or folder of a log.
    """
    located = locate(checked_path("path", path))
    return Verification(decode=checked_flag("decode", decode)).findings(located)
