"""The security of a cluster: its listeners, and who may log in to each of them."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping
from functools import partial

from aiokclient.testing.broker.connections.sasl import Accounts, Authentication, Login
from aiokclient.testing.broker.security.acls import Authorizer
from aiokclient.testing.broker.security.jwt import check_token
from aiokclient.testing.broker.security.listeners import CONTROLLER, DEFAULT, BrokerListener
from aiokclient.testing.broker.security.mechanism import Bearer, ScramCredential
from aiokclient.testing.broker.security.options import (
    TokenOptions,
    make_authorizer,
    read_token_options,
    split_configs,
)
from aiokclient.testing.broker.security.quotas import ClientQuotas
from aiokclient.testing.broker.security.scram import HASHES
from aiokclient.testing.broker.security.scram_users import ScramUsers
from aiokclient.testing.broker.security.tokens import DelegationTokens


class Security:
    """The listeners of a cluster by name, and the accounts of its users.

    `server_context` returns the TLS context of a listener.
    """

    def __init__(
        self, rng: random.Random, now: Callable[[], float], time_ms: Callable[[], int]
    ) -> None:
        self._rng, self._now, self._time_ms = rng, now, time_ms
        self.listeners: dict[str, BrokerListener] = {
            DEFAULT: BrokerListener(),
            CONTROLLER: BrokerListener(),
        }
        self.scram = ScramUsers(rng)
        self.authorizer: Authorizer | None = None
        """The check of ACLs. If it is None, everybody may do everything."""
        self.tokens = DelegationTokens(TokenOptions("", 0, 0), rng, self._now_ms)
        self.quotas = ClientQuotas(self._loop_time)
        self._contexts: dict[str, ssl.SSLContext] = {}

    def apply_configs(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Apply the configs about security, and return all other configs. Raises ValueError."""
        own, others = split_configs(configs)
        self.authorizer = make_authorizer(own)
        self.tokens = DelegationTokens(read_token_options(own), self._rng, self._now_ms)
        return others

    def add_listeners(
        self,
        listeners: Mapping[str, BrokerListener],
        context_of: Callable[[BrokerListener], ssl.SSLContext],
    ) -> None:
        """Add listeners with their users. `context_of` makes the TLS context of one of them."""
        for name, listener in listeners.items():
            self.listeners[name] = listener
            for mechanism in listener.mechanisms:
                if mechanism in HASHES:
                    for user, password in listener.users.items():
                        self.scram.add_user(mechanism, user, password, listener.iterations)
            if listener.tls:
                self._contexts[name] = context_of(listener)

    def _loop_time(self) -> float:
        return self._now()

    def _now_ms(self) -> int:
        return self._time_ms()

    def server_context(self, listener: str) -> ssl.SSLContext | None:
        """Return the TLS context of a listener, or None for a listener without TLS."""
        return self._contexts.get(listener)

    def make_authentication(self, listener: str) -> Authentication:
        """Return the authentication of a new connection."""
        settings = self.listeners[listener]
        return Authentication(
            tuple(settings.mechanisms),
            Accounts(settings.users, self, partial(self._check_bearer, settings), self._rng),
            self._now,
            self._time_ms,
            settings.max_reauth_ms,
        )

    def _check_bearer(self, settings: BrokerListener, token: str) -> Bearer:
        return check_token(token, settings.token_rules, self._time_ms())

    # -- the accounts of SCRAM -----------------------------------------------------------------

    def find_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.scram.find_credential(user, mechanism)

    def find_token_login(
        self, mechanism: str, token_id: str
    ) -> tuple[ScramCredential, Login] | None:
        return self.tokens.find_login(mechanism, token_id)
