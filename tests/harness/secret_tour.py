"""A tour of all uses of secrets, on an embedded cluster.

A visit is a function of `secret_visits.py`, `secret_options.py`, `secret_endpoints.py`, or
`secret_telemetry.py`. It uses known passwords, tokens, and keys in one way, and passes all
resulting objects and errors to the collector. The tour then searches what was collected. It looks
for `SECRETS`, and for the tokens, keys, and proofs that are derived from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives import serialization
from secret_collector import Collector
from secret_search import SecretSearch

from aiokclient import Admin, Client, Consumer, OAuthToken, Producer, SaslScram
from aiokclient.network.sasl.scram import salted_password
from aiokclient.protocol import ApiKey
from aiokclient.testing import (
    BrokerListener,
    ClientTelemetryContext,
    ClientTelemetryPayload,
    EmbeddedCluster,
    TokenIssuer,
)

__all__ = ["ISSUER", "PASSWORD", "RECORDS", "SECRETS", "WRONG", "Tour", "Visit", "locked"]

SECRETS = {
    "password": "Kx7-pl\"ain\\päss' %w0rd&<9fQ2",
    "wrong password": "Zu3-wr\"ong\\pöss' %w0rd&<1hM8",
    "key password": "Ty5-key pass/word+Vb6-locked",
    "bearer token": "Qm4.opaque-token~Gs8/Jd2+Lk0.Wn6",
    "foreign token": "Rp9.foreign-token_Hc3.Xe7-Bt1",
    "typed password": "Ng2-mistyped-option-Fw5-value",
    "client secret": 'Dv6-client"secret\\ä +%&=<-Mr0-end',
    "new password": "Jb1-pass'word\"of\\cärol-Sx5-end",
    "base64": "Pk3tYv8LwEa5Rf2HjUb7Zi9QoCx4Ng6m",
    "salted password": "Uc8-salted-password-bytes-Oy4",
}
"""The secrets by name. They contain characters that JSON, HTML, and Python's reprs escape."""

RECORDS = {
    "record key": "Fa8-key of\"the\\récord' <&1Lz",
    "record value": "Hy3-value of\"the\\récord' <&6Cq",
    "record header": "Wd9-header-of~the-record-4Tn",
}
"""The contents of records, by name. They are searched for only in what telemetry shows."""
TELEMETRY = {"prometheus", "pushed", "spans"}
"""The channels of telemetry."""

PASSWORD, WRONG = SECRETS["password"], SECRETS["wrong password"]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS = {"alice": PASSWORD}
ISSUER = TokenIssuer(issuer="https://issuer.test", audience="kafka")
SIGNED: dict[str, Any] = {
    "jwks": ISSUER.jwks,
    "token_issuer": "https://issuer.test",
    "token_audience": "kafka",
}
LISTENERS = {
    "SASL": BrokerListener(mechanisms=MECHANISMS, users=USERS, **SIGNED),
    "SASL_SSL": BrokerListener(tls=True, mechanisms=MECHANISMS, users=USERS, **SIGNED),
    "UNSECURED": BrokerListener(mechanisms=("OAUTHBEARER",)),
    "REAUTH": BrokerListener(mechanisms=MECHANISMS, users=USERS, max_reauth_ms=1_500, **SIGNED),
    "MTLS": BrokerListener(tls=True, mutual_tls=True),
}
CONFIGS = {"delegation.token.secret.key": "the key of the brokers"}
SENDING = (
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)
"""The requests that must contain a secret."""
TOKEN_LENGTH = 20
"""The minimum length of a secret part of a token. A shorter part, such as a header, is public."""


