"""A client's side of a login by SCRAM, from the text of RFC 5802: it shares no code with the server's side."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramLogin:
    """One login.

    Args:
        mechanism: Its name in SASL.
        name: The user.
        password: The password.
        authorization: The authorization id.
        extensions: What follows the nonce of the first message.

    Attributes:
        expected: The server's last message, if it knows the user.
    """

    def __init__(
        self, mechanism: str, name: str, password: str, *, authorization: str = "", extensions: str = ""
    ) -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self._header = f"n,{f'a={authorization}' if authorization else ''},"
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r=fyko+d2lbbFgONRv9qkxdawL{extensions}"
        self.expected = b""

    def first(self) -> bytes:
        """Return the first message."""
        return (self._header + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the last message."""
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        bare = f"c={base64.b64encode(self._header.encode()).decode()},r={fields['r']}"
        message = f"{self._bare},{server_first.decode()},{bare}".encode()
        signature = hmac.digest(stored_key, message, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, self._hash))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()
