"""The line of each key in a job's file, which the parser of TOML does not tell.

    1  [source]                      source
    2  path = "data"                 source.path
    4  [[transform]]                 transform[0]
    6  sql = \"\"\"                     transform[0].sql, whose text begins at line 7
    7  SELECT offset FROM records
    8  \"\"\"

    [[job]] / [[job.sink]]       job[0] / job[0].sink[0], in a file with several jobs

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
        # TOML knows no other ends of lines, and Python does.
        for number, line in enumerate(text.split("\n"), 1):
            if until is not None:
                # Within a text of several lines.
                until = None if until in line else until
            elif match := _ARRAY.match(line):
                *above, last = _parts(match[1])
                name = ".".join([*self._within(above), last])
                count = self._counts[name] = self._counts.get(name, -1) + 1
                self._table = f"{name}[{count}]"
                self._lines[self._table] = number
                self._lines.setdefault(name, number)
            elif match := _TABLE.match(line):
                self._table = ".".join(self._within(_parts(match[1])))
                self._lines[self._table] = number
            elif match := _ENTRY.match(line):
                key = self._table
                for part in _parts(match[1]):
                    # Of a dotted key also each table that it makes on the way.
                    key = f"{key}.{part}" if key else part
                    self._lines.setdefault(key, number)
                value = line[match.end() :]
                quotes = value[:3]
                is_long = quotes in ('"""', "'''")
                self._text_lines[key] = number + (is_long and not value[3:].strip())
                until = quotes if is_long and quotes not in value[3:] else None

    def _within(self, parts: list[str]) -> list[str]:
        """Return the parts of a table's name, those that are arrays with the number of their last entry."""
        found: list[str] = []
        for part in parts:
            count = self._counts.get(".".join([*found, part]))
            found.append(part if count is None else f"{part}[{count}]")
        return found

    def line(self, key: str, job: int | None = None) -> int | None:
        """Return the line of a key, or of the nearest table around it, or None.

        Args:
            key: The key.
            job: The number of its job in a file that has several. What the job does not say itself is a default.
        """
        while key:
            for name in self._names(key, job):
                if name in self._lines:
                    return self._lines[name]
            key = re.sub(r"(?:\[\d+\]|\.?[^.\[\]]+)$", "", key)
        return None if job is None else self._lines.get(f"job[{job}]", self._lines.get("job"))

    def text_line(self, key: str, line: int, job: int | None = None) -> int | None:
        """Return the line of the file that holds a line, counted from 1, of a key's text."""
        for name in self._names(key, job):
            if name in self._text_lines:
                return self._text_lines[name] + line - 1
        return self.line(key, job)

    def _names(self, key: str, job: int | None) -> list[str]:
        """Return the names that a key of a job may have in the file."""
        if job is None:
            return [key]
        own = f"job[{job}].{key}"
        table = re.match(r"(\w+)\[", key)
        # A list of the job's own replaces the whole default.
        has_list = table is not None and f"job[{job}].{table[1]}" in self._lines
        return [own] if has_list else [own, key]


def _parts(dotted: str) -> list[str]:
    """Return the parts of a dotted key without quotes and spaces."""
    return [part.strip("\"'") for part in re.findall(_KEY, dotted)]
