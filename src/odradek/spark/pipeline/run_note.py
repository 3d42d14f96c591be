"""What a pipeline last did, kept in the offset store beside a position, for `odradek pipeline status`.

    {"batch": {"time_ms": 1790000000000, "offsets": 1200, "seconds": 1.9, "refused": 0},
     "error": {"time_ms": 1790000005000, "text": "sink[0]: ValueError: ..."},
     "loss": {"time_ms": 1790000006000, "text": "texts-0: offsets [120, 140)"}}

Each commit puts it beside one of the positions that it stores; the newest one counts. So every store can keep it, and
it is stored if and only if the batch is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from odradek.arguments import checked_int, checked_text, given_text
from odradek.offsets.store import Position

_TEXT_BYTES = 1000
"""A broker takes 4,096 bytes beside a position; characters of an error may be escaped."""

_MOST_SECONDS = 1e12


@dataclass(frozen=True)
class LastBatch:
    """The last batch that was stored.

    Attributes:
        time_ms: When it was stored.
        offsets: How many offsets it spanned.
        seconds: How long it took.
        refused: How many records the sinks' targets did not take.
    """

    time_ms: int
    offsets: int
    seconds: float
    refused: int = 0

    def __post_init__(self) -> None:
        for name in ("time_ms", "offsets", "refused"):
            checked_int(name, getattr(self, name))
        if not isinstance(self.seconds, float | int):
            raise TypeError(f"seconds must be a number, not {given_text(self.seconds)}")
        # Other programs write notes, too: no NaN, nor an integer of which there is no float.
        if not 0 <= self.seconds <= _MOST_SECONDS:
            raise ValueError(f"seconds must be from 0 to {_MOST_SECONDS:g}")


@dataclass(frozen=True)
class _Told:
    time_ms: int
    text: str

    def __post_init__(self) -> None:
        checked_int("time_ms", self.time_ms)
        checked_text("text", self.text)


class LastError(_Told):
    """The last error that ended a run.

    Attributes:
        time_ms: When.
        text: What it said.
    """


class LastLoss(_Told):
    """The last time that logs ended before the positions, as they were cut, and the job went on at their ends.

    Attributes:
        time_ms: When.
        text: Which offsets were lost.
    """


@dataclass(frozen=True)
class RunNote:
    """What a pipeline last did.

    Attributes:
        batch: Its last batch; None if there was none.
        error: Its last error; None if there was none.
        loss: Its last loss; None if there was none.
    """

    batch: LastBatch | None = None
    error: LastError | None = None
    loss: LastLoss | None = None

    @property
    def time_ms(self) -> int:
        """When it was written."""
        return max((part.time_ms for part in (self.batch, self.error, self.loss) if part is not None), default=-1)

    @property
    def has_failed(self) -> bool:
        """Whether the error came after the batch."""
        return self.error is not None and self.error.time_ms == self.time_ms

    def text(self) -> str:
        """Return it as a position holds it."""
        content = {name: part for name, part in asdict(self).items() if part is not None}
        for part in content.values():
            if "text" in part:
                # A loss is told by the log too.
                most = _TEXT_BYTES if part is content.get("error") else _TEXT_BYTES // 4
                part["text"] = part["text"].encode(errors="backslashreplace")[:most].decode(errors="ignore")
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def newest_note(positions: Iterable[Position]) -> RunNote:
    """Return the newest note beside positions; an empty one if there is none."""
    notes = [_parse(position.note) for position in positions if position.note is not None]
    return max(notes, key=lambda note: note.time_ms, default=RunNote())


def _parse(text: str) -> RunNote:
    """Read a note; what another program wrote is an empty one."""
    try:
        content: dict[str, Any] = json.loads(text)
        parts = {"batch": LastBatch, "error": LastError, "loss": LastLoss}
        return RunNote(**{name: kind(**content[name]) for name, kind in parts.items() if content.get(name)})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return RunNote()
