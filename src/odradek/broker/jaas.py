"""JAAS: how Kafka's settings name a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='other';

Source in Kafka: `JaasConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}


class LoginModule(NamedTuple):
    """A login module: its class, and its options by name."""

    name: str
    options: Mapping[str, str]


def parse_login_module(text: str) -> LoginModule:
    """Parse `CLASS required NAME="VALUE" ...;`.

    Raises:
        ValueError: It is of another form.
    """
    tokens, position = [], 0
    rest = text.strip()
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise ValueError("has a quotation mark that is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        tokens.append((match[3] or match[4]) if quoted is None else _ESCAPE.sub(_plain, quoted))
        position = match.end()
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens.pop() != ";":
        raise ValueError('is not of the form: MODULE required NAME="VALUE";')
    options = tokens[2:]
    if len(options) % 3 or any(equals != "=" for equals in options[1::3]):
        raise ValueError('has an option that is not of the form NAME="VALUE"')
    return LoginModule(tokens[0], dict(zip(options[::3], options[2::3], strict=True)))


def _plain(match: re.Match[str]) -> str:
    return _CONTROL.get(match[1], match[1])
