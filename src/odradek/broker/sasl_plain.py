"""SASL's mechanism PLAIN: names and passwords, which are in the settings of the listener.

    listener.name.sasl_ssl.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret" user_bob="other";

Source in Kafka: `PlainSaslServer`, `PlainServerCallbackHandler`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from odradek.broker.jaas import parse_login_module
from odradek.coordination.errors import OTHER_AUTHORIZATION, RefusedLoginError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER = "user_"


class Users:
    """The users of a listener, and their passwords. Their logins have one message each.

    Args:
        passwords: The passwords by name.

    Attributes:
        token_left_ms: None: nobody logs in by a delegation token.
    """

    token_left_ms: int | None = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        # All have one length: the time tells neither how long a password is nor whether there is such a user.
        self._key = secrets.token_bytes(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._of_nobody = secrets.token_bytes(32)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")

    def preparation(self, message: bytes) -> None:
        """Return None: nothing is to be done before `evaluate` takes a message."""

    def evaluate(self, message: bytes) -> tuple[bytes, str]:
        """Take a message: `authorization id NUL name NUL password`.

        Returns:
            The answer, which is empty, and the name.

        Raises:
            RefusedLoginError: It is of another form, or the name or the password is wrong.
        """
        parts = message.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise RefusedLoginError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        for what, text in (("username", name), ("password", password)):
            if not text:
                raise RefusedLoginError(f"Authentication failed: {what} not specified")
        is_right = hmac.compare_digest(self._digest(password), self._digests.get(name, self._of_nobody))
        if not is_right or name not in self._digests:
            raise RefusedLoginError("Authentication failed: Invalid username or password", name)
        if authorization_id not in ("", name):
            raise RefusedLoginError(OTHER_AUTHORIZATION, name)
        return b"", name


def parse_users(text: str) -> dict[str, str]:
    """Return the passwords by name of `...PlainLoginModule required user_NAME="PASSWORD" ...;`.

    Raises:
        ValueError: It is of another form.
    """
    module = parse_login_module(text)
    if module.name != PLAIN_MODULE:
        raise ValueError(f"is not {PLAIN_MODULE}")
    return {name.removeprefix(_USER): password for name, password in module.options.items() if name.startswith(_USER)}
