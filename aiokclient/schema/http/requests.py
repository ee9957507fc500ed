"""Requests to a schema registry: several URLs, attempts until a deadline, and bounded answers.

    call ──▶ attempt at the current URL ──answer──▶ the URL stays the current one
                 ▲            │ outage: no connection, no answer, 429, 502 to 504, or 500 with a
                 │            ▼         code that says that the registry has no answer now
                 └── delay ◀── the next URL becomes the current one (after 429, the same)

The deadline bounds all attempts of a call together. Each attempt at one of several URLs has its
share of the time that is left, so that a silent URL leaves some to the others. A request that is
not repeatable (a deletion) is not sent again once the registry may have carried it out.

httpcore2 has the credentials in local variables of its functions. So what it raises is replaced
here by an outage, which refers to no traceback.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import httpcore2

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.config.secret import Secret
from aiokclient.config.security.sasl import OAuthToken
from aiokclient.errors import (
    KafkaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    TlsError,
    TokenProviderError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.log.texts import bounded
from aiokclient.metrics import Metrics
from aiokclient.network.event_hub import EventHub
from aiokclient.network.sasl.tokens import TokenSource
from aiokclient.policy import Backoff
from aiokclient.schema.http.endpoints import Call, Credentials, Endpoint
from aiokclient.schema.http.transport import HandshakeError
from aiokclient.types.named_tuple import NamedTuple

LARGEST_ANSWER: Final = 32 * 1024 * 1024
"""The size in bytes of the largest answer that is read."""
LARGE: Final = 256 * 1024
"""The size in bytes from which an answer is decoded in a thread, because it takes milliseconds."""
LONGEST_TEXT: Final = 300
"""The number of characters that an error shows of an answer that is no JSON."""
LONGEST_DELAY_S: Final = 2.0
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPTED: Final = f"{CONTENT_TYPE}, application/json"

TEMPORARY_STATUSES: Final = frozenset({429, 502, 503, 504})
TEMPORARY_CODES: Final = frozenset({50001, 50002, 50003, 50004})
"""Codes with which the status 500 says that the registry has no answer now.

