"""Bytes as text, where no place says whether they are text: fields of CSV, names of headers in files."""

from __future__ import annotations

import binascii

BASE64 = "base64:"


def text_or_base64(data: bytes) -> str:
    """Return bytes as text; those that are not UTF-8, or would be taken for base64, as `base64:` and their base64."""
    if not data.startswith(BASE64.encode()):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return f"{BASE64}{binascii.b2a_base64(data, newline=False).decode()}"


def bytes_of_text(text: str) -> bytes:
    """Return the bytes that `text_or_base64` has made text of.

    Raises:
        binascii.Error: What follows `base64:` is not base64.
    """
    if text.startswith(BASE64):
        return binascii.a2b_base64(text[len(BASE64) :], strict_mode=True)
    return text.encode()
