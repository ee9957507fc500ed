"""Visits of the tour of secrets: logins by each mechanism, which succeed and fail."""

from __future__ import annotations

import asyncio
import gc
from base64 import b64encode
from typing import Any

from secret_tour import PASSWORD, SECRETS, WRONG, Tour, locked

from aiokclient import (
    AnyBroker,
    Client,
    Controller,
    OAuthToken,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    Tls,
)
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    SaslAuthenticateResponse,
)
from aiokclient.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

__all__ = ["LOGINS"]

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


async def visit_plain(tour: Tour) -> None:
    """Log in by PLAIN, with right and wrong passwords."""
    await tour.use("SASL", SaslPlain("alice", PASSWORD))
    await tour.fail("SASL", SaslPlain("alice", WRONG))

    def repeat(request: Any, response: Any) -> Any:
        return SaslAuthenticateResponse(error_code=58, error_message=f"{WRONG} is wrong.")

    with tour.cluster.alter(ApiKey.SASL_AUTHENTICATE, repeat):
        await tour.fail("SASL", SaslPlain("alice", WRONG))


async def visit_dropped_client(tour: Tour) -> None:
    """Drop a client without closing it, which causes a warning."""
    servers = tour.cluster.bootstrap_servers_for("SASL")
    client = Client(bootstrap_servers=servers, security=SaslPlain("alice", PASSWORD))
    await client.start()
    tour.collector.client(client)
    del client
    gc.collect()
    await asyncio.sleep(0)


async def visit_scram(tour: Tour) -> None:
    """Log in by SCRAM, with right and wrong passwords, and to a broker with a wrong signature."""
    for mechanism in SCRAM:
        await tour.use("SASL", tour.scram("alice", PASSWORD, mechanism))
        await tour.fail("SASL", tour.scram("alice", WRONG, mechanism))

        def alter(request: Any, response: Any) -> Any:
            if response.auth_bytes.startswith(b"v="):
                response.auth_bytes = b"v=" + b64encode(bytes(32))
            return response

        with tour.cluster.alter(ApiKey.SASL_AUTHENTICATE, alter):
            await tour.fail("SASL", tour.scram("alice", PASSWORD, mechanism))


async def visit_tokens(tour: Tour) -> None:
    """Log in by tokens that the broker accepts, and by tokens that it refuses."""
    await tour.use("SASL", SaslOAuthBearer(tour.tokens()))
    await tour.fail("SASL", SaslOAuthBearer(tour.tokens(aud="other")))
    bearer = SECRETS["bearer token"]

    async def opaque() -> OAuthToken:
        return OAuthToken(bearer, 2**50, extensions={"pool": "p"})

    await tour.fail("SASL", SaslOAuthBearer(opaque))


async def visit_token_providers(tour: Tour) -> None:
    """Call token providers that fail, hang, or return something other than a token."""
    bearer, foreign = SECRETS["bearer token"], SECRETS["foreign token"]

    async def fails() -> Any:
        raise LookupError("no token server")

    async def hangs() -> Any:
        await asyncio.sleep(60)

    async def expired() -> Any:
        return OAuthToken(bearer, 1)

    async def text() -> Any:
        return foreign

    async def pair() -> Any:
        return foreign, 2**50

    async def mapping() -> Any:
        return {"access_token": foreign, "expires_in": 3600}

    async def malformed() -> Any:
        return OAuthToken(f"{foreign} {foreign}", 2**50)

    async def octets() -> Any:
        return OAuthToken(foreign.encode(), 2**50)

    def synchronous() -> Any:
        return foreign

    providers = (fails, hangs, expired, text, pair, mapping, malformed, octets, synchronous)
    for provider in providers:
        await tour.fail("SASL", SaslOAuthBearer(provider), 250, request_timeout_ms=200)