def locked(key: str) -> str:
    """Return a private key, encrypted with the password for keys in `SECRETS`."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(SECRETS["key password"].encode()),
    ).decode()


Visit: TypeAlias = "Callable[[Tour], Awaitable[None]]"


VISIT_S = 120
"""The longest time for one visit, in seconds. If it is exceeded, a traceback shows the cause."""


class Tour:
    """The tour, with its collector and the secrets that it searches for."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.search = SecretSearch()
        self.client_id = "tour"
        self.visited: list[str] = []
        self._scrams: list[SaslScram] = []
        for name, secret in SECRETS.items():
            self.search.add(name, secret)
        self.contents = SecretSearch()
        for name, content in RECORDS.items():
            self.contents.add(name, content)
        self.search_for("password in PLAIN", f"\0alice\0{PASSWORD}".encode())

    def run(self, visits: Sequence[Visit]) -> None:
        """Make the visits. Blocking."""
        with self.collector.collecting():
            asyncio.run(self._run(visits), debug=True)
        for scram in self._scrams:
            self._search_for_keys(scram)

    def leaks(self, channel: str) -> list[Any]:
        """Return the secrets that a channel has shown."""
        found = self.collector.collected.leaks(channel, self.search)
        if channel in TELEMETRY:
            found += self.collector.collected.leaks(channel, self.contents)
        return found

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Collect the metrics that a client pushes. The cluster calls this as its receiver."""
        self.collector.collected.add("pushed", payload.data)
        self.collector.collected.add("pushed", repr(context))

    async def _run(self, visits: Sequence[Visit]) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            EmbeddedCluster(
                topics={"t": 1}, listeners=LISTENERS, configs=CONFIGS, telemetry=self
            ) as cluster,
        ):
            self.folder, self.cluster = Path(folder), cluster
            for visit in visits:
                async with asyncio.timeout(VISIT_S):
                    await visit(self)
                self.visited.append(visit.__name__)
                self._look_at_requests()
                cluster.reset()

    def _look_at_requests(self) -> None:
        requests = self.cluster.requests
        self.collector.requests(requests)
        for request in requests:
            if request.api is ApiKey.SASL_AUTHENTICATE:
                self._search_for_proof(request.message.auth_bytes)
            elif request._frame is not None and request.api not in SENDING:
                self.collector.collected.add("wire", bytes(request._frame))

    # -- what to search for

    def search_for(self, name: str, secret: str | bytes) -> None:
        """Search for a secret that was created during the tour."""
        self.search.add(name, secret)

    def _search_for_proof(self, message: bytes) -> None:
        """Search for the proof in a message of SCRAM."""
        found = re.search(rb"p=([^,]+)$", message)
        if found:
            self.search_for("SCRAM proof", found[1])

    def _search_for_keys(self, scram: SaslScram) -> None:
        for (hash_name, salt, iterations), keys in scram.keys._keys.items():
            salted = salted_password(hash_name, scram.password, salt, iterations)
            self.search_for("SCRAM salted password", salted)
            for name in ("client", "stored", "server"):
                self.search_for(f"SCRAM {name} key", getattr(keys, f"_{name}"))

    def search_for_token(self, token: str) -> str:
        """Search for the claims and the signature of a token, and return the token."""
        for part in token.split(".")[1:]:
            if len(part) >= TOKEN_LENGTH:
                self.search_for("token", part.encode())
        return token

    def search_for_assertion(self, assertion: str) -> None:
        """Search for the signature of an assertion. Its claims alone are not secret."""
        signature = assertion.rpartition(".")[2]
        if len(signature) >= TOKEN_LENGTH:
            self.search_for("assertion", signature.encode())

    def search_for_key(self, pem: str) -> str:
        """Search for each line of a private key, and return the key."""
        for line in pem.splitlines()[1:-1]:
            if len(line) >= TOKEN_LENGTH:
                self.search_for("private key", line.encode())
        return pem

    # -- how to look

    async def use(self, listener: str, security: Any, **options: Any) -> None:
        """Log in, produce, consume, and look at all objects."""
        servers = self.cluster.bootstrap_servers_for(listener)
        collector = self.collector
        common = {"bootstrap_servers": servers, "client_id": self.client_id, "security": security}
        client = Client(**common, **options)
        events = client.events()
        collector.look(security, client)
        consumer = Consumer("t", client=client, group_id="g", auto_offset_reset="earliest")
        async with client, Producer(client=client) as producer, Admin(client=client) as admin:
            metadata = await producer.send("t", b"value")
            async with consumer:
                await consumer.get(timeout=30)
                for each in (client, producer, admin, consumer):
                    collector.client(each)
            collector.look(metadata, producer._config, client._config)
        async for event in events:
            collector.event(event)
        collector.client(client)

    async def fail(
        self, listener: str, security: Any, timeout_ms: int = 800, **options: Any
    ) -> None:
        """Fail to start, and look at the error."""
        servers = self.cluster.bootstrap_servers_for(listener)
        client = Client(
            bootstrap_servers=servers,
            client_id=self.client_id,
            security=security,
            default_api_timeout_ms=timeout_ms,
            **options,
        )
        events = client.events()
        with self.refused():
            await client.start()
        self.collector.client(client)
        await client.close()
        async for event in events:
            self.collector.event(event)

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        """Expect an error, and look at it."""
        try:
            yield
        except Exception as error:
            self.collector.error(error)
        else:
            raise AssertionError("The visit expected an error, but none was raised.")

    def tokens(self, **claims: Any) -> Callable[[], Any]:
        async def provide() -> OAuthToken:
            token = self.search_for_token(ISSUER.token("alice", lifetime_s=600, **claims))
            made = OAuthToken(token, int(1000 * (time.time() + 600)), "alice")
            self.collector.look(made)
            return made

        return provide

    def scram(self, *args: Any, **options: Any) -> SaslScram:
        made = SaslScram(*args, **options)
        self._scrams.append(made)
        return made
