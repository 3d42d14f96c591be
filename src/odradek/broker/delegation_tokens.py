"""The delegation tokens of a broker, which are in its metadata: found by their ids and secrets, changed, removed.

    delegation.token.secret.key=...       without it there are no tokens, and nothing here is made

A client shows the HMAC of a token to renew it, and proves to know it to log in. The tokens are found by a digest of the
HMAC, with a key that this process made up: how long the search takes tells nothing of the HMACs.

Source in Kafka: `DelegationTokenCache`, `DelegationTokenManager`, `DelegationTokenControlManager`.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.tasks import Tasks
from odradek.coordination.delegation_tokens import (
    Lifetimes,
    created,
    is_expired,
    memory_bytes,
    owner_name,
    token_credential,
    token_hmac,
)
from odradek.coordination.errors import RefusedError, TokenErrorCode
from odradek.coordination.scram.credentials import MECHANISMS_BY_TYPE, ScramMechanism
from odradek.errors import OdradekError
from odradek.messages.metadata.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    UserScramCredentialRecord,
)
from odradek.messages.uuids import format_uuid, random_uuid
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.metadata_image import MetadataImage

_logger = logger(__name__)

_MOST_REMOVED = 1000

MOST_BYTES_OF_ONE = 1 << 18
MOST_BYTES_OF_REQUESTER = 1 << 22
MOST_BYTES = 1 << 24
"""How much memory a token, the tokens of a requester, and all tokens may take. Kafka has no limit."""

_Change: TypeAlias = DelegationTokenRecord | RemoveDelegationTokenRecord


class _Known(NamedTuple):
    """What is remembered of a token.

    Attributes:
        digest: What it is found by.
        requester: Who asked for it.
        bytes: About how much memory it takes.
    """

    digest: bytes
    requester: str
    bytes: int


class DelegationTokens:
    """The delegation tokens. It belongs to the event loop's thread.

    Args:
        logs: The log directory, whose metadata have the tokens.
        config: The broker's settings.
        clock: The time.
        run: Runs an action in another thread.

    Attributes:
        lifetimes: How long tokens are valid.
    """

    def __init__(
        self,
        logs: WritableLogDirectory,
        config: BrokerConfig,
        clock: Clock,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._run = run
        # As in Java, a half of a pair of surrogates becomes a question mark.
        self._secret_key = config.token_secret_key.encode("utf-8", "replace")
        self._interval_ms: int = config["delegation.token.expiry.check.interval.ms"]
        max_ms, expiry_ms = config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"]
        self.lifetimes = Lifetimes(max_ms, expiry_ms)
        self._changing = asyncio.Lock()
        self._removals = Tasks(self._removal_failed)
        self._blind = secrets.token_bytes(32)
        self._ids: dict[bytes, str] = {}
        self._known: dict[str, _Known] = {}
        self._bytes_of: Counter[str] = Counter()
        self._bytes = 0
        self._credentials: dict[tuple[int, str], UserScramCredentialRecord] = {}
        self._preparing: dict[tuple[int, str], asyncio.Future[None]] = {}
        for token in self.all.values():
            self._add(token)

    @property
    def all(self) -> dict[str, DelegationTokenRecord]:
        """The tokens by their ids, those included that have expired since they were last looked through."""
        return self._logs.metadata_image.delegation_tokens

    @property
    def are_supported(self) -> bool:
        """Whether the metadata can have tokens."""
        return self._logs.metadata_image.has_delegation_tokens

    def start(self) -> None:
        """Remove tokens that expire, from now on."""
        self._clock.after(self._interval_ms, self._remove_later)

    def hmac_of(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return token_hmac(self._secret_key, token_id)

    def _digest(self, secret: bytes) -> bytes:
        return hmac.digest(self._blind, secret, "sha256")

    def find(self, secret: bytes) -> DelegationTokenRecord:
        """Return the token that has a secret.

        Raises:
            RefusedError: There is none.
        """
        token = self.all.get(self._ids.get(self._digest(secret), ""))
        if token is None or not hmac.compare_digest(secret, self.hmac_of(token.token_id)):
            raise RefusedError(TokenErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    # -- logins

    def valid(self, token_id: str) -> tuple[str, int] | None:
        """Return who a client is by a token, and for how many ms; None if nobody can log in by it."""
        token, now_ms = self.all.get(token_id), self._clock.now_ms()
        if token is None or is_expired(token, now_ms):
            return None
        name, left_ms = owner_name(token), min(token.max_timestamp, token.expiration_timestamp) - now_ms
        return None if name is None or left_ms <= 0 else (name, left_ms)

    def credential(self, mechanism: ScramMechanism, token_id: str) -> UserScramCredentialRecord | None:
        """Return what clients log in with by a token; None if it is not prepared."""
        return self._credentials.get((mechanism.type, token_id))

    def preparation(self, mechanism: ScramMechanism, token_id: str) -> Awaitable[None] | None:
        """Return what to wait for before a client can log in by a token; None if nothing is to be done."""
        if self.valid(token_id) is None or self.credential(mechanism, token_id) is not None:
            return None
        # Once, however many clients come with a token at a time: strangers may know its id.
        key = mechanism.type, token_id
        if key not in self._preparing:
            task = self._preparing[key] = asyncio.ensure_future(self._prepare(mechanism, token_id))
            task.add_done_callback(lambda _: self._preparing.pop(key))
        return asyncio.shield(self._preparing[key])

    async def _prepare(self, mechanism: ScramMechanism, token_id: str) -> None:
        made = await self._run(partial(token_credential, mechanism, token_id, self.hmac_of(token_id)))
        if token_id in self._known:
            self._credentials[mechanism.type, token_id] = made

    # -- changes

    async def create(
        self, owner: str, requester: str, renewers: tuple[str, ...], max_lifetime_ms: int
    ) -> DelegationTokenRecord:
        """Create a token, and return it.

        Raises:
            RefusedError: There are too many.
        """
        token_id = format_uuid(random_uuid())
        now_ms = self._clock.now_ms()
        token = created(token_id, owner, requester, renewers, max_lifetime_ms, self.lifetimes, now_ms)
        async with self._changing:
            size = memory_bytes(token)
            if (
                size > MOST_BYTES_OF_ONE
                or self._bytes_of[requester] + size > MOST_BYTES_OF_REQUESTER
                or self._bytes + size > MOST_BYTES
            ):
                raise RefusedError(TokenErrorCode.POLICY_VIOLATION, "there are too many delegation tokens")
            await self._write([token])
        return token

    async def change(self, secret: bytes, change: Callable[[DelegationTokenRecord, int], _Change]) -> int:
        """Change the token that has a secret; return when it expires.

        Args:
            secret: Its HMAC.
            change: Returns what becomes of the token, which is given with the time.

        Raises:
            RefusedError: There is no such token, or it may not be changed so.
        """
        async with self._changing:
            now_ms = self._clock.now_ms()
            changed = change(self.find(secret), now_ms)
            await self._write([changed])
        return changed.expiration_timestamp if isinstance(changed, DelegationTokenRecord) else now_ms

    async def _write(self, records: Sequence[_Change]) -> None:
        try:
            await self._run(partial(self._logs.metadata.alter_delegation_tokens, lambda image: records))
        finally:
            # Also what a change that failed has left.
            for record in records:
                token = self.all.get(record.token_id)
                if token is None:
                    self._drop(record.token_id)
                elif token.token_id not in self._known:
                    self._add(token)

    def _add(self, token: DelegationTokenRecord) -> None:
        known = _Known(self._digest(self.hmac_of(token.token_id)), token.requester, memory_bytes(token))
        self._known[token.token_id] = known
        self._ids[known.digest] = token.token_id
        self._bytes_of[known.requester] += known.bytes
        self._bytes += known.bytes

    def _drop(self, token_id: str) -> None:
        known = self._known.pop(token_id, None)
        if known is None:
            return
        del self._ids[known.digest]
        self._bytes -= known.bytes
        self._bytes_of[known.requester] -= known.bytes
        if not self._bytes_of[known.requester]:
            del self._bytes_of[known.requester]
        for mechanism in MECHANISMS_BY_TYPE:
            self._credentials.pop((mechanism, token_id), None)

    # -- expiry

    def _remove_later(self) -> None:
        self.start()
        if not self._removals:
            self._removals.start(self._remove_expired())

    async def _remove_expired(self) -> None:
        """Remove the tokens that have expired, not many at a time: other changes have their turn between."""
        while removals := await self._run(partial(_expired, self._logs.metadata_image, self._clock.now_ms())):
            async with self._changing:
                await self._write([one for one in removals if one.token_id in self.all])
            _logger.info("%d delegation tokens have expired and were removed", len(removals))

    def _removal_failed(self, error: BaseException) -> None:
        if isinstance(error, OdradekError | OSError):
            _logger.warning("delegation tokens that have expired are not removed: %s", error)
        else:
            _logger.error("delegation tokens that have expired are not removed", exc_info=error)


def _expired(image: MetadataImage, now_ms: int) -> list[RemoveDelegationTokenRecord]:
    found = (token_id for token_id, token in image.delegation_tokens.items() if is_expired(token, now_ms))
    return [RemoveDelegationTokenRecord(token_id) for token_id in islice(found, _MOST_REMOVED)]
