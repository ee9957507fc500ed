"""The owner of tokens: one fetch at a time, refreshes before the expiry, and failing providers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hidden import assert_hidden

from aiokclient import OAuthToken, SaslOAuthBearer
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.config.client import ClientConfig
from aiokclient.errors import TokenProviderError, TokenRefusedError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.sasl.tokens import LONGEST_REST_S, TokenSource, refresh_delay_s
from aiokclient.testing import Simulation

Provider = Callable[[], Coroutine[Any, Any, Any]]


class Provided:
    """A token provider whose tokens live for `life_s` seconds, and that counts its calls."""

    def __init__(self, sim: Any, life_s: float = 1000.0) -> None:
        self.clock, self.life_s = sim.clock, life_s
        self.times: list[float] = []
        self.running = 0
        self.failing: Provider | None = None

    async def __call__(self) -> Any:
        self.times.append(self.clock.monotonic())
        self.running += 1
        assert self.running == 1, "two calls at a time"
        try:
            await asyncio.sleep(0.1)
            if self.failing is not None:
                return await self.failing()
            number, now = len(self.times), self.clock.time_ms()
            return OAuthToken(f"t{number}", now + int(1000 * self.life_s))
        finally:
            self.running -= 1


def simulate(main: Callable[[Provided, TokenSource], Coroutine[Any, Any, None]]) -> None:
    async def run(sim: Any) -> None:
        supervisor = Supervisor("test")
        await supervisor.start()
        provided = Provided(sim)
        source = TokenSource(
            SaslOAuthBearer(provided),
            ClientConfig(bootstrap_servers="b:9092", request_timeout_ms=5000),
            clock=sim.clock,
            tasks=supervisor,
            log=ClientLog("test", "test"),
        )
        try:
            await main(provided, source)
            assert supervisor.failure is None
        finally:
            await supervisor.stop()

    Simulation(3).run(run)


def name_of(token: OAuthToken) -> str:
    return token.token.reveal()


def test_all_connections_share_one_fetch() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        tokens = await asyncio.gather(*(source.get_token(10) for _ in range(20)))
        assert {name_of(token) for token in tokens} == {"t1"}
        assert name_of(await source.get_token(10)) == "t1"
        assert len(provided.times) == 1

    simulate(main)


def test_a_connection_that_asks_during_a_fetch_shares_it() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        first = asyncio.create_task(source.get_token(10))
        await asyncio.sleep(0.05)
        assert provided.running == 1
        assert name_of(await source.get_token(10)) == name_of(await first) == "t1"
        await asyncio.sleep(1)
        assert len(provided.times) == 1

    simulate(main)


def test_a_token_is_refreshed_before_it_expires() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        await source.get_token(10)
        await asyncio.sleep(640)
        assert len(provided.times) == 1
        await asyncio.sleep(61)  # Refreshed 300 s before the expiry. 80% of the life is later.
        assert name_of(await source.get_token(0)) == "t2"
        await asyncio.sleep(7_000)
        assert len(provided.times) == 11

    simulate(main)


@pytest.mark.parametrize(
    ("life_s", "random", "delay_s"),
    [
        (1000, 0, 700),
        (10_000, 0, 8000),
        (10_000, 1, 8500),
        (100, 0, 80),
        (100, 1, 85),
        (361, 0, 61),
    ],
)
def test_refresh_times_are_those_of_javas_clients(
    life_s: float, random: float, delay_s: float
) -> None:
    assert refresh_delay_s(
        ClientConfig(bootstrap_servers="b:9092"), life_s, random
    ) == pytest.approx(delay_s)


async def fails() -> Any:
    raise ValueError("no server")


async def hangs() -> Any:
    await asyncio.sleep(10_000)


async def ignores_cancellation() -> Any:
    for _ in range(3):
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            pass


async def returns_garbage() -> Any:
    return "a token"


async def is_cancelled() -> Any:
    raise asyncio.CancelledError


async def raises_its_own_error() -> Any:
    raise TokenProviderError("The endpoint is silent.")


async def returns_an_expired_token() -> Any:
    return OAuthToken("old", 5)


async def returns_a_float_as_the_expiry() -> Any:
    return OAuthToken("new", 5.5)  # type: ignore[arg-type]


FAILURES = [
    (fails, "raised ValueError"),
    (hangs, "did not return a token within 5.0 s"),
    (returns_garbage, "returned a str"),
    (is_cancelled, "was cancelled"),
    (returns_a_float_as_the_expiry, "raised ConfigError: OAuthToken: expires_at_ms must be an int"),
    (returns_an_expired_token, "has expired"),
    (raises_its_own_error, "log in. The endpoint is silent"),
]


@pytest.mark.parametrize(("failing", "text"), FAILURES)
def test_a_failing_provider_is_called_again_with_backoff(failing: Provider, text: str) -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        provided.failing = failing
        for _ in range(3):
            with pytest.raises(TokenProviderError, match=text) as caught:
                await source.get_token(30)
            assert caught.value.retriable
        raises = failing in (fails, returns_a_float_as_the_expiry)
        assert isinstance(caught.value.__cause__, ValueError) == raises
        assert source.problem is not None
        assert text in str(source.problem)
        await asyncio.sleep(200)
        assert len(provided.times) < 50, "the provider is called in a hot loop"
        provided.failing = None
        assert name_of(await source.get_token(30))[0] == "t"
        assert source.problem is None

    simulate(main)


@pytest.mark.parametrize("returned", ["a token", OAuthToken("t", 10**15), None])
def test_a_provider_that_is_not_an_async_function_is_explained(returned: Any) -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        source._provider = lambda: returned
        name = type(returned).__name__
        text = rf"an object of the type {name}, which cannot be awaited. It must be an async"
        with pytest.raises(TokenProviderError, match=text) as caught:
            await source.get_token(30)
        assert_hidden(caught.value, "a token")

    simulate(main)


def test_a_provider_that_is_refused_raises_its_own_error_and_is_called_again() -> None:
    async def refused() -> Any:
        raise TokenRefusedError("No such client.", oauth_error="invalid_client")

    async def main(provided: Provided, source: TokenSource) -> None:
        provided.failing = refused
        with pytest.raises(TokenRefusedError, match="No such client") as caught:
            await source.get_token(30)
        assert caught.value.oauth_error == "invalid_client"
        assert isinstance(source.problem, TokenRefusedError)
        provided.failing = None
        await asyncio.sleep(20)
        assert len(provided.times) == 2
        assert name_of(await source.get_token(0)) == "t2"

    simulate(main)


def test_a_token_stays_in_use_until_it_expires_while_the_provider_fails() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        await source.get_token(10)
        provided.failing = fails
        await asyncio.sleep(990)
        assert len(provided.times) > 10
        assert name_of(await source.get_token(10)) == "t1"
        await asyncio.sleep(20)
        with pytest.raises(TokenProviderError, match="raised ValueError"):
            await source.get_token(30)

    simulate(main)


def test_a_connection_waits_no_longer_than_its_time_limit() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        provided.failing = hangs
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TokenProviderError, match=r"within 2\.0 s"):
            await source.get_token(2)
        assert loop.time() - began == pytest.approx(2)
        assert source.problem is not None

    simulate(main)


def test_a_token_that_expired_unnoticed_is_replaced_at_once() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        token = await source.get_token(10)
        object.__setattr__(token, "expires_at_ms", 1)  # Simulate a corrected clock.
        assert name_of(await source.get_token(10)) == "t2"

    simulate(main)


CALL_S = 0.1
"""The time that `Provided` takes for a token."""


def gaps(times: list[float]) -> list[float]:
    """Return the seconds between a call of the provider and the next one."""
    return [after - before - CALL_S for before, after in itertools.pairwise(times)]


def around(seconds: float) -> Any:
    return pytest.approx(seconds, rel=0.201, abs=0.001)


def test_backoff_begins_again_when_the_provider_has_returned_a_token() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        for _ in range(2):
            provided.failing = fails
            provided.times.clear()
            for _ in range(6):
                with pytest.raises(TokenProviderError):
                    await source.get_token(30)
            expected = [0.1, 0.2, 0.4, 0.8, 1.6]
            assert gaps(provided.times) == [around(seconds) for seconds in expected]
            provided.failing = None
            token = await source.get_token(30)
            object.__setattr__(token, "expires_at_ms", 1)  # Simulate a corrected clock.

    simulate(main)


def test_provider_is_called_ever_more_rarely_while_brokers_refuse_its_tokens() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        for _ in range(2):
            provided.times.clear()
            for _ in range(12):
                source.on_refused(await source.get_token(60))
                assert source.problem is None, "the refusal is the problem"
            expected = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
            found = gaps(provided.times)
            assert found[:4] == [around(seconds) for seconds in expected[:4]]
            longest_s = min(10.0, LONGEST_REST_S)
            assert max(found) <= longest_s + 0.001
            assert found[-1] == pytest.approx(longest_s, rel=0.21)
            token = await source.get_token(60)
            source.on_accepted(token)
            source.on_refused(token)
            await source.get_token(60)
            assert gaps(provided.times)[-1] == around(0.0), "an accepted token ends the rests"
            token = await source.get_token(60)
            source.on_accepted(token)
            object.__setattr__(token, "expires_at_ms", 1)  # Simulate a corrected clock.

    simulate(main)


def test_refusal_of_a_former_token_leaves_the_current_one_in_use() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        former = await source.get_token(10)
        source.on_refused(former)
        current = await source.get_token(10)
        source.on_refused(former)
        assert await source.get_token(10) is current
        assert len(provided.times) == 2

    simulate(main)


def test_no_token_is_a_problem_only_when_one_was_needed() -> None:
    async def main(provided: Provided, source: TokenSource) -> None:
        assert source.problem is None, "nothing has asked for a token yet"
        provided.failing = hangs
        call = asyncio.ensure_future(source.get_token(30))
        await asyncio.sleep(2)
        assert "did not return a token within 2.0 s" in str(source.problem)
        with pytest.raises(TokenProviderError):
            await call
        provided.failing = None
        await source.get_token(30)
        assert source.problem is None

    simulate(main)
