"""A login by SCRAM, as the server sees it: two messages of the client, two answers.

    client  n,,n=alice,r=NONCE              server  r=NONCE+MORE,s=SALT,i=4096
    client  c=biws,r=NONCE+MORE,p=PROOF     server  v=SIGNATURE

An unknown user is answered in the same way and with the same work as one whose password is wrong, so that no stranger
learns who is a user. Apache Kafka ends such a login after its first message. Also stricter than there: what a client
says of channel binding must be what it began with, and an extension that must be understood ends the login.

Source in Kafka: `ScramSaslServer`, `ScramMessages`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Protocol, TypeAlias

from odradek.coordination.errors import OTHER_AUTHORIZATION, RefusedLoginError
from odradek.coordination.scram.credentials import MIN_ITERATIONS, ScramMechanism, base36, random_text
from odradek.messages.metadata.metadata_records import UserScramCredentialRecord

Credentials: TypeAlias = Callable[[], dict[str, UserScramCredentialRecord]]
"""Returns the credentials of a mechanism by user, as they are now."""

# Repeated are single characters only, never groups: those took a second and 120 MB for a message of 512 KB. What is
# within names and extensions is checked apart.
_NAME = r"[^,\0]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})"
    r"(?P<extensions>(?:,[^\0]*)?))"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[^\0]*)?)),p=(?P<proof>{_BASE64})"
)
_NO_ESCAPE = re.compile("=(?!2C|3D)")
_NO_EXTENSION = re.compile(",(?!(?!m=)[A-Za-z]+=[^,])")
"""An extension of another form, or one that must be understood (`m`)."""

_OF_TOKENS = re.compile(r",tokenauth=(?i:true)(?:,|\Z)")

_NEWEST = 16
_LONGEST = 1 << 13
"""A first message that is longer is refused: until the second one comes, each of thousands of strangers has it kept."""
_SECRET = secrets.token_bytes(32)
"""Makes up the salts of users that do not exist: always the same one for a name, until the program ends."""


class Tokens(Protocol):
    """The delegation tokens, as logins see them."""

    def valid(self, token_id: str) -> tuple[str, int] | None:
        """Return who a client is by a token, and for how many ms; None if nobody can log in by it."""

    def credential(self, mechanism: ScramMechanism, token_id: str) -> UserScramCredentialRecord | None:
        """Return what clients log in with by a token; None if it is not prepared."""

    def preparation(self, mechanism: ScramMechanism, token_id: str) -> Awaitable[None] | None:
        """Return what to wait for before a client can log in by a token; None if nothing is to be done."""


class ScramExchange:
    """One login by SCRAM. It belongs to the thread of its connection.

    Args:
        mechanism: The mechanism.
        credentials: The credentials of all users.
        nonce: The server's part of the nonce.
        tokens: The delegation tokens; None if there are none.

    Attributes:
        token_left_ms: After a login by a delegation token, how long that is valid.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        nonce: str | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._is_of_token = False
        self.token_left_ms: int | None = None
        self._nonce = random_text() if nonce is None else nonce
        self._credential: UserScramCredentialRecord | None = None
        self._is_known = False
        self._header = self._messages = ""

    def preparation(self, message: bytes) -> Awaitable[None] | None:
        """Return what to wait for before `evaluate` takes a message; None if nothing is to be done."""
        if self._tokens is None or self._credential is not None:
            return None
        match = _FIRST.fullmatch(message.decode("ascii", "replace"))
        if match is None or not _is_of_token(match["extensions"]) or _NO_ESCAPE.search(match["name"]):
            return None
        return self._tokens.preparation(self._mechanism, _unescaped(match["name"]))

    def evaluate(self, message: bytes) -> tuple[bytes, str | None]:
        """Take a message of the client.

        Returns:
            The answer, and who the client is if this was its last message.

        Raises:
            RefusedLoginError: The client is not who it says it is.
        """
        try:
            text = message.decode("ascii")
        except UnicodeDecodeError:
            raise RefusedLoginError from None
        if self._credential is None:
            return self._begin(text), None
        try:
            return self._end(text, self._credential)
        except RefusedLoginError as error:
            error.user = self._credential.name
            raise

    def _begin(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None or _NO_EXTENSION.search(match["extensions"]):
            raise RefusedLoginError
        name = _unescaped(match["name"])
        if match["authorization"] is not None and _unescaped(match["authorization"]) != name:
            raise RefusedLoginError(OTHER_AUTHORIZATION)
        # The search does not depend on whether there is such a user: in a long message its time would tell.
        self._is_of_token = _is_of_token(match["extensions"])
        if self._is_of_token:
            # They look alike, unlike passwords, whose iterations are as their users want them.
            credentials = {}
            found = None if self._tokens is None else self._tokens.credential(self._mechanism, name)
        else:
            credentials = self._credentials()
            found = credentials.get(name)
        self._is_known = found is not None and found.iterations >= MIN_ITERATIONS
        # Made up for known users too, so that it takes the same time.
        made_up = self._made_up(name, credentials)
        self._credential = found if found is not None and self._is_known else made_up
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._header = match["header"]
        self._messages = f"{match['bare']},{answer}"
        return answer.encode()

    def _made_up(self, name: str, credentials: dict[str, UserScramCredentialRecord]) -> UserScramCredentialRecord:
        """Return a credential that no password fits, and that looks like that of one of the newest users."""
        digest = self._mechanism.hmac(_SECRET, name.encode())
        newest = islice(reversed(credentials.values()), _NEWEST)
        # The same one each time, and seldom another when users come or go.
        like = max(newest, key=lambda one: self._mechanism.hmac(digest, one.name.encode()), default=None)
        iterations = MIN_ITERATIONS if like is None else max(MIN_ITERATIONS, like.iterations)
        salt = base36(int.from_bytes(digest, "big")).encode()
        if like is not None and not like.salt.isalnum():
            # Salts of clients are any bytes, of a length of their own.
            salt = hashlib.shake_128(b"salt" + digest).digest(len(like.salt))
        return UserScramCredentialRecord(name, self._mechanism.type, salt, digest, digest, iterations)

    def _end(self, text: str, credential: UserScramCredentialRecord) -> tuple[bytes, str]:
        mechanism = self._mechanism
        match = _FINAL.fullmatch(text)
        if match is None or _NO_EXTENSION.search(match["extensions"]):
            raise RefusedLoginError
        try:
            proof = base64.b64decode(match["proof"], validate=True)
            channel = base64.b64decode(match["channel"], validate=True)
        except binascii.Error:
            raise RefusedLoginError from None
        if match["nonce"] != self._nonce or channel != self._header.encode():
            raise RefusedLoginError
        messages = f"{self._messages},{match['bare']}".encode()
        signature = mechanism.hmac(credential.stored_key, messages)
        if len(proof) != len(signature):
            raise RefusedLoginError
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        answer = b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, messages))
        user = self._user(credential.name)
        if not (is_right and self._is_known) or user is None:
            raise RefusedLoginError
        return answer, user

    def _user(self, name: str) -> str | None:
        """Return who a client is by a name; None if it is a token that has expired meanwhile."""
        if not self._is_of_token:
            return name
        valid = None if self._tokens is None else self._tokens.valid(name)
        if valid is None:
            return None
        owner, self.token_left_ms = valid
        return owner


def _is_of_token(extensions: str) -> bool:
    return _OF_TOKENS.search(extensions) is not None


def _unescaped(name: str) -> str:
    if _NO_ESCAPE.search(name):
        raise RefusedLoginError
    return name.replace("=2C", ",").replace("=3D", "=")
