"""The fields of a form that a browser sends by POST, and the cookie that identifies the browser."""

from __future__ import annotations

from urllib.parse import parse_qsl

import anyio
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from odradek.console.sessions import COOKIE, LIFETIME_S

_LARGEST_FORM_BYTES = 4096
_FORM_TIMEOUT_S = 10.0
_MOST_FIELDS = 50


async def read_form(request: Request, most_bytes: int = _LARGEST_FORM_BYTES) -> QueryParams:
    """Return the fields of a form, which has to arrive within some seconds.

    Raises:
        HTTPException: The form is too large, takes too long, or has too many fields.
    """
    body = bytearray()
    try:
        with anyio.fail_after(_FORM_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > most_bytes:
                    raise HTTPException(413, "The form is too large.")
    except TimeoutError as error:
        raise HTTPException(408, "The form took too long.") from error
    try:
        text = body.decode("utf-8", "replace")
        return QueryParams(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise HTTPException(400, "The form has too many fields.") from error


def set_cookie(request: Request, answer: Response, token: str) -> None:
    """Set a cookie that scripts cannot read, and that the browser sends to the console's own pages only."""
    is_secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, max_age=LIFETIME_S, httponly=True, samesite="strict", secure=is_secure)
