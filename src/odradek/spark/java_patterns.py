r"""Java's regular expressions, as Spark's `subscribePattern` has them, for Python's `re`.

    \p{Alpha}  \p{IsDigit}  \P{Lu}  [\p{L}_]     classes of characters; names of topics have ASCII characters only
    \Qa.b\E                                      quoted text
    (?<name>...)  \k<name>  \z  \h               other spellings

What Python has not (`[a-z&&[^aeiou]]`, `[a[bc]]`, `\b{g}`, `\G`) is an error that names it. Source in Java:
`java.util.regex.Pattern`.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata

from odradek.errors import OptionError

_ASCII = "".join(map(chr, range(128)))
_CLASSES = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "ascii": _ASCII,
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "alnum": string.ascii_letters + string.digits,
    "punct": string.punctuation,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "blank": " \t",
    "cntrl": _ASCII[:32] + "\x7f",
    "xdigit": string.hexdigits,
    "space": string.whitespace,
}
"""Java's POSIX classes."""
_OTHER_NAMES = {
    "lowercase": "lower",
    "uppercase": "upper",
    "alphabetic": "alpha",
    "letter": "alpha",
    "latin": "alpha",
    "letterordigit": "alnum",
    "whitespace": "space",
    "basiclatin": "ascii",
}
_PROPERTY = re.compile(r"\\([pP])(?:\{([^{}]*)\}|([A-Za-z]))")
_PREFIX = re.compile(r"(?:Is|In|java|(?:general_category|gc|script|sc|block|blk)=)(?=.)")
_CATEGORY = re.compile(r"[CLMNPSZ][a-z]?")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_GROUP_NAME = re.compile(r"\\k<(\w+)>")


@functools.cache
def java_pattern(text: str) -> re.Pattern[str]:
    """Return Java's pattern as Python's.

    Raises:
        OptionError: It is no pattern, or has something that Python has not.
    """
    try:
        return re.compile("".join(_translated(text)))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from error


def _translated(text: str) -> list[str]:
    made: list[str] = []
    position, in_class = 0, False
    while position < len(text):
        rest = text[position : position + 2]
        found: re.Match[str] | None
        if found := _QUOTED.match(text, position):
            made.append(re.escape(found[1]))
        elif found := _PROPERTY.match(text, position):
            members = _members(text, found[2] or found[3], is_negated=found[1] == "P")
            made.append(members if in_class else f"[{members}]" if members else "(?!)")
        elif found := _GROUP_NAME.match(text, position):
            made.append(f"(?P={found[1]})")
        elif rest in (r"\z", r"\h"):
            made.append(r"\Z" if rest == r"\z" else r" \t" if in_class else r"[ \t]")
        elif text.startswith(r"\b{", position):
            raise _unknown(text, r"\b{...}")
        elif rest.startswith("\\"):
            made.append(rest)
        elif in_class and (rest == "&&" or rest[0] == "["):
            raise _unknown(text, "a class of characters within another")
        elif in_class:
            made.append(rest[0])
            in_class = rest[0] != "]"
        elif found := re.compile(r"\[\^?\]?").match(text, position):
            # A bracket right after the first one is a member.
            made.append(found[0])
            in_class = True
        elif found := re.compile(r"\(\?<(?![=!])").match(text, position):
            made.append("(?P<")
        else:
            made.append(rest[0])
        position = found.end() if found else position + (2 if rest[0] == "\\" else 1)
    return made


def _members(text: str, name: str, *, is_negated: bool) -> str:
    """Return the ASCII characters of a class, escaped."""
    plain = _PREFIX.sub("", name, count=1)
    key = plain.lower().replace("_", "")
    members = _CLASSES.get(_OTHER_NAMES.get(key, key))
    if members is None:
        if not _CATEGORY.fullmatch(plain):
            raise _unknown(text, rf"\p{{{name}}}")
        members = "".join(one for one in _ASCII if unicodedata.category(one).startswith(plain))
    wanted = (one for one in _ASCII if (one in members) is not is_negated)
    return "".join(f"\\x{ord(one):02x}" for one in wanted)


def _unknown(text: str, what: str) -> OptionError:
    return OptionError(f"subscribePattern {text!r}: {what} of Java's patterns is not known here")