async def visit_tls(tour: Tour) -> None:
    """Use keys as text, encrypted keys, and both with SASL."""
    certificate = tour.cluster.client_certificate("alice")
    encrypted = tour.search_for_key(locked(tour.search_for_key(certificate.key)))
    texts = {"cadata": certificate.authority, "certdata": certificate.certificate}
    password = SECRETS["key password"]
    await tour.use("MTLS", Tls(**texts, keydata=certificate.key))
    await tour.use("MTLS", Tls(**texts, keydata=encrypted, password=password))
    await tour.fail("MTLS", Tls(**texts, keydata=encrypted, password=WRONG))
    await tour.fail("MTLS", Tls(**texts, keydata=encrypted))
    await tour.fail("MTLS", Tls(cadata=certificate.authority))
    with tour.refused():
        Tls(keydata=certificate.key, password=password)
    tls = Tls(cadata=certificate.authority)
    await tour.use("SASL_SSL", SaslPlain("alice", PASSWORD, tls))
    await tour.use("SASL_SSL", tour.scram("alice", PASSWORD, tls=tls))
    await tour.use("SASL_SSL", SaslOAuthBearer(tour.tokens(), tls))
    await tour.fail("SASL_SSL", SaslPlain("alice", PASSWORD))
    await tour.fail("SASL", SaslPlain("alice", PASSWORD, tls))
    await tour.fail("SASL_SSL", SaslPlain("alice", PASSWORD, Tls()))


async def visit_lost_connections(tour: Tour) -> None:
    """Lose the connection while a login is in progress."""
    for security in (
        SaslPlain("alice", PASSWORD),
        tour.scram("alice", PASSWORD),
        SaslOAuthBearer(tour.tokens()),
    ):
        for api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            with tour.cluster.drop(api):
                await tour.fail("SASL", security, 300)
        with tour.cluster.delay(ApiKey.SASL_AUTHENTICATE, seconds=5):
            await tour.fail("SASL", security, 300)


async def visit_reauthentication(tour: Tour) -> None:
    """Log in again on open connections."""
    async with asyncio.TaskGroup() as group:
        for security in (
            SaslPlain("alice", PASSWORD),
            tour.scram("alice", PASSWORD),
            SaslOAuthBearer(tour.tokens()),
        ):
            group.create_task(_stay(tour, security))


async def _stay(tour: Tour, security: Any) -> None:
    servers = tour.cluster.bootstrap_servers_for("REAUTH")
    producer = Producer(bootstrap_servers=servers, security=security, client_id=tour.client_id)
    events = producer.events()
    async with producer:
        again = 0
        async for event in events:
            tour.collector.event(event)
            again += getattr(event, "again", False)
            if again:
                break
            await producer.send("t", b"value")
        tour.collector.client(producer)


async def visit_credentials_of_others(tour: Tour) -> None:
    """Create a SCRAM user and a delegation token, and log in by the token."""
    salted = SECRETS["salted password"].encode()
    user = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=salted, salted_password=salted
    )
    alter = AlterUserScramCredentialsRequest(upsertions=[user])
    servers = tour.cluster.bootstrap_servers_for("SASL")
    security = tour.scram("alice", PASSWORD)
    async with Client(bootstrap_servers=servers, security=security) as client:
        tour.collector.add("repr", alter, await client.request(alter, Controller()))
        create = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        created = await client.request(create, AnyBroker())
        hmac = b64encode(created.hmac).decode()
        tour.search_for("delegation token", created.hmac)
        tour.search_for("delegation token", hmac)
        # The response has the HMAC as an attribute, but its repr must hide it.
        tour.collector.add("repr", create, created)
    token = tour.scram(created.token_id, hmac, "SCRAM-SHA-256", token_auth=True)
    await tour.use("SASL", token)
    await tour.fail("SASL", tour.scram(created.token_id, WRONG, token_auth=True))


LOGINS = (
    visit_plain,
    visit_dropped_client,
    visit_scram,
    visit_tokens,
    visit_token_providers,
    visit_tls,
    visit_lost_connections,
    visit_reauthentication,
    visit_credentials_of_others,
)
