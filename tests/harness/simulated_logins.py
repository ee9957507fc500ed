"""Simulations of clusters whose listener SASL needs a login, and the clients' side of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any

from world import World, simulate

from aiokclient import OAuthToken, SaslOAuthBearer, SaslPlain, SaslScram
from aiokclient.testing import BrokerListener

LIFETIME_MS = 5_000
USERS = {"alice": "secret"}
PLAIN = SaslPlain("alice", "secret")
LOGINS = {
    "PLAIN": lambda world: PLAIN,
    "SCRAM-SHA-512": lambda world: SaslScram("alice", "secret"),
    "OAUTHBEARER": lambda world: SaslOAuthBearer(tokens_of(world)),
}


def tokens_of(world: World, life_s: float = 600) -> Callable[[], Coroutine[Any, Any, OAuthToken]]:
    """Return a provider of unsecured tokens."""

    async def provide() -> OAuthToken:
        now_ms = world.sim.clock.time_ms()
        expires_ms = now_ms + int(1000 * life_s)
        claims = {"sub": "alice", "iat": now_ms / 1000, "exp": expires_ms / 1000}
        parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "none"}, claims)
        ]
        return OAuthToken(".".join([*parts, ""]), expires_ms)

    return provide


def run_with_logins(
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    *,
    brokers: int = 2,
    lifetime_ms: int = LIFETIME_MS,
) -> None:
    listener = BrokerListener(
        mechanisms=("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"),
        users=USERS,
        max_reauth_ms=lifetime_ms,
    )
    simulate(scenario, brokers=brokers, topics={"t": 2}, listeners={"SASL": listener})


def options(world: World, security: Any, **more: Any) -> dict[str, Any]:
    servers = world.cluster.bootstrap_servers_for("SASL")
    return {"bootstrap_servers": servers, "security": security, **more}
