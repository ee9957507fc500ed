"""The SASL logins of one client: its mechanism, its credentials, and its token.

The mechanisms are imported when a client logs in, because many clients do not use SASL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokclient.background import TaskOwner
from aiokclient.clock import Clock
from aiokclient.config.client import ClientConfig
from aiokclient.errors import KafkaError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.event_hub import EventHub
from aiokclient.policy import refuses_token

if TYPE_CHECKING:
    from aiokclient.config.security import OAuthToken
    from aiokclient.network.sasl import Login
    from aiokclient.network.sasl.tokens import TokenSource

READABLE = {
    "PLAIN": "the password",
    "OAUTHBEARER": "the token",
}
"""The mechanisms that send the secret itself to the broker. The values describe the secrets."""


class Sasl:
    """The mechanism with which a client logs in to every broker."""

    def __init__(self, mechanism: str, credentials: Any, tokens: TokenSource | None = None) -> None:
        self.mechanism = mechanism
        self.encrypted = getattr(credentials, "tls", None) is not None
        """Whether the connections use TLS."""
        self._credentials = credentials
        self._tokens = tokens

    @classmethod
    def of(
        cls,
        config: ClientConfig,
        clock: Clock,
        tasks: TaskOwner,
        log: ClientLog,
        events: EventHub | None = None,
    ) -> Sasl | None:
        """Return the mechanism of these options, or None if they have none.

        The owner of `tasks` runs the task that fetches tokens, if the mechanism needs them.
        """
        security: Any = config.security
        mechanism: str | None = security.sasl_mechanism
        if mechanism is None:
            return None
        if mechanism != "OAUTHBEARER":
            return cls(mechanism, security)
        from aiokclient.network.sasl.tokens import TokenSource

        tokens = TokenSource(security, config, clock=clock, tasks=tasks, log=log, events=events)
        return cls(mechanism, security, tokens)

    def warn_if_readable(self, log: ClientLog) -> None:
        """Log a warning if others in the network can read the credentials."""
        secret = READABLE.get(self.mechanism)
        if secret is not None and not self.encrypted:
            log.warning(
                "%s without TLS sends %s unencrypted. Use tls=Tls() (security_protocol=SASL_SSL).",
                self.mechanism,
                secret,
                extra={"event": "credentials_unencrypted"},
            )

    async def prepare_login(self, host: str, timeout_s: float) -> Login:
        """Return the inputs of one authentication, with a token if the mechanism needs one.

        Raises TokenProviderError if there is no token within `timeout_s` seconds, and
        TokenRefusedError if the token endpoint refuses the client.
        """
        token = None if self._tokens is None else await self._tokens.get_token(timeout_s)
        from aiokclient.network.sasl import Login

        return Login(self._credentials, host, token)

    def on_outcome(self, login: Login, error: KafkaError | None) -> None:
        """Drop the token of a login that a broker has refused. Synchronous.

        The next login asks the provider for another one. `error` is None if the login succeeded.
        """
        if self._tokens is None:
            return
        if error is None:
            self._tokens.on_accepted(login.token)
        elif refuses_token(error):
            self._tokens.on_refused(login.token)

    @property
    def problem(self) -> KafkaError | None:
        """The reason why no connection can log in, or None if there is none or it is not known."""
        return None if self._tokens is None else self._tokens.problem

    def user_of(self, login: Login) -> str | None:
        """Return the name of the user for error texts, or None if it is not known."""
        token: OAuthToken | None = login.token
        return self._credentials.sasl_identity if token is None else token.principal

    def scrub_text(self, text: str, login: Login) -> str:
        """Return a text of a broker without the secrets of the login."""
        if login.token is not None:
            text = login.token.token.scrub_text(text)
        scrubbed: str = self._credentials.scrub_text(text)
        return scrubbed
