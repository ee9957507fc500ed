"""Delegation tokens (KIP-48): a client logs in by SCRAM, with the id and the HMAC of a token."""

from __future__ import annotations

import base64
import hmac
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import Login, ScramCredential
from aiokclient.testing.broker.security.options import TokenOptions
from aiokclient.testing.broker.security.principal import Principal
from aiokclient.testing.broker.security.scram import LEAST_ITERATIONS, make_credential

_SALT_BYTES: Final = 24


@dataclass
class DelegationToken:
    """A token. All times are milliseconds since the epoch."""

    token_id: str
    hmac: bytes
    owner: Principal
    requester: Principal
    renewers: Sequence[Principal]
    issued_ms: int
    expiry_ms: int
    max_ms: int

    def is_visible_to(self, principal: str) -> bool:
        """Return whether a client owns the token, has requested it, or may renew it."""
        return principal in map(str, (self.owner, self.requester, *self.renewers))

    def is_renewable_by(self, principal: str) -> bool:
        """Return whether a client may renew the token, and let it expire."""
        return principal in map(str, (self.owner, *self.renewers))


class DelegationTokens:
    """The tokens of a cluster."""

    def __init__(self, options: TokenOptions, rng: random.Random, time_ms: Callable[[], int]):
        self._options, self._rng, self._time_ms = options, rng, time_ms
        self._tokens: dict[str, DelegationToken] = {}

    @property
    def is_enabled(self) -> bool:
        return bool(self._options.secret)

    def list_tokens(self) -> list[DelegationToken]:
        """Return the tokens that have not expired."""
        now = self._time_ms()
        return [token for token in self._tokens.values() if token.expiry_ms >= now]

    def create_token(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        lifetime_ms: int,
    ) -> DelegationToken:
        """Create a token. A `lifetime_ms` of 0 or less means the maximum lifetime."""
        now, longest = self._time_ms(), self._options.max_lifetime_ms
        max_ms = now + (min(lifetime_ms, longest) if lifetime_ms > 0 else longest)
        token_id = self._make_id()
        signature = hmac.digest(self._options.secret.encode(), token_id.encode(), "sha512")
        expiry_ms = min(max_ms, now + self._options.expiry_ms)
        token = DelegationToken(
            token_id, signature, owner, requester, renewers, now, expiry_ms, max_ms
        )
        self._tokens[token_id] = token
        return token

    def _make_id(self) -> str:
        """Return a random id. As in Kafka, none begins with a dash, as options of commands do."""
        while True:
            token_id = base64.urlsafe_b64encode(self._rng.randbytes(16)).rstrip(b"=").decode()
            if not token_id.startswith("-"):
                return token_id

    def renew_token(self, signature: bytes, principal: Principal, period_ms: int) -> int:
        """Prolong a token, and return its new expiry. Raises Refused."""
        token, longest = self._find_changeable(signature, principal), self._options.expiry_ms
        wanted = min(period_ms, longest) if period_ms > 0 else longest
        token.expiry_ms = min(token.max_ms, self._time_ms() + wanted)
        return token.expiry_ms

    def expire_token(self, signature: bytes, principal: Principal, period_ms: int) -> int:
        """Let a token expire, and return its new expiry. Raises Refused.

        If the period is negative, remove the token, and return the period, as Kafka does in KRaft
        mode.
        """
        token = self._find_changeable(signature, principal)
        if period_ms < 0:
            del self._tokens[token.token_id]
            return period_ms
        token.expiry_ms = min(token.max_ms, self._time_ms() + period_ms)
        return token.expiry_ms

    def _find_changeable(self, signature: bytes, principal: Principal) -> DelegationToken:
        found = [each for each in self._tokens.values() if each.hmac == signature]
        if not found:
            raise Refused(Code.DELEGATION_TOKEN_NOT_FOUND, "There is no such token.")
        (token,), now = found, self._time_ms()
        if token.max_ms < now or token.expiry_ms < now:
            raise Refused(Code.DELEGATION_TOKEN_EXPIRED, "The token has expired.")
        if not token.is_renewable_by(str(principal)):
            raise Refused(
                Code.DELEGATION_TOKEN_OWNER_MISMATCH, "The client is neither owner nor renewer."
            )
        return token

    def find_login(self, mechanism: str, token_id: str) -> tuple[ScramCredential, Login] | None:
        """Return the credential and the owner of a token, or None if it is not valid now."""
        token = self._tokens.get(token_id)
        if token is None or token.expiry_ms < self._time_ms():
            return None
        password = base64.b64encode(token.hmac)
        salt = self._rng.randbytes(_SALT_BYTES)
        stored = make_credential(mechanism, password, salt, LEAST_ITERATIONS)
        return stored, Login(token.owner.name, token.expiry_ms, token=True)
