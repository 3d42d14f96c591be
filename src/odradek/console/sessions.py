"""Who has given the password, and whose a form is: an opaque token in a cookie, and only its hash here.

Without a password a browser gets its cookie with the first form that changes something.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

COOKIE = "odradek-session"
LIFETIME_S = 12 * 3600
_MOST_SESSIONS = 1000


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(text: str) -> bytes:
    return hashlib.sha256(_bytes_of(text)).digest()


class Sessions:
    """The readers who are logged in; they are forgotten when the console ends. Any thread may use it.

    Args:
        password: The password; None if there is none, and everybody is let in.
    """

    def __init__(self, password: str | None) -> None:
        self._password = None if password is None else _digest(password)
        self._secret = secrets.token_bytes(32)
        self._expiries: dict[bytes, float] = {}
        self._lock = threading.Lock()

    @property
    def has_password(self) -> bool:
        """Whether a password is asked for."""
        return self._password is not None

    def log_in(self, password: str) -> str | None:
        """Return a new token if the password is right; the comparison takes as long for any."""
        if self._password is None or not hmac.compare_digest(_digest(password), self._password):
            return None
        token = self.new_token()
        now = time.monotonic()
        with self._lock:
            self._expiries = {known: end for known, end in self._expiries.items() if end > now}
            while len(self._expiries) >= _MOST_SESSIONS:
                del self._expiries[next(iter(self._expiries))]
            self._expiries[_digest(token)] = now + LIFETIME_S
        return token

    @staticmethod
    def new_token() -> str:
        """Return a token that nobody can guess."""
        return secrets.token_urlsafe(32)

    def form_token(self, token: str) -> str:
        """Return what the forms of a browser with this cookie carry; no other page can know it."""
        return hmac.digest(self._secret, _bytes_of(token), "sha256").hex()

    def is_form_of(self, form_token: str, token: str | None) -> bool:
        """Whether a form was made for the browser with this cookie, by this console."""
        return token is not None and hmac.compare_digest(_bytes_of(form_token), self.form_token(token).encode())

    def knows(self, token: str | None) -> bool:
        """Whether a cookie's token is that of a reader who is logged in."""
        if self._password is None:
            return True
        if token is None:
            return False
        with self._lock:
            end = self._expiries.get(_digest(token))
        return end is not None and end > time.monotonic()

    def log_out(self, token: str | None) -> None:
        """Forget a token."""
        with self._lock:
            self._expiries.pop(_digest(token or ""), None)
