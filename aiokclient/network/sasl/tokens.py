"""The tokens of OAUTHBEARER: one owner task fetches them for all connections of a client.

    no token ──fetch──▶ token in use ──refresh time──▶ fetch, token still in use ──▶ token in use
        ▲                   │                               │ fails: again, with backoff
        │                   ▼                               │
        └── a broker has refused it, or it has expired ◀────┘

The task begins when a connection needs the first token. From then on, it fetches the next token
before the current one expires, at the time that the options `sasl_login_refresh_` determine. The
provider has at most one call at a time. If it fails or does not return in time, it is called again,
with backoff, and the current token remains in use until it expires. The provider is also called
again if the token endpoint refuses the client (TokenRefusedError), but connections fail with this
error until the provider returns a token.

A token that a broker has refused is not used again. If the next one is refused as well, the
provider is called after a delay, which grows until a broker accepts a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from aiokclient.background import TaskOwner, new_task
from aiokclient.clock import Clock
from aiokclient.config.client import ClientConfig
from aiokclient.config.security import OAuthToken, SaslOAuthBearer
from aiokclient.errors import ConfigError, KafkaError, TokenProviderError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.event_hub import EventHub
from aiokclient.policy import Backoff, refuses_login

RETRIEVED: Final = "The token provider did not return a token within {:.1f} s."


LONGEST_REST_S: Final = 1.0
"""The maximum delay in seconds before the provider is asked for another token after refusals."""


def refresh_delay_s(config: ClientConfig, life_s: float, random: float) -> float:
    """Return the seconds until a token that lives for `life_s` seconds is to be refreshed.

    The times are those of Kafka's Java clients. `random` is between 0 and 1.
    """
    jitter = config.sasl_login_refresh_window_jitter * random
    proposed_s = life_s * min(config.sasl_login_refresh_window_factor + jitter, 1.0)
    least_s = config.sasl_login_refresh_min_period_seconds
    buffer_s = config.sasl_login_refresh_buffer_seconds
    if least_s + buffer_s > life_s:
        return proposed_s  # The token expires so soon that both limits cannot be kept.
    return max(least_s, min(proposed_s, life_s - buffer_s))


class TokenSource:
    """The token of one client, which `get_token` returns as long as it has not expired.

    One call of the provider may take as long as a request.
    """

    def __init__(
        self,
        credentials: SaslOAuthBearer,
        config: ClientConfig,
        *,
        clock: Clock,
        tasks: TaskOwner,
        log: ClientLog,
        events: EventHub | None = None,
    ) -> None:
        self._provider = credentials.token_provider
        self._config = config
        self._backoff = Backoff.of_token_requests(config)
        self._attempt_s = config.request_timeout_ms / 1000
        self._clock = clock
        self._tasks = tasks
        self._log = log
        self._events = events
        self._token: OAuthToken | None = None
        self._running = False
        self._needed = asyncio.Event()
        self._waiters: list[asyncio.Future[OAuthToken]] = []
        self._error: KafkaError | None = None
        self._refusals = 0
        """The number of tokens that brokers have refused since they last accepted one."""
        self._began: float | None = None
        """The time of the first call of the provider since it last returned a token.

        None if there was no call since then.
        """

    async def get_token(self, timeout_s: float) -> OAuthToken:
        """Return a token that has not expired. If there is none, wait for the provider.

        Raises TokenProviderError if the next call of the provider fails, or if there is no token
        within `timeout_s` seconds, and TokenRefusedError if the token endpoint refuses the client.
        """
        token = self._find_usable_token()
        if token is not None:
            return token
        waiter: asyncio.Future[OAuthToken] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if not self._running:
            self._running = True
            self._tasks.spawn(self._keep_token, name="tokens")
        self._needed.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            raise TokenProviderError(RETRIEVED.format(timeout_s)) from self._error
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    @property
    def problem(self) -> KafkaError | None:
        """The reason why there is no token, or None if there is one or none was needed yet."""
        if self._find_usable_token() is not None or self._began is None:
            return None
        if self._refusals and self._error is None:
            return None  # The refusal of the last token is the problem.
        if self._error is not None:
            return self._error
        return TokenProviderError(RETRIEVED.format(self._clock.monotonic() - self._began))

    def on_refused(self, token: OAuthToken) -> None:
        """Drop a token that a broker has refused, unless there is another one. Synchronous."""
        if token is self._token:
            self._token = None
            self._refusals += 1

    def on_accepted(self, token: OAuthToken) -> None:
        """Record that a broker has accepted a token. Synchronous."""
        if token is self._token:
            self._refusals = 0

    def _find_usable_token(self) -> OAuthToken | None:
        token = self._token
        return token if token is not None and self._compute_life_s(token) > 0 else None

    def _compute_life_s(self, token: OAuthToken) -> float:
        return (token.expires_at_ms - self._clock.time_ms()) / 1000

    async def _keep_token(self) -> None:
        """Keep a token as long as the client is open."""
        failures = 0
        while True:
            self._needed.clear()
            if self._began is None:
                self._began = self._clock.monotonic()
            try:
                token = await self._fetch_token()
            except KafkaError as error:
                self._on_failed_fetch(error)
                delay_s = self._backoff.compute_delay_s(failures, self._clock.rng)
                failures += 1
                await asyncio.sleep(delay_s)
            else:
                failures = 0
                self._on_token(token)
                self._needed.clear()  # Connections that asked during the fetch have the token.
                random = self._clock.rng.random()
                await self._wait_for_refresh(
                    refresh_delay_s(self._config, self._compute_life_s(token), random)
                )
                await self._wait_after_refusals()

    async def _wait_for_refresh(self, delay_s: float) -> None:
        """Wait until the next refresh, or until a connection needs a token that has not expired.

        A connection needs a token before the refresh if the machine was suspended, or if its clock
        was corrected.
        """
        try:
            async with asyncio.timeout(delay_s):
                await self._needed.wait()
        except TimeoutError:
            pass

    async def _wait_after_refusals(self) -> None:
        """Wait before the next token, if brokers have refused several in a row."""
        if self._refusals > 1 and self._find_usable_token() is None:
            longest_s = min(self._backoff.maximum_s, LONGEST_REST_S)
            backoff = self._backoff._replace(maximum_s=longest_s)
            await asyncio.sleep(backoff.compute_delay_s(self._refusals - 2, self._clock.rng))

    async def _fetch_token(self) -> OAuthToken:
        loop = asyncio.get_running_loop()
        call = new_task(loop, self._call_provider(), name="token provider")
        try:
            await asyncio.wait([call], timeout=self._attempt_s)
        finally:
            done = call.done()
            if not done:
                # The task is not awaited, because it may ignore the cancellation.
                call.cancel()
                call.add_done_callback(partial(_retrieve))
        if not done:
            raise TokenProviderError(RETRIEVED.format(self._attempt_s))
        if call.cancelled():
            raise TokenProviderError("The token provider was cancelled.")
        error = call.exception()
        if isinstance(error, Exception):
            if isinstance(error, TokenProviderError) or refuses_login(error):
                raise error
            # Other messages may contain a token. Those of ConfigError do not.
            said = f": {error.message}" if isinstance(error, ConfigError) else "."
            raise TokenProviderError(
                f"The token provider raised {type(error).__name__}{said}"
            ) from error
        return self._require_valid(call.result())

    async def _call_provider(self) -> OAuthToken | str:
        """Return the provider's token, or the name of the type of what it has returned instead."""
        started = _awaitable_or_type(self._provider())
        if isinstance(started, str):
            raise TokenProviderError(
                f"The token provider returned an object of the type {started}, which cannot be "
                "awaited. It must be an async function."
            )
        return _token_or_type(await started)

    def _require_valid(self, token: OAuthToken | str) -> OAuthToken:
        if isinstance(token, str):
            raise TokenProviderError(f"The token provider returned a {token}, not an OAuthToken.")
        if self._compute_life_s(token) <= 0:
            raise TokenProviderError("The token provider returned a token that has expired.")
        return token

    def _on_token(self, token: OAuthToken) -> None:
        self._token, self._error, self._began = token, None, None
        self._emit()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(token)

    def _emit(self, cause: KafkaError | None = None) -> None:
        if self._events is not None:
            token = self._find_usable_token()
            expires_at_ms = None if token is None else token.expires_at_ms
            self._events.emit("TokenRefreshed", cause=cause, expires_at_ms=expires_at_ms)

    def _on_failed_fetch(self, error: KafkaError) -> None:
        self._error = error
        self._emit(error)
        self._log.warning(
            "%s%s",
            error.message,
            " The current token remains in use." if self._find_usable_token() else "",
            extra={"event": "token_failed"},
        )
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # Mark the error as retrieved: nothing may wait for it now.


def _awaitable_or_type(returned: object) -> Awaitable[object] | str:
    """Return an awaitable as it is, or the name of the type of any other object. Never raises.

    The other object may be a token, which must not be in a local variable of a traceback.
    """
    return returned if isinstance(returned, Awaitable) else type(returned).__name__


def _token_or_type(returned: object) -> OAuthToken | str:
    """Return an OAuthToken as it is, or the name of the type of any other object. Never raises.

    The other object may be a bare token, which must not appear in the repr of a task.
    """
    return returned if isinstance(returned, OAuthToken) else type(returned).__name__


def _retrieve(call: asyncio.Task[Any]) -> None:
    if not call.cancelled():
        call.exception()
