"""Logins by OAUTHBEARER with a token that another program keeps in a file.

    sasl.mechanism=OAUTHBEARER
    sasl.oauthbearer.token.endpoint.url=file:///run/secrets/token

The file is read for each login, so a token may be replaced while a client runs.

Source in Kafka: `FileJwtRetriever`, `OAuthBearerLoginCallbackHandler`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kafka.errors import KafkaConfigurationError
from kafka.net.sasl.oauth import AbstractTokenProvider

from odradek.arguments import path_of_file_url
from odradek.errors import OdradekError
from odradek.storage.regular_files import read_file

_URL = "sasl.oauthbearer.token.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_CLASSES = {
    "sasl.login.callback.handler.class": (f"{_PACKAGE}OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (f"{_PACKAGE}DefaultJwtRetriever", f"{_PACKAGE}FileJwtRetriever"),
}
"""What Kafka's own clients need to do the same."""

_MOST_BYTES = 1 << 16
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


@dataclass(frozen=True)
class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """A token in a file. Any thread may use it, and other processes get it by its path.

    Attributes:
        path: The file.
    """

    path: Path

    def token(self) -> str:
        """Return the token.

        Raises:
            KafkaConfigurationError: The file cannot be read, or has something else.
        """
        try:
            text = read_file(self.path, _MOST_BYTES).decode("ascii", "replace").strip()
        except (OSError, OdradekError) as error:
            raise KafkaConfigurationError(f"{self.path} cannot be read: {error}") from None
        if not _TOKEN.fullmatch(text):
            raise KafkaConfigurationError(f"{self.path} has no token")
        return text


def with_token(options: Mapping[str, str]) -> tuple[dict[str, str], TokenFile | None]:
    """Return settings without those of OAUTHBEARER, and the token that they name.

    Raises:
        ValueError: They name no file.
    """
    if options.get("sasl.mechanism", "").strip() != "OAUTHBEARER":
        return dict(options), None
    left = {name: text for name, text in options.items() if name not in (_URL, "sasl.jaas.config", *_CLASSES)}
    for name, classes in _CLASSES.items():
        if options.get(name, classes[0]).strip() not in classes:
            raise ValueError(f"{name} is one of {', '.join(classes)}")
    path = path_of_file_url(urlsplit(options.get(_URL, "").strip()))
    if path is None:
        raise ValueError(f"sasl.mechanism=OAUTHBEARER needs a file with a token: {_URL}=file:///PATH")
    return left, TokenFile(path)
