"""Visits of the tour of secrets: Kafka's options, JAAS texts, and all ways to get them wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from secret_tour import PASSWORD, SECRETS, Tour

from aiokclient import (
    Admin,
    Client,
    Consumer,
    GroupMember,
    OAuthToken,
    Producer,
    SaslPlain,
    SaslScram,
    Tls,
    single_writer,
    work_pool,
)
from aiokclient.config.client import ClientConfig
from aiokclient.config.secret import Secret

__all__ = ["OPTIONS"]

MODULE = "org.apache.kafka.common.security."


def jaas(password: str, module: str = "plain.PlainLoginModule", rest: str = "") -> str:
    """Return a JAAS text with a user and a password."""
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{MODULE}{module} required username="alice" password="{escaped}"{rest};'


async def visit_properties(tour: Tour) -> None:
    """Read Kafka's options with JAAS texts and keys, from mappings and from files."""
    certificate = tour.cluster.client_certificate("alice")
    base = {
        "bootstrap.servers": tour.cluster.bootstrap_servers_for("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": certificate.authority,
    }
    scram = {"sasl.mechanism": "SCRAM-SHA-256"}
    scram["sasl.jaas.config"] = jaas(PASSWORD, "scram.ScramLoginModule")
    plain = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(PASSWORD)}
    for login in (plain, scram):
        producer = Producer.from_properties(base | login)
        tour.collector.client(producer)
        async with producer:
            await producer.send("t", b"value")
            tour.collector.client(producer)
    for kind in (Client, Producer, Consumer, Admin, ClientConfig):
        tour.collector.look(kind.from_properties(base | plain))
        for mistake in _mistakes(tour):
            with tour.refused():
                kind.from_properties(base | plain | mistake)
            path = tour.folder / "client.properties"
            path.write_text(_properties(base | plain | mistake))
            with tour.refused():
                kind.from_properties(path)
        path.write_text(f"ssl.key.password={SECRETS['key password']}\\u00zz")
        with tour.refused():
            kind.from_properties(str(path))


def _mistakes(tour: Tour) -> list[dict[str, str]]:
    typed, text = SECRETS["typed password"], jaas(PASSWORD)
    key = tour.cluster.client_certificate("alice").key
    return [
        {"sasl.jaas.config": text[:-1]},
        {"sasl.jaas.config": text.replace("required", "needed")},
        {"sasl.jaas.config": text.replace('";', ";")},
        {"sasl.jaas.config": f"{text} {text}"},
        {"sasl.jaas.config": f"{typed} {typed} {typed};"},
        {"sasl.jaas.config": jaas(PASSWORD, "oauthbearer.OAuthBearerLoginModule")},
        {"sasl.jaas.config": text, "sasl.mechanism": "GSSAPI"},
        {"sasl.jaas.config": text, "security.protocol": "PLAINTEXT"},
        {"sasl.jass.config": text},
        {"sasl.password": typed},
        {"ssl.keystore.key": key},
        {"ssl.keystore.key": key, "ssl.keystore.type": "JKS"},
        {"ssl.key.password": typed, "linger.ms": "soon"},
        {"ssl.keystore.password": typed},
    ]


async def visit_unsecured_tokens(tour: Tour) -> None:
    """Use the unsecured tokens of Java's login module."""
    text = f"{MODULE}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="
    properties = {
        "bootstrap.servers": tour.cluster.bootstrap_servers_for("UNSECURED"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{text}"alice" unsecuredLoginStringClaim_pin='
        f'"{SECRETS["bearer token"]}";',
    }
    producer = Producer.from_properties(properties)
    tour.collector.look(producer._config.security, producer._config.security.token_provider)
    async with producer:
        await producer.send("t", b"value")
        tour.collector.client(producer)


async def visit_wrong_options(tour: Tour) -> None:
    """Pass secrets under wrong names, in wrong types, and to every constructor."""
    typed = SECRETS["typed password"]
    servers = {"bootstrap_servers": "localhost:9092"}
    wrong: list[dict[str, Any]] = [
        {"sasl_plain_password": typed},
        {"sasl_pasword": typed.encode()},
        {"sasl": {"username": "alice", "password": typed}},
        {"credentials": ("alice", typed)},
        {"security": typed},
        {"security": {"password": typed}},
        {"security": SaslPlain("alice", typed), "security_protocol": "PLAINTEXT"},
        {"sasl_jaas_config": jaas(typed)},
        {"sasl_jaas_config": jaas(typed).encode()},
        {"ssl_key_password": typed, "security_protocol": "SSL"},
        {"ssl_key_password": [typed]},
    ]
    for make in _makers():
        for options in wrong:
            with tour.refused():
                await make(**servers, **options)
    for construct in (
        lambda: SaslPlain("alice", typed.encode()),
        lambda: SaslPlain("", typed),
        lambda: SaslPlain("alice", f"{typed}\0"),
        lambda: SaslPlain("alice", typed, "no TLS"),
        lambda: SaslScram("alice", typed, "SCRAM-MD5"),
        lambda: SaslScram("alice", typed, token_auth="yes"),
        lambda: OAuthToken(f"{typed} {typed}", 1),
        lambda: OAuthToken(typed, "soon"),
        lambda: OAuthToken(typed, 1, extensions={"auth": "x"}),
        lambda: Tls(password=typed),
        lambda: Tls(certfile="a", keydata=typed.encode()),
        lambda: Tls(certfile="a", keydata=typed).ssl_context(),
        lambda: Tls(certdata=typed, keydata=typed).ssl_context(),
        lambda: Tls(cadata=typed).ssl_context(),
    ):
        with tour.refused():
            construct()
    tour.collector.look(Secret(typed), SaslPlain("alice", typed), OAuthToken(typed, 1))


def _makers() -> list[Callable[..., Any]]:
    async def member(**options: Any) -> Any:
        return GroupMember("g", protocol_type="t", protocols=[], **options)

    async def writer(**options: Any) -> Any:
        return single_writer("g", transactional_id="w", **options)

    async def pool(**options: Any) -> Any:
        async for _ in work_pool("g", {"item": 1}, **options):
            pass

    def constructor(kind: Any) -> Callable[..., Any]:
        async def make(**options: Any) -> Any:
            return kind(**options)

        return make

    kinds = (Client, Producer, Consumer, Admin)
    return [*map(constructor, kinds), member, writer, pool]


def _properties(options: dict[str, str]) -> str:
    """Return a properties file."""
    return "".join(
        f"{name}={text.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}\n"
        for name, text in options.items()
    )


OPTIONS = (
    visit_properties,
    visit_unsecured_tokens,
    visit_wrong_options,
)