Without one of them, 500 is a defect of the registry, such as that of some for an unknown type of
schema. The same request would meet it again.
"""
NOT_FOUND: Final = frozenset({40401, 40402, 40403, 40404, 40406})


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after_s: float | None
    token: OAuthToken | None
    """The token that was sent, which the registry may have put into its answer."""


class _Outage(NamedTuple):
    """The outcome of an attempt that has given no answer."""

    text: str
    cause: Exception
    may_be_done: bool
    """Whether the registry may have carried out the request."""
    stays: bool = False
    """Whether another URL would not help."""
    delay_s: float = 0.0
    """The least time until the next attempt, in seconds."""


class RegistryRequests:
    """The requests of one client of a registry. It belongs to one event loop."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        pool: httpcore2.AsyncConnectionPool,
        *,
        proxy: Endpoint | None,
        basic: Credentials | None,
        tokens: TokenSource | None,
        headers: tuple[tuple[str, Secret], ...],
        timeout_s: float,
        metrics: Metrics,
        events: EventHub,
        clock: Clock,
        log: ClientLog,
    ) -> None:
        self._endpoints = endpoints
        self._pool = pool
        self._proxy = proxy
        self._metrics = metrics
        self._events = events
        self._tokens = tokens
        self._basic = basic
        self._headers = headers
        self._timeout_s = timeout_s
        self._clock = clock
        self._log = log
        self._current = 0
        self._backoff = Backoff(maximum_s=LONGEST_DELAY_S)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def ask(self, call: Call) -> Any:
        """Return the decoded JSON of the answer.

        Raises SchemaRegistryError if the registry refuses the call, or answers with something else,
        SchemaRegistryUnavailableError if there is no answer before the timeout, TlsError if the TLS
        handshake fails for good, and TokenRefusedError if there can be no token.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        outcomes: dict[str, str] = {}
        failures = 0
        may_be_done = False
        while True:
            index = self._current
            endpoint = self._endpoints[index]
            left_s = deadline - self._clock.monotonic()
            untried = max(1, len(self._endpoints) - failures)
            outcome = await self._attempt(endpoint, call, max(left_s / untried, 0.001))
            if isinstance(outcome, _Answer):
                if len(outcome.body) > LARGE:
                    return await threads.run(self._decode, endpoint, call, outcome)
                return self._decode(endpoint, call, outcome)
            may_be_done = may_be_done or (outcome.may_be_done and call.method != "GET")
            outcomes[endpoint.url] = outcome.text
            if self._events.heard:
                self._events.emit("RegistryOutage", url=endpoint.url, cause=outcome.cause)
            if not outcome.stays:
                self._leave(index, outcome)
            if outcome.may_be_done and not call.is_repeatable:
                raise SchemaRegistryUnavailableError(
                    f"The registry may have carried out {call.method} {call.path}.",
                    attempts=tuple(outcomes.items()),
                    may_be_done=True,
                ) from outcome.cause
            failures += 1
            delay_s = outcome.delay_s
            if failures >= len(self._endpoints):
                attempt = failures - len(self._endpoints)
                delay_s = max(delay_s, self._backoff.compute_delay_s(attempt, self._clock.rng))
            if self._clock.monotonic() + delay_s >= deadline:
                raise SchemaRegistryUnavailableError(
                    f"There was no answer to {call.method} {call.path} within "
                    f"{self._timeout_s:.1f} s.",
                    attempts=tuple(outcomes.items()),
                    may_be_done=may_be_done,
                ) from outcome.cause
            await asyncio.sleep(delay_s)

    def _leave(self, index: int, outcome: _Outage) -> None:
        """Make the next URL the current one, unless another call has done so."""
        if self._current != index or len(self._endpoints) == 1:
            return
        self._current = (index + 1) % len(self._endpoints)
        self._log.info(
            "The schema registry at %s is not available (%s). The next request goes to %s.",
            self._endpoints[index].url,
            outcome.text,
            self._endpoints[self._current].url,
            extra={"event": "schema_registry_left"},
        )

    async def _attempt(self, endpoint: Endpoint, call: Call, attempt_s: float) -> _Answer | _Outage:
        """Return the answer, or the reason for none. A token that is refused is renewed once."""
        deadline = self._clock.monotonic() + attempt_s
        token: OAuthToken | None = None
        if self._tokens is not None:
            try:
                token = await self._tokens.get_token(attempt_s)
            except TokenProviderError as error:
                return _Outage(error.brief, error, may_be_done=False, stays=True)
        outcome = await self._send(endpoint, call, token, deadline)
        if self._tokens is None or token is None or not isinstance(outcome, _Answer):
            return outcome
        if outcome.status != 401:
            self._tokens.on_accepted(token)
            return outcome
        # The registry may have other keys since the token was made. Another token is tried once.
        self._tokens.on_refused(token)
        try:
            token = await self._tokens.get_token(max(deadline - self._clock.monotonic(), 0.001))
        except KafkaError:
            return outcome
        return await self._send(endpoint, call, token, deadline)

    async def _send(
        self, endpoint: Endpoint, call: Call, token: OAuthToken | None, deadline: float
    ) -> _Answer | _Outage:
        """Send the request once. Raises TlsError alone."""
        began = self._clock.monotonic()
        failed: Exception
        may_be_done = True
        outcome = "none"
        tls_error: HandshakeError | None = None
        try:
            async with asyncio.timeout(deadline - began):
                answer = await self._exchange(endpoint, call, token)
            outcome = str(answer.status)
        except TimeoutError:
            failed = TimeoutError(f"no answer within {deadline - began:.1f} s")
        except HandshakeError as error:
            tls_error = error if error.is_permanent else None
            failed = ConnectionError(f"the TLS handshake failed: {error}")
            may_be_done = False
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.ProxyError) as error:
            text = str(error) or "cannot connect"
            failed = ConnectionError(text if self._proxy is None else self._explain_proxy(text))
            may_be_done = False
        except (httpcore2.ReadError, httpcore2.WriteError, httpcore2.ProtocolError) as error:
            failed = ConnectionError(str(error) or type(error).__name__)
        else:
            return self._judge(endpoint, call, answer)
        finally:
            # A cancelled attempt counts, too: the registry may be silent.
            self._count_attempt(endpoint, outcome, self._clock.monotonic() - began)
        if tls_error is not None:
            # From here, so that no traceback leads to the request.
            raise TlsError(
                f"The TLS handshake with the schema registry at {endpoint.url} failed "
                f"({tls_error.ssl_error.reason or tls_error.ssl_error})."
            ) from tls_error.ssl_error.with_traceback(None)
        return _Outage(str(failed), failed, may_be_done)

    def _count_attempt(self, endpoint: Endpoint, outcome: str, took_s: float) -> None:
        url, metrics = endpoint.url, self._metrics
        metrics.counter("schema.registry.requests", url=url, outcome=outcome).add()
        metrics.histogram("schema.registry.request.seconds", unit="s", url=url).observe(took_s)

    def _explain_proxy(self, text: str) -> str:
        assert self._proxy is not None
        return f"the proxy {self._proxy.url} has not connected: {text}"

    def _judge(self, endpoint: Endpoint, call: Call, answer: _Answer) -> _Answer | _Outage:
        """Return the answer, or an outage if it says that the registry is not available now."""
        temporary = answer.status in TEMPORARY_STATUSES
        if answer.status == 500:
            temporary = _error_of(answer.body)[0] in TEMPORARY_CODES
        if not temporary:
            return answer
        cause = self._make_error(endpoint, call, answer)
        return _Outage(
            f"{cause.name or 'HTTP status'} {cause.error_code or cause.status}",
            cause,
            # With 429 and 503, the request was not carried out.
            may_be_done=answer.status not in (429, 503),
            stays=answer.status == 429,
            delay_s=answer.retry_after_s or 0.0,
        )

    async def _exchange(self, endpoint: Endpoint, call: Call, token: OAuthToken | None) -> _Answer:
        url = httpcore2.URL(
            scheme="https" if endpoint.has_tls else "http",
            host=endpoint.host,
            port=endpoint.port,
            target=endpoint.path + call.path,
        )
        async with self._pool.stream(
            call.method,
            url,
            headers=self._make_headers(endpoint, call, token),
            content=call.content,
        ) as response:
            body = bytearray()
            async for part in response.aiter_stream():
                body += part
                if len(body) > LARGEST_ANSWER:
                    break  # Leaving the block closes the connection.
            names = dict(response.headers)
            return _Answer(response.status, bytes(body), _retry_after_s(names), token)

    def _make_headers(
        self, endpoint: Endpoint, call: Call, token: OAuthToken | None
    ) -> list[tuple[str, str]]:
        """Return the headers of a request. This does not raise."""
        headers = [("Accept", ACCEPTED), ("Accept-Encoding", "identity")]
        if call.content is not None:
            headers.append(("Content-Type", CONTENT_TYPE))
        basic = endpoint.basic or self._basic
        if token is not None:
            headers.append(("Authorization", f"Bearer {token.token.reveal()}"))
        elif basic is not None:
            headers.append(("Authorization", basic.header.reveal()))
        headers += [(name, value.reveal()) for name, value in self._headers]
        return headers

    def _decode(self, endpoint: Endpoint, call: Call, answer: _Answer) -> Any:
        if not 200 <= answer.status < 300:
            raise self._make_error(endpoint, call, answer)
        if len(answer.body) > LARGEST_ANSWER:
            raise self._make_error(endpoint, call, answer)
        if not answer.body.strip():
            return None
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._make_error(endpoint, call, answer) from None

    def _make_error(self, endpoint: Endpoint, call: Call, answer: _Answer) -> SchemaRegistryError:
        if len(answer.body) > LARGEST_ANSWER:
            code, text = None, f"It has over {LARGEST_ANSWER:,} bytes."
        else:
            code, text = _error_of(answer.body)
        if 200 <= answer.status < 300 and len(answer.body) <= LARGEST_ANSWER:
            text = f"The answer is no JSON: {text}" if text else "The answer is no JSON."
        unknown = answer.status == 404 and code in NOT_FOUND
        error_type = SchemaNotFoundError if unknown else SchemaRegistryError
        if answer.token is not None:
            text = answer.token.token.scrub_text(text)
        return error_type(
            self._scrub(endpoint, text),
            status=answer.status,
            error_code=code,
            url=endpoint.url + call.path,
            method=call.method,
        )

    def make_shape_error(self, call: Call, problem: object) -> SchemaRegistryError:
        """Return the error for an answer that is JSON, but not what the call returns."""
        endpoint = self._endpoints[self._current]
        return SchemaRegistryError(
            f"The answer is not what this call returns ({bounded(str(problem), 100)}).",
            status=200,
            url=endpoint.url + call.path,
            method=call.method,
        )

    def _scrub(self, endpoint: Endpoint, text: str) -> str:
        of_proxy = None if self._proxy is None else self._proxy.basic
        for basic in (endpoint.basic, self._basic, of_proxy):
            text = text if basic is None else basic.scrub_text(text)
        for _, value in self._headers:
            text = value.scrub_text(text)
        return text


def _retry_after_s(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds of the header Retry-After; None without one, or with a date."""
    for name, value in headers.items():
        if name.lower() == b"retry-after" and value.strip().isdigit():
            return float(value)
    return None


def _error_of(body: bytes) -> tuple[int | None, str]:
    """Return the code and the text of an error's answer. Without JSON, the code is None."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        text = " ".join(body[: 4 * LONGEST_TEXT].decode("utf-8", "replace").split())
        return None, bounded(text, LONGEST_TEXT)
    if not isinstance(found, dict):
        return None, ""
    code, said = found.get("error_code"), found.get("message")
    return (
        code if isinstance(code, int) and not isinstance(code, bool) else None,
        bounded(said) if isinstance(said, str) else "",
    )
