"""A registry that refuses, is silent, dies, or answers nonsense, and several URLs of one."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from pathlib import Path
from typing import Any

import pytest
from registry_stub import RegistryStub

import aiokclient.network.tls as network_tls
from aiokclient import OAuthToken, Tls
from aiokclient.errors import (
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    TlsError,
    TokenRefusedError,
)
from aiokclient.schema import Schema, SchemaRegistry
from aiokclient.testing.certificates import Certificates

STRING = Schema('"string"')
SECRET = "Kx7plainpassw0rd"


class QuickClock:
    """The clock of the running loop, with delays between attempts that are nearly none."""

    class _Random(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return a / 1000

    def __init__(self) -> None:
        self.rng = self._Random(0)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000


def connect(*urls: str, timeout: float = 20.0, **options: Any) -> SchemaRegistry:
    return SchemaRegistry(urls, timeout=timeout, clock=QuickClock(), **options)


@pytest.mark.fault(59)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, b""),
        (502, b"<html>Bad Gateway</html>"),
        (503, b""),
        (504, b"no"),
        (500, {"error_code": 50001, "message": "Error in the backend data store"}),
        (500, {"error_code": 50002, "message": "Timed out"}),
        (500, {"error_code": 50003, "message": "Not forwarded"}),
        (500, {"error_code": 50004, "message": "No leader"}),
    ],
)
async def test_a_passing_refusal_is_repeated(stub: RegistryStub, status: int, body: Any) -> None:
    stub.answer(body, status=status, times=3)
    async with connect(stub.url) as registry:
        assert (await registry.register("orders", STRING)).id == 1
    assert len(stub.requests) == 4


@pytest.mark.fault(60)
@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (500, {"error_code": 0, "message": "internal"}, 0, "HTTP status 500"),
        (500, b"", None, "The schema registry refused the request"),
        (401, b"<html>Who are you?</html>", None, "did not accept the credentials. <html>Who are"),
        (403, {"message": "no"}, None, "does not permit this"),
        (404, {"error_code": 0, "message": "RESTEASY003210"}, 0, "does not have this call"),
        (404, b"<html>", None, "does not have this call"),
        (409, {"error_code": 409, "message": "m"}, 409, r"INCOMPATIBLE_SCHEMA \(409\)"),
        (409, {"error_code": 40901, "message": "m"}, 40901, r"INCOMPATIBLE_SCHEMA \(40901\)"),
        (422, {"error_code": 42201, "message": "m"}, 42201, "INVALID_SCHEMA"),
        (422, {"error_code": "x", "message": 7}, None, "HTTP status 422"),
        (302, b"", None, "HTTP status 302"),
        (200, b"<html>hello</html>", None, "The answer is no JSON: <html>hello</html>"),
        (200, b"{", None, "The answer is no JSON"),
        (200, b"[" * 100_000, None, "The answer is no JSON"),
        (200, [], None, "The answer is not what this call returns"),
        (200, {"id": "1"}, None, "The answer is not what this call returns"),
        (200, {}, None, "The answer is not what this call returns"),
        (200, {"id": 1, "guid": "x"}, None, "The answer is not what this call returns"),
        (204, b"", None, "The answer is not what this call returns"),
    ],
)
async def test_a_lasting_refusal_is_raised_at_once(
    stub: RegistryStub, status: int, body: Any, code: int | None, said: str
) -> None:
    stub.answer(body, status=status)
    async with connect(stub.url) as registry:
        with pytest.raises(SchemaRegistryError, match=said) as caught:
            await registry.register("orders", STRING)
    assert caught.value.status in (status, 200)
    assert caught.value.error_code == code
    assert caught.value.url == f"{stub.url}/subjects/orders/versions"
    assert len(stub.requests) == 1


@pytest.mark.fault(60)
async def test_an_answer_is_bounded(stub: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokclient.schema.http.requests.LARGEST_ANSWER", 1000)
    stub.answer(b"x" * 1001)
    async with connect(stub.url) as registry:
        with pytest.raises(SchemaRegistryError, match="It has over 1,000 bytes"):
            await registry.by_id(1)
        assert (await registry.register("orders", STRING)).id == 1


async def test_a_large_answer_is_decoded_in_a_thread(stub: RegistryStub) -> None:
    stub.answer({"schema": "x" * 1_000_000})
    stub.answer(b"[" * 1_000_000)
    async with connect(stub.url) as registry:
        assert len((await registry.by_id(1)).schema.text) == 1_000_000
        with pytest.raises(SchemaRegistryError, match="The answer is no JSON"):
            await registry.by_id(2)


async def test_retry_after_is_honored_up_to_the_timeout(stub: RegistryStub) -> None:
    stub.answer(status=429, headers={"Retry-After": "3600"})
    async with connect(stub.url) as registry:
        with pytest.raises(SchemaRegistryUnavailableError, match="HTTP status 429") as caught:
            await registry.by_id(1)
    assert isinstance(caught.value.__cause__, SchemaRegistryError)
    assert caught.value.attempts == ((stub.url, "HTTP status 429"),)
    assert len(stub.requests) == 1


@pytest.mark.fault(59)
async def test_a_silent_registry_is_unavailable_after_the_timeout(stub: RegistryStub) -> None:
    stub.silence()
    async with connect(stub.url, timeout=1.0) as registry:
        with pytest.raises(SchemaRegistryUnavailableError, match="no answer within") as caught:
            await registry.by_id(1)
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert not caught.value.may_be_done
        with pytest.raises(SchemaRegistryUnavailableError) as caught:
            await registry.register("orders", STRING)
        assert caught.value.may_be_done
        stub.silence(False)
        await registry.register("orders", STRING)
        assert (await registry.by_id(1)).schema == STRING


@pytest.mark.fault(59)
async def test_a_registry_that_died_is_used_again_when_it_is_back(stub: RegistryStub) -> None:
    async with connect(stub.url) as registry:
        await registry.register("orders", STRING)
        await stub.stop()
        asking = asyncio.create_task(registry.by_id(1))
        # What is known needs no registry.
        assert (await registry.register("orders", STRING)).id == 1
        await stub.start()
        assert (await asking).schema == STRING


async def test_a_lost_connection_is_replaced(stub: RegistryStub) -> None:
    async with connect(stub.url) as registry:
        await registry.register("orders", STRING)
        stub.answer(hangs_up=True, matches="/ids/1")
        assert (await registry.by_id(1)).schema == STRING
    assert stub.connections == 2


async def test_one_connection_serves_many_calls(stub: RegistryStub) -> None:
    async with connect(stub.url) as registry:
        for number in range(5):
            await registry.register("orders", Schema(str(number)))
    assert stub.connections == 1


async def test_a_deletion_is_not_repeated_if_it_may_be_done(stub: RegistryStub) -> None:
    async with connect(stub.url) as registry:
        await registry.register("orders", STRING)
        stub.answer(hangs_up=True)
        with pytest.raises(SchemaRegistryUnavailableError, match="carried out DELETE") as caught:
            await registry.delete_subject("orders")
        assert caught.value.may_be_done
        assert len(stub.requests) == 2
        stub.answer(status=503)
        # The registry has not looked at this one.
        with pytest.raises(SchemaRegistryError, match="SUBJECT_SOFT_DELETED"):
            await registry.delete_subject("orders")
        assert len(stub.requests) == 4


async def test_the_next_url_is_used_and_kept(stub: RegistryStub) -> None:
    async with RegistryStub() as other:
        stub.answer(status=503, times=100)
        async with connect(stub.url, other.url) as registry:
            await registry.register("orders", STRING)
            await registry.by_id(1)
        assert (len(stub.requests), len(other.requests)) == (1, 2)
        await other.stop()
        async with connect(other.url, stub.url) as registry:
            stub.clear()
            stub._canned.clear()
            await registry.register("orders", STRING)
            assert registry.urls == (other.url, stub.url)


async def test_a_silent_url_leaves_time_to_the_others(stub: RegistryStub) -> None:
    async with RegistryStub() as other:
        stub.silence()
        async with connect(stub.url, other.url, timeout=4.0) as registry:
            assert (await registry.register("orders", STRING)).id == 1
            await registry.latest("orders")
        assert len(stub.requests) == 1


async def test_the_error_names_the_outcome_at_each_url(stub: RegistryStub) -> None:
    # The delay is longer than the time that is left, so that the call ends at once.
    stub.answer(status=503, headers={"Retry-After": "60"})
    async with connect("http://127.0.0.1:1", stub.url) as registry:
        with pytest.raises(SchemaRegistryUnavailableError) as caught:
            await registry.by_id(1)
    outcomes = dict(caught.value.attempts)
    assert outcomes[stub.url] == "HTTP status 503"
    assert "Connect call failed" in outcomes["http://127.0.0.1:1"]


async def test_a_name_without_an_address_is_an_outage() -> None:
    async with connect("http://registry.invalid:8081", timeout=1.0) as registry:
        with pytest.raises(SchemaRegistryUnavailableError, match=r"cannot be resolved|no answer"):
            await registry.by_id(1)


@pytest.mark.parametrize("where", ["basic_auth", "url", "text"])
async def test_a_user_logs_in_with_a_password(stub: RegistryStub, where: str) -> None:
    pair = base64.b64encode(f"alice:{SECRET}".encode()).decode()
    stub.authorization = f"Basic {pair}"
    url = stub.url
    options: dict[str, Any] = {}
    if where == "url":
        url = url.replace("http://", f"http://alice:{SECRET}@")
    else:
        options["basic_auth"] = ("alice", SECRET) if where == "basic_auth" else f"alice:{SECRET}"
    async with connect(url, **options) as registry:
        assert (await registry.register("orders", STRING)).id == 1
        # A proxy may put what it was sent into its answer.
        stub.answer(f"wrong: {SECRET}, Basic {pair}".encode(), status=403)
        with pytest.raises(SchemaRegistryError, match=r"wrong: \*\*\*, Basic \*\*\*") as caught:
            await registry.latest("orders")
        assert registry.urls == (stub.url,)
        shown = f"{registry!r} {caught.value} {caught.value!r} {vars(registry)}"
        assert SECRET not in shown
        assert pair not in shown


class Tokens:
    """A token provider, each of whose tokens has another number."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.error = error

    async def __call__(self) -> OAuthToken:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return OAuthToken(f"{SECRET}{self.calls}", (time.time_ns() // 1_000_000) + 3_600_000)


async def test_one_token_serves_all_calls_until_it_is_refused(stub: RegistryStub) -> None:
    tokens = Tokens()
    stub.authorization = f"Bearer {SECRET}1"
    async with connect(stub.url, token_provider=tokens) as registry:
        await registry.register("orders", STRING)
        await registry.latest("orders")
        assert tokens.calls == 1
        stub.authorization = f"Bearer {SECRET}2"
        assert (await registry.latest("orders")).id == 1
        assert tokens.calls == 2
        stub.authorization = "Bearer other"
        stub.answer(f"refused {SECRET}3".encode(), status=401, times=2)
        with pytest.raises(SchemaRegistryError, match="refused") as caught:
            await registry.latest("orders")
        assert SECRET not in str(caught.value)
        assert tokens.calls == 3


async def test_a_token_server_that_is_down_is_an_outage(stub: RegistryStub) -> None:
    tokens = Tokens(ConnectionError(SECRET))
    async with connect(stub.url, token_provider=tokens, timeout=0.2) as registry:
        with pytest.raises(SchemaRegistryUnavailableError, match="TokenProviderError") as caught:
            await registry.by_id(1)
    assert SECRET not in str(caught.value)
    assert stub.requests == []


async def test_a_client_that_gets_no_token_is_refused_at_once(stub: RegistryStub) -> None:
    tokens = Tokens(TokenRefusedError("No.", oauth_error="invalid_client"))
    async with connect(stub.url, token_provider=tokens) as registry:
        with pytest.raises(TokenRefusedError, match=r"No\."):
            await registry.by_id(1)


async def test_headers_are_sent_with_each_request(stub: RegistryStub) -> None:
    async with connect(stub.url, headers={"target-sr-cluster": "lsrc-1"}) as registry:
        await registry.types()
    headers = stub.requests[0].headers
    assert headers["target-sr-cluster"] == "lsrc-1"
    assert headers["accept"].startswith("application/vnd.schemaregistry.v1+json")


async def test_https_trusts_the_given_certificates_only() -> None:
    certificates = await asyncio.to_thread(Certificates, ["localhost", "127.0.0.1"])
    server = certificates.server_context("valid", client_certificate=False)
    async with RegistryStub(tls=server) as stub:
        trusting = Tls(cadata=certificates.authority)
        async with connect(stub.url, security=trusting) as registry:
            assert (await registry.register("orders", STRING)).id == 1
        assert stub.connections == 1
        async with connect(stub.url, security=Tls()) as registry:
            with pytest.raises(TlsError, match=f"registry at {stub.url} failed"):
                await registry.by_id(1)
        # A port without TLS says nothing that a handshake understands.
        async with RegistryStub() as plain:
            url = plain.url.replace("http:", "https:")
            async with connect(url, security=trusting, timeout=1.0) as registry:
                with pytest.raises((TlsError, SchemaRegistryUnavailableError)):
                    await registry.by_id(1)


async def test_certificates_that_were_replaced_just_after_a_check_are_used_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_tls, "CHECK_S", 3600.0)
    certificates, foreign = await asyncio.to_thread(
        lambda: (Certificates(["localhost", "127.0.0.1"]), Certificates(["localhost"]))
    )
    server = certificates.server_context("valid", client_certificate=False)
    authority = tmp_path / "ca.pem"
    authority.write_text(foreign.authority)
    async with (
        RegistryStub(tls=server) as stub,
        connect(stub.url, security=Tls(cafile=str(authority))) as registry,
    ):
        with pytest.raises(TlsError):
            await registry.register("orders", STRING)
        authority.write_text(certificates.authority)
        assert (await registry.register("orders", STRING)).id == 1
