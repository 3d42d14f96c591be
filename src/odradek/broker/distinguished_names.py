"""Who a client is by its certificate, as Java writes it.

    subject    O=Example, OU=CN\\=admin, CN=eve + email eve@example.org
    name       1.2.840.113549.1.9.1=#160f657665406578616d706c652e6f7267+CN=eve,OU=CN\\=admin,O=Example
               the last part first; what has no keyword as its number and its bytes

Rules (`ssl.principal.mapping.rules`), ACLs and quotas are about this text. A value in which a `=` or a `,` were not
escaped could pass for other parts of the name, so everything is written as Java does it, also where that is odd: each
kind of text is read as UTF-8.

Source in Kafka: `DefaultKafkaPrincipalBuilder`, which asks `X500Principal.getName` (RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from odradek.der import first_element

_KEYWORDS = {
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_TEXTS = {_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP}
_VERSION = 0xA0
_SUBJECT = 4
"""After the version: the serial number, the signature's kind, the issuer, the validity, and then the subject."""
_MOST_NUMBER_BYTES = 4096
_TO_ESCAPE = re.compile(r'([,=+<>#;"\\])')
_SPACES = " \r"


class _Element(NamedTuple):
    """A value in DER: its tag, its content, and all of its bytes."""

    tag: int
    content: memoryview
    whole: memoryview


def distinguished_name(certificate: bytes) -> str:
    """Return the name of a certificate's subject.

    Args:
        certificate: The certificate, in DER.

    Raises:
        ValueError: It is not in DER.
    """
    try:
        [signed] = _elements(memoryview(certificate))
        body = next(_elements(signed.content))
        fields = [field for field in _elements(body.content) if field.tag != _VERSION]
        parts = list(_elements(fields[_SUBJECT].content))
        return ",".join("+".join(map(_attribute, _elements(part.content))) for part in reversed(parts))
    except (IndexError, StopIteration):
        raise ValueError("a certificate without a subject") from None


def _attribute(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    number = _number(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    text = _TO_ESCAPE.sub(r"\\\1", str(value.content, "utf-8", "replace")).replace("\0", r"\00")
    rest = text.lstrip(_SPACES)
    inner = rest.rstrip(_SPACES)
    return f"{keyword}={_escaped(text[: -len(rest) or None])}{inner}{_escaped(rest[len(inner) :])}"


def _escaped(spaces: str) -> str:
    return "".join(f"\\{space}" for space in spaces)


def _number(content: memoryview) -> str:
    """Return an object identifier with its points."""
    if len(content) > _MOST_NUMBER_BYTES:
        raise ValueError(f"an object identifier of {len(content)} bytes")
    arcs, arc = list[int](), 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _elements(content: memoryview) -> Iterator[_Element]:
    """Yield the values that follow each other."""
    while content:
        tag, inner, rest = first_element(content, "certificate")
        yield _Element(tag, inner, content[: len(content) - len(rest)])
        content = rest
