"""Compiles patterns that clients send.

RE2 matches in linear time, but takes its time to compile: 20 seconds for 600 KB of `\\pL`, 8 seconds for 500 bytes of
`x{0,999}`, and Python waits meanwhile. So a pattern has a limit for its length, for its parts that cost most, and for
what it may become. Apache Kafka has none of these; there a long pattern keeps one of several threads busy.
"""

from __future__ import annotations

import re
from typing import Any

import re2

MOST_CHARACTERS = 1 << 15
MOST_OPERATORS = 3_000
MOST_COSTLY = 100
MOST_NAMES = 10
_MOST_BYTES = 1 << 20
_MOST_REPEATED_BYTES = 1 << 17
_MOST_TIMES = 1_000
_OPERATORS = re.compile(r"[?*+\[\\]")
_CLASSES = re.compile(r"\\[pP]")
_NUMBERS = re.compile(r"[{,]([0-9]{1,4})")
_COSTLY = re.compile(r"\{|\\[pP]")


def pattern_options(pattern: str = "", most_bytes: int = _MOST_BYTES) -> Any:
    """Return how a pattern of somebody else is compiled.

    Args:
        pattern: The pattern.
        most_bytes: The most memory that it may take.
    """
    options = re2.Options()
    # Otherwise it writes to the standard error output.
    options.log_errors = False
    # Nobody asks what a group in parentheses has matched, and to know it costs the square of their number for each
    # character.
    options.never_capture = True
    # What is repeated by number is compiled as often as that, and what may be absent costs the square of how often.
    is_often = "){" in pattern or sum(map(int, _NUMBERS.findall(pattern))) > _MOST_TIMES
    options.max_mem = min(most_bytes, _MOST_REPEATED_BYTES) if is_often else most_bytes
    return options


def check_pattern(pattern: str, *, is_compiled: bool = True) -> None:
    """Check that a pattern, or several in a row, take some milliseconds at most.

    Args:
        pattern: The pattern.
        is_compiled: Whether it is compiled, or only parsed, which leaves repetitions as they are.

    Raises:
        re2.error: It has too much of something.
    """
    costly = _COSTLY if is_compiled else _CLASSES
    for what, found, most in (
        ("characters", len(pattern), MOST_CHARACTERS),
        ("operators", len(_OPERATORS.findall(pattern)) if is_compiled else 0, MOST_OPERATORS),
        ("repetitions by number and classes of Unicode", len(costly.findall(pattern)), MOST_COSTLY),
    ):
        if found > most:
            raise re2.error(f"{found} {what}, more than {most}")


def compiled(pattern: str, most_bytes: int = _MOST_BYTES) -> Any:
    """Compile a pattern.

    Args:
        pattern: The pattern.
        most_bytes: The most memory that it may take.

    Raises:
        re2.error: It is none of RE2's, or has too much of something.
    """
    check_pattern(pattern)
    found = _compiled(pattern, pattern_options(pattern, most_bytes))
    # RE2 remembers these all the same.
    if found.groups > MOST_NAMES:
        raise re2.error(f"{found.groups} named groups, more than {MOST_NAMES}")
    return found


def compiled_setting(pattern: str) -> Any:
    """Compile a pattern of somebody who is trusted; its groups can be asked for.

    Raises:
        re2.error: It is none of RE2's.
    """
    options = re2.Options()
    options.log_errors = False
    return _compiled(pattern, options)


def _compiled(pattern: str, options: Any) -> Any:
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (said,) = error.args
        raise re2.error(said.decode(errors="replace") if isinstance(said, bytes) else said) from None
    finally:
        # Else the last 128 ones are kept, up to a megabyte each.
        re2.purge()
