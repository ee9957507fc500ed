"""The users of SCRAM, which a cluster stores for all its listeners."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from aiokclient.testing.broker.security.mechanism import ScramCredential
from aiokclient.testing.broker.security.scram import HASHES, make_credential

_SALT_BYTES: Final = 24


class ScramUsers:
    """The SCRAM credentials of a cluster, by user and mechanism."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._passwords: dict[tuple[str, str], str] = {}

    def add_user(self, mechanism: str, user: str, password: str, iterations: int) -> None:
        """Add a user of a listener.

        Raises ValueError if another listener has the same user with another password.
        """
        if self._passwords.setdefault((mechanism, user), password) != password:
            raise ValueError(
                f"listeners: The user {user!r} has two passwords for {mechanism}. SCRAM users are "
                "the same on all listeners."
            )
        if user not in self._credentials or mechanism not in self._credentials[user]:
            salt = self._rng.randbytes(_SALT_BYTES)
            self.store_credential(
                user, mechanism, make_credential(mechanism, password.encode(), salt, iterations)
            )

    def store_credential(self, user: str, mechanism: str, stored: ScramCredential) -> None:
        """Store a credential, in place of an earlier one."""
        self._credentials.setdefault(user, {})[mechanism] = stored

    def remove_credential(self, user: str, mechanism: str) -> bool:
        """Remove a credential, and return whether it existed."""
        found = self._credentials.get(user, {})
        if found.pop(mechanism, None) is None:
            return False
        if not found:
            del self._credentials[user]
        return True

    def find_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._credentials.get(user, {}).get(mechanism)

    def list_credentials(self, user: str) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user by mechanism, in Kafka's order of mechanisms."""
        found = self._credentials.get(user, {})
        return {name: found[name] for name in HASHES if name in found}

    @property
    def names(self) -> list[str]:
        return list(self._credentials)
