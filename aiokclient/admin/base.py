"""What the subjects of the admin client share: asking for several things, and asking again.

A response answers for each thing by itself. What failed in a way that may pass (a controller that
has moved, a timeout, a quota) is asked for again, alone, until the time is up; the policy engine
decides it. A failure of the request as a whole has been tried again by the cluster client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import anyio

from aiokclient.admin.results import Results
from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.targets import Target
from aiokclient.cluster.tracebacks import bare
from aiokclient.errors import (
    ApiTimeoutError,
    KafkaError,
    ProtocolError,
    UsageError,
    error_for,
)
from aiokclient.policy import Backoff, Decision, Scope, decide

__all__ = ["AdminBase", "failure"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
Item = TypeVar("Item")

Answers: TypeAlias = Mapping[K, V | KafkaError]
Ask: TypeAlias = Callable[[dict[K, Item], float], Awaitable[Answers[K, V]]]
"""Sends one request for some items within some seconds, and reads the answer for each."""

AskOne: TypeAlias = Callable[[dict[K, Item], T], Awaitable[Answers[K, V]]]
"""Sends one request for some items to one of several targets."""


class AdminBase(Lifecycle):
    """A client that asks for one thing or for several."""

    async def _request(
        self,
        message: Any,
        to: Target,
        timeout: float | None,
        failed: Callable[[KafkaError], None] = lambda error: None,
    ) -> Any:
        """Send a request, with the retries of the cluster client.

        `failed(error)` is called for each attempt that was sent.
        """
        self._check()
        return await self._cluster.request(
            message, to, timeout=timeout, scope=Scope.ADMIN, failed=failed
        )

    async def _each(
        self, items: Mapping[K, Item], ask: Ask[K, Item, V], timeout: float | None
    ) -> Results[K, V]:
        """Asks for all items, then again for those whose error may pass, within the timeout."""
        self._check()
        clock = self._cluster.clock
        deadline = clock.monotonic() + self._seconds(timeout)
        results: dict[K, Any] = dict.fromkeys(items)
        left, attempt = dict(items), 0
        while left:
            try:
                answers = await ask(left, max(deadline - clock.monotonic(), 0.0))
            except UsageError:
                raise
            except KafkaError as error:
                bare(error)
                results.update({key: _told(error, results[key]) for key in left})
                break
            results.update(
                {key: _told(answers.get(key, _missing(key)), results[key]) for key in left}
            )
            left = await self._failed_for_now(left, results, attempt, deadline)
            attempt += 1
        return Results(results)

    async def _spread(
        self, groups: Mapping[T, dict[K, Item]], ask: AskOne[K, Item, T, V]
    ) -> Answers[K, V]:
        """Asks several brokers at the same time; one's failure is that of its items alone."""
        answers: dict[K, V | KafkaError] = {}

        async def ask_one(items: dict[K, Item], to: T) -> None:
            try:
                answers.update(await ask(items, to))
            except KafkaError as error:
                answers.update(dict.fromkeys(items, bare(error)))

        async with anyio.create_task_group() as tasks:
            for to, items in groups.items():
                tasks.start_soon(ask_one, items, to)
        return answers

    async def _failed_for_now(
        self, asked: Mapping[K, Item], results: dict[K, Any], attempt: int, deadline: float
    ) -> dict[K, Item]:
        """The items to ask for again, once it is time to."""
        config, clock = self._config, self._cluster.clock
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        remaining = deadline - clock.monotonic()
        again, refresh, delay = {}, False, 0.0
        for key, item in asked.items():
            error = results[key]
            if not isinstance(error, KafkaError):
                continue
            action = decide(error, Scope.ADMIN, attempt, remaining, clock.rng, backoff)
            if action.again:
                again[key] = item
                refresh = refresh or action.decision is Decision.REFRESH_AND_RETRY
                delay = max(delay, action.delay_s)
            elif error.retriable and remaining <= 0:
                results[key] = _out_of_time(error)
        if refresh:
            self._cluster.updater.request_update(reason="an admin request reached a wrong broker")
        await asyncio.sleep(delay)
        return again

    def _broker_timeout_ms(self, remaining_s: float) -> int:
        """How long a broker may work on a request: a little less than the client waits for it."""
        waiting = min(max(remaining_s, 0.0), self._config.request_timeout_ms / 1000)
        return max(int(waiting * 900), 1)


def failure(code: int, message: str | None, api: str, resource: str) -> KafkaError | None:
    """The error of one thing in a response, None for 0."""
    return error_for(code, message, api=api, resource=resource)


def _told(answer: Any, before: Any) -> Any:
    """The answer; if time ran out waiting for it, the answer before, for it says more."""
    late = isinstance(answer, ApiTimeoutError)
    return _out_of_time(before) if late and isinstance(before, KafkaError) else answer


def _missing(key: object) -> KafkaError:
    return ProtocolError(f"the broker's answer leaves out {key}")


def _out_of_time(error: KafkaError) -> KafkaError:
    if isinstance(error, ApiTimeoutError):
        return error
    late = ApiTimeoutError(f"The last answer: {error}", api=error.api)
    late.broker, late.resource = error.broker, error.resource
    late.topic_partition = error.topic_partition
    late.__cause__ = error
    return late
