"""Inspects the files of a log from outside, whatever program wrote them and whatever their state.

    for finding in odradek.inspection.verify("data"):                # damage, gaps, files that contradict each other
        print(finding.path, finding.position, finding.kind, finding.reason)

    report = odradek.inspection.repair("data")                       # makes indexes and the like again, never batches
    print(report.repairs, report.left)

    report = odradek.inspection.salvage("data", "rescued")           # copies what is sound into a new log directory
    print(report.batches, report.losses)

    explanation = odradek.inspection.explain("data/events-0", 4711)  # where the record lies, and who is given it
    print(explanation.batch, explanation.read_committed)

    odradek.inspection.backup("data", "copy")                        # copies a log directory beside a running broker
    odradek.inspection.restore("copy", "new-data")                   # and puts the copy back

The command line prints these results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odradek.arguments import checked_flag, checked_path

if TYPE_CHECKING:
    from odradek.inspection.backups.restoring import restore
    from odradek.inspection.backups.run import BackupReport, backup
    from odradek.inspection.explaining.explanation import Explanation, Reason, Verdict, explain
    from odradek.inspection.explaining.fields import Field
    from odradek.inspection.explaining.transaction_trace import IndexEntry, Transaction
    from odradek.inspection.finding import Finding, FindingKind
    from odradek.inspection.log_files import UnknownPathError
    from odradek.inspection.repairing.run import Repair, RepairReport, repair
    from odradek.inspection.salvaging.report import Loss, SalvagedLog, SalvageReport
    from odradek.inspection.salvaging.run import salvage

__all__ = [
    "BackupReport",
    "Explanation",
    "Field",
    "Finding",
    "FindingKind",
    "IndexEntry",
    "Loss",
    "Reason",
    "Repair",
    "RepairReport",
    "SalvageReport",
    "SalvagedLog",
    "Transaction",
    "UnknownPathError",
    "Verdict",
    "backup",
    "explain",
    "repair",
    "restore",
    "salvage",
    "verify",
]

# Imported when they are first used: a command needs few of them.
_LATER = {
    "BackupReport": "backups.run",
    "Explanation": "explaining.explanation",
    "Field": "explaining.fields",
    "Finding": "finding",
    "FindingKind": "finding",
    "IndexEntry": "explaining.transaction_trace",
    "Loss": "salvaging.report",
    "Reason": "explaining.explanation",
    "Repair": "repairing.run",
    "RepairReport": "repairing.run",
    "SalvageReport": "salvaging.report",
    "SalvagedLog": "salvaging.report",
    "Transaction": "explaining.transaction_trace",
    "UnknownPathError": "log_files",
    "Verdict": "explaining.explanation",
    "backup": "backups.run",
    "explain": "explaining.explanation",
    "repair": "repairing.run",
    "restore": "backups.restoring",
    "salvage": "salvaging.run",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"odradek.inspection.{_LATER[name]}"), name)
    return value


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
    from odradek.inspection.log_files import locate
    from odradek.inspection.verification.run import Verification

    located = locate(checked_path("path", path))
    return Verification(decode=checked_flag("decode", decode)).findings(located)
