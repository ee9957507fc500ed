"""Tests of logins that are repeated late, because the program has blocked the event loop."""

import asyncio
import time
from typing import Any

import pytest

from aiokclient import (
    AnyBroker,
    Client,
    OAuthToken,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
)
from aiokclient.events import Authenticated, Disconnected
from aiokclient.protocol import messages
from aiokclient.testing import BrokerListener, EmbeddedCluster, unsecured_token

USERS = {"alice": "open-sesame"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
LIFETIME_MS = 500
BLOCKED_S = 0.8


async def token() -> OAuthToken:
    return OAuthToken(unsecured_token("alice"), 2**50)


LOGINS: dict[str, Any] = {
    "PLAIN": SaslPlain("alice", "open-sesame"),
    "SCRAM-SHA-512": SaslScram("alice", "open-sesame"),
    "OAUTHBEARER": SaslOAuthBearer(token),
}


@pytest.mark.parametrize("mechanism", LOGINS)
async def test_a_session_that_ended_while_the_loop_was_blocked_is_renewed(mechanism: str) -> None:
    listener = BrokerListener(mechanisms=MECHANISMS, users=USERS, max_reauth_ms=LIFETIME_MS)
    async with (
        EmbeddedCluster(listeners={"SASL": listener}) as cluster,
        Client(
            bootstrap_servers=cluster.bootstrap_servers_for("SASL"), security=LOGINS[mechanism]
        ) as client,
    ):
        events = client.events()
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - as a program that computes without yielding
        seen: list[Any] = []
        async with asyncio.timeout(30):
            async for event in events:
                seen.append(event)
                if isinstance(event, Authenticated) and event.again:
                    break
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        assert not [event for event in seen if isinstance(event, Disconnected)]
