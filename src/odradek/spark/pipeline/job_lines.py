"""The line of each key in a job's file, which the parser of TOML does not tell.

    1  [source]                      source
    2  path = "data"                 source.path
    4  [[transform]]                 transform[0]
    6  sql = \"\"\"                     transform[0].sql, whose text begins at line 7
    7  SELECT offset FROM records
    8  \"\"\"

The file must parse. A key within a value, such as an inline table, has the line of that value.
"""

from __future__ import annotations

import re

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_ARRAY = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]")
_TABLE = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?$")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=\s*")


class JobLines:
    """The lines of the keys of a file.

    Args:
        text: The file.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        self._text_lines: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._table = ""
        until: str | None = None
        for number, line in enumerate(text.splitlines(), 1):
            if until is not None:
                # Within a text of several lines.
                until = None if until in line else until
            elif match := _ARRAY.match(line):
                name = _name(match[1])
                count = self._counts[name] = self._counts.get(name, -1) + 1
                self._table = f"{name}[{count}]"
                self._lines[self._table] = number
                self._lines.setdefault(name, number)
            elif match := _TABLE.match(line):
                self._table = _name(match[1])
                self._lines[self._table] = number
            elif match := _ENTRY.match(line):
                key = f"{self._table}.{_name(match[1])}" if self._table else _name(match[1])
                self._lines.setdefault(key, number)
                value = line[match.end() :]
                quotes = value[:3]
                is_long = quotes in ('"""', "'''")
                self._text_lines[key] = number + (is_long and not value[3:].strip())
                until = quotes if is_long and quotes not in value[3:] else None

    def line(self, key: str) -> int | None:
        """Return the line of a key, or of the nearest table around it; None if there is none."""
        while key and key not in self._lines:
            key = re.sub(r"(?:\[\d+\]|\.?[^.\[\]]+)$", "", key)
        return self._lines.get(key)

    def text_line(self, key: str, line: int) -> int | None:
        """Return the line of the file that holds a line, counted from 1, of a key's text."""
        first = self._text_lines.get(key)
        return self.line(key) if first is None else first + line - 1


def _name(dotted: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return ".".join(part.strip("\"'") for part in re.findall(_KEY, dotted))
