"""An answer of a tool: items up to a number of bytes, and what was left out, where to go on, and what to ask next.

    {"items":[...],"left_out":null,"cursor":null,"notes":["..."],"next":[{"tool":"explain","arguments":{...},"why":"..."}]}

`left_out` is null only if the answer is whole. With a cursor, the same call goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odradek.errors import OptionError
from odradek.inspection.record_json import to_text_json
from odradek.mcp.untrusted import visible

LEAST_BYTES, DEFAULT_BYTES, MOST_BYTES = 3_000, 6_000, 32_000


class TimeOverError(Exception):
    """A call has used up its time."""


_RESERVED_BYTES = 1_300
"""Room for notes and hints."""

_MOST_TEXT = 600
_MOST_NOTES = 8
_MOST_HINTS = 4


class Answer:
    """An answer that is being made.

    Args:
        limit_bytes: How many bytes of JSON it has at most.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._items: list[Any] = []
        self._left = limit_bytes - _RESERVED_BYTES
        self._needed = 0
        self._left_out: list[str] = []
        self._cursor: str | None = None
        self._notes: list[str] = []
        self._next: list[dict[str, Any]] = []

    @property
    def items(self) -> list[Any]:
        """What it has so far."""
        return self._items

    def add(self, item: Any) -> bool:
        """Add an item, unless there is no room for it; return whether it was added."""
        shown = _shown(item)
        size = len(to_text_json(shown).encode("utf-8", "surrogatepass")) + 1
        if size > self._left:
            self._needed = size + _RESERVED_BYTES
            return False
        self._left -= size
        self._items.append(shown)
        return True

    def add_cut(self, made: Callable[[int], Any], most_bytes: int) -> bool:
        """Add an item whose contents may be cut, if it is the first and has no room otherwise.

        Args:
            made: Makes it with contents of so many bytes at most.
            most_bytes: How many are wanted.
        """
        while not self.add(made(most_bytes)):
            if self._items or most_bytes < 1:
                return False
            most_bytes //= 2
        return True

    def add_all(self, items: Iterable[Any], first: int, what: str) -> None:
        """Add items while there is room and time; else say which number the call goes on with.

        Args:
            items: The items.
            first: The number of the first one.
            what: What they are.
        """
        number = first
        try:
            for number, item in enumerate(items, first):
                if not self.add(item):
                    self.full(f"more {what}", f"#{number}")
                    return
                number += 1
        except TimeOverError as error:
            self.leave_out(f"{what} from number {number} on: {error}", f"#{number}")

    def leave_out(self, what: str, cursor: str | None = None) -> None:
        """Say what is not in the answer, and where the same call goes on."""
        if what not in self._left_out:
            self._left_out.append(what)
        self._cursor = self._cursor or cursor

    def full(self, what: str, cursor: str) -> None:
        """Say that there was no room for more, or not even for one."""
        if self._items:
            how = f"the answer has limit_bytes={self._limit}; repeat the call with this cursor"
        else:
            how = f"the next one alone needs limit_bytes={self._needed}"
        self.leave_out(f"{what}: {how}", cursor)

    def note(self, text: str) -> None:
        """Say something about the answer."""
        if text not in self._notes:
            self._notes.append(text)

    def hint(self, tool: str, why: str, **arguments: Any) -> None:
        """Say what may be asked next."""
        hint = {"tool": tool, "arguments": arguments, "why": why}
        if hint not in self._next:
            self._next.append(hint)

    def finished(self) -> dict[str, Any]:
        """Return the answer as JSON has it, within its bytes."""
        notes = self._notes[:_MOST_NOTES]
        if len(notes) < len(self._notes):
            notes.append(f"and {len(self._notes) - len(notes)} more notes")
        found: dict[str, Any] = {
            "items": self._items,
            "left_out": "; ".join(self._left_out) or None,
            "cursor": self._cursor,
            "notes": notes,
            "next": self._next[:_MOST_HINTS],
        }
        found |= {name: _shown(part) for name, part in found.items() if name != "items"}
        while len(to_text_json(found).encode()) > self._limit:
            if len(found["next"]) > 1:
                found["next"].pop()
            elif found["notes"]:
                shorter = found["notes"][:-2]
                found["notes"] = [*shorter, "some notes were left out"] if shorter else []
            elif found["next"]:
                found["next"].pop()
            else:
                break
        return found


def _shown(value: Any) -> Any:
    """Return a value with all text visible; the whole of `untrusted` was cut and escaped before."""
    match value:
        case str():
            text = visible(value)
            return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({len(text) - _MOST_TEXT} more)"
        case dict():
            return {name: part if name == "untrusted" else _shown(part) for name, part in value.items()}
        case list() | tuple():
            return [_shown(part) for part in value]
    return value


def place_number(cursor: str | None) -> int:
    """Return the number of the item that a cursor of a list goes on with.

    Raises:
        OptionError: It is the cursor of something else.
    """
    if cursor is None:
        return 0
    if not cursor.startswith("#") or not cursor[1:].isdecimal() or len(cursor) > 19:
        raise OptionError(f"cursor {cursor!r} is none of this tool's: use that of the answer before")
    return int(cursor[1:])
