"""The keys of SCRAM, which are computed from a password, and the cache that keeps them."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final, Self, TypeAlias

KEPT: Final = 16
"""The maximum number of keys in a cache. All brokers of a cluster usually need the same keys."""

Derivation: TypeAlias = tuple[str, bytes, int]
"""The hash, the salt, and the number of iterations for computing keys from a password."""


class ScramKeys:
    """The client's and the broker's key of one user (RFC 5802). They are secrets."""

    __slots__ = ("_client", "_hash", "_server", "_stored")

    def __init__(self, hash_name: str, salted_password: bytes) -> None:
        self._hash = hash_name
        self._client = hmac.digest(salted_password, b"Client Key", hash_name)
        self._stored = hashlib.new(hash_name, self._client).digest()
        self._server = hmac.digest(salted_password, b"Server Key", hash_name)

    def compute_proof(self, messages: bytes) -> bytes:
        """Return the client's proof for the messages of an authentication."""
        signature = hmac.digest(self._stored, messages, self._hash)
        return bytes(ours ^ theirs for ours, theirs in zip(self._client, signature, strict=True))

    def compute_signature(self, messages: bytes) -> bytes:
        """Return the broker's signature for the messages of an authentication."""
        return hmac.digest(self._server, messages, self._hash)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __getstate__(self) -> Any:
        raise TypeError("The keys of SCRAM cannot be pickled.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__getstate__()


class ScramKeyCache:
    """The keys of one password, by the parameters that a broker has sent. Thread-safe."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[Derivation, ScramKeys] = {}

    def get_keys(self, derivation: Derivation) -> ScramKeys | None:
        """Return the keys, or None if they must be computed."""
        return self._keys.get(derivation)

    def keep_keys(self, derivation: Derivation, keys: ScramKeys) -> None:
        """Store keys. The oldest ones are dropped when there are too many."""
        self._keys = dict([*self._keys.items(), (derivation, keys)][-KEPT:])
