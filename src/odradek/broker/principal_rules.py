"""What a client is called that has a certificate: the rules of `ssl.principal.mapping.rules`, the first that matches.

    RULE:^CN=(.*?),OU=Users.*$/$1/L, RULE:^CN=(.*?)$/$1/, DEFAULT

    pattern       matches the whole distinguished name, in RE2's syntax
    replacement   of what the pattern matches: $1 is its first group
    L, U          the result in small or capital letters
    DEFAULT       the distinguished name

Source in Kafka: `SslPrincipalMapper`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_PART = re.compile(r"\\(.)|\$([0-9]+)|\$(.?)|([^\\$]+)", re.DOTALL)


class _Rule(NamedTuple):
    """A rule; without a pattern it is DEFAULT.

    Attributes:
        pattern: RE2's pattern.
        template: The replacement: texts, and the numbers of groups.
        case: `L`, `U` or nothing.
    """

    pattern: Any = None
    template: tuple[str | int, ...] = ()
    case: str = ""

    def name(self, distinguished_name: str) -> str | None:
        """Return what the rule makes of a name; None if it does not match."""
        if self.pattern is None:
            return distinguished_name
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        name = str(self.pattern.sub(self._replacement, distinguished_name))
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replacement(self, match: Any) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.template)


class PrincipalRules:
    """The rules of a listener.

    Args:
        text: The setting.

    Raises:
        ValueError: A rule is of another form, or its pattern is not one of RE2.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        for split in _SPLITTER.finditer(text.strip()):
            match = _PARSER.match(split[1])
            if match is None or match.end() < len(split[1]):
                raise ValueError(f"has a rule that is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/[LU]: {split[1]}")
            if match[1] is not None:
                self._rules.append(_Rule())
            elif match[2] is not None:
                self._rules.append(_rule(match[2], match[3], match[4]))

    def name(self, distinguished_name: str) -> str | None:
        """Return what a client is called; None if no rule is about it."""
        return next((name for rule in self._rules if (name := rule.name(distinguished_name)) is not None), None)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    # Only for those who have rules.
    import re2

    from odradek.coordination.patterns import compiled_setting

    try:
        compiled = compiled_setting(pattern)
    except re2.error as error:
        raise ValueError(f"has a pattern that RE2 does not take: {pattern} ({error})") from None
    return _Rule(compiled, tuple(_template(replacement, compiled.groups)), case)


def _template(replacement: str, groups: int) -> list[str | int]:
    """Read a replacement as Java does; a group that the pattern does not have is text, as in Kafka."""
    parts: list[str | int] = []
    for match in _PART.finditer(replacement):
        escaped, number, other, text = match.groups()
        if other is not None:
            raise ValueError(f"has a replacement with ${other}: $ is followed by the number of a group, or escaped")
        if number is None:
            parts.append(escaped or text)
            continue
        if not groups and number[0] != "0":
            raise ValueError(f"has a replacement with ${number}, and no group in its pattern")
        digits = next((end for end in range(len(number), 0, -1) if int(number[:end]) <= groups), 0)
        parts += [int(number[:digits]), number[digits:]] if digits else [f"${number}"]
    return parts
