"""The answer of any API with an error that a test wants, where its clients look for it.

A Fetch has errors of fetch sessions at the top, and all others at its partitions; see `odradek.broker.failures`.

Source in Kafka: `AbstractRequest.getErrorResponse`, `FetchRequest.getErrorResponse`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.failures import failure
from odradek.broker.protocol import FETCH_KEY, Message, RequestHeader

SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.fetch_session_topic_id_error,
    }
)
"""The errors of a Fetch that are at its top."""


def error_answer(header: RequestHeader, request: Any, code: int) -> Message:
    """Return the answer to a request that has an error.

    Args:
        header: The request's header.
        request: Its body, an object of kio's class.
        code: Kafka's code of the error.
    """
    at_top = header.api_key != FETCH_KEY or code in SESSION_ERRORS
    return failure(header, request, code, ErrorCode(code).__doc__, at_top=at_top)
