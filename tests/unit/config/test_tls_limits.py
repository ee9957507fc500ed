"""Tests of Kafka's options for the versions and the cipher suites of TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from aiokclient import Client
from aiokclient.config.client import ClientConfig
from aiokclient.config.security import Tls
from aiokclient.config.security.tls_limits import SUITES_BEFORE_13, SUITES_OF_13, TlsLimits
from aiokclient.errors import ConfigError, KafkaError, TlsError

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
ECDHE = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


def read(**options: str) -> Tls:
    texts = {f"ssl.{name}".replace("_", "."): text for name, text in options.items()}
    properties = {"bootstrap.servers": "h:1", "security.protocol": "SSL", **texts}
    made = ClientConfig.from_properties(properties).security
    assert isinstance(made, Tls)
    return made


@pytest.mark.parametrize(
    ("options", "lowest", "highest"),
    [
        ({"enabled_protocols": "TLSv1.2,TLSv1.3"}, V12, V13),
        ({"enabled_protocols": "TLSv1.2, TLSv1.1, TLSv1"}, V12, V12),
        ({"enabled_protocols": "tlsv1.3"}, V13, V13),
        ({"protocol": "TLSv1.2"}, V12, V12),
        ({"protocol": "TLSv1.3"}, V12, V13),
        ({"protocol": "TLSv1.2", "enabled_protocols": "TLSv1.2,TLSv1.3"}, V12, V12),
        ({"protocol": "TLS", "enabled_protocols": "TLSv1.3"}, V13, V13),
        ({"cipher_suites": ECDHE}, V12, V12),
        ({"cipher_suites": "TLS_AES_128_GCM_SHA256"}, V13, V13),
        ({"cipher_suites": f"TLS_AES_128_GCM_SHA256,{ECDHE}"}, V12, V13),
        ({"cipher_suites": f"TLS_AES_128_GCM_SHA256,{ECDHE}", "protocol": "TLSv1.2"}, V12, V12),
    ],
)
def test_the_versions_of_tls_follow_from_the_options(
    options: dict[str, str], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    context = read(**options).ssl_context()
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)
    assert context.check_hostname


def test_without_these_options_python_decides() -> None:
    default, made = ssl.create_default_context(), read().ssl_context()
    assert read().limits is None
    assert read(protocol="TLS", cipher_suites="", enabled_protocols="").limits is None
    assert made.minimum_version is default.minimum_version
    assert made.maximum_version is default.maximum_version


@pytest.mark.parametrize(("name", "known"), [*SUITES_BEFORE_13.items()])
def test_openssl_knows_the_suites_of_the_table(name: str, known: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(known)
    assert known in {each["name"] for each in context.get_ciphers()}
    # OpenSSL's names omit TLS, WITH, CBC, and a leading RSA, and write AES_128 as AES128.
    parts = set(name.replace("_CCM_8", "_CCM8").replace("AES_", "AES").split("_"))
    assert set(known.split("-")) <= parts
    assert parts - set(known.split("-")) <= {"TLS", "WITH", "RSA", "CBC", "SHA256"}


@pytest.mark.parametrize("written", [ECDHE, ECDHE.lower(), SUITES_BEFORE_13[ECDHE]])
def test_suites_have_the_names_of_iana_or_of_openssl(written: str) -> None:
    context = read(cipher_suites=written).ssl_context()
    older = {each["name"] for each in context.get_ciphers()} - {*SUITES_OF_13}
    assert older == {"ECDHE-RSA-AES256-GCM-SHA384"}


def test_lists_may_be_sequences_and_librdkafkas_texts() -> None:
    texts = ["TLS_AES_128_GCM_SHA256", ECDHE, ECDHE]
    for given in (texts, ",".join(texts), ":".join(texts)):
        options: Any = {"security_protocol": "SSL", "ssl_cipher_suites": given}
        made = ClientConfig.build({"bootstrap_servers": "h:1", **options}).security
        assert isinstance(made, Tls)
        suites = ("TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES256-GCM-SHA384")
        assert made.limits == TlsLimits(V12, V13, suites)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"cipher_suites": f"{ECDHE}5"},
            rf"ssl.cipher.suites: .*{ECDHE}5' is not known. Did you mean {ECDHE} or ",
        ),
        ({"cipher_suites": "HIGH"}, "'HIGH' is not known. It must be a list of cipher suites"),
        ({"enabled_protocols": "TLSv1.4"}, "'TLSv1.4' is not known. Did you mean TLSv1.3"),
        ({"enabled_protocols": "TLSv1.1,SSLv3"}, "TLSv1.1, SSLv3 is not allowed, because"),
        ({"protocol": "SSL"}, "'SSL' is not allowed. It must be 'TLSv1.3', 'TLSv1.2', 'TLS'"),
        ({"protocol": "TLSv1.2", "enabled_protocols": "TLSv1.3"}, "has only higher ones"),
        ({"protocol": "TLSv1.2", "cipher_suites": SUITES_OF_13[0]}, "No suite fits a version"),
        ({"enabled_protocols": "TLSv1.3", "cipher_suites": ECDHE}, "No suite fits a version"),
    ],
)
def test_options_that_are_wrong_or_exclude_each_other_raise(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        read(**options)


def test_these_options_need_tls() -> None:
    with pytest.raises(ConfigError, match="ssl_cipher_suites needs security_protocol=SSL"):
        ClientConfig.build({"bootstrap_servers": "h:1", "ssl_cipher_suites": ECDHE})


# -- in handshakes --------------------------------------------------------------------------------


class Server:
    """A TLS server that records the handshakes, and the bytes after them."""

    def __init__(self, authority: trustme.CA) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(self.context)
        self.context.sni_callback = lambda _, name, __: self.names.append(name)
        self.trust = authority.cert_pem.bytes().decode()
        self.names: list[str | None] = []
        self.chosen: list[tuple[str, str]] = []
        self.received = b""
        self.port = 0
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            state = writer.get_extra_info("ssl_object")
            self.chosen.append((state.cipher()[0], state.version()))
            try:
                self.received += await reader.read(1)
                # The client does not try this server again.
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except ConnectionError:
                pass  # The client has aborted the connection.
            finally:
                writer.close()
                self.ended.set()

        async with await asyncio.start_server(
            accept, "127.0.0.1", 0, ssl=self.context
        ) as listening:
            self.port = listening.sockets[0].getsockname()[1]
            yield self

    async def error_of(self, host: str = "127.0.0.1", **options: str) -> KafkaError:
        """Return the error of a client with these options."""
        client = Client(
            bootstrap_servers=f"{host}:{self.port}",
            security_protocol="SSL",
            ssl_truststore_certificates=self.trust,
            default_api_timeout_ms=20_000,
            **options,  # type: ignore[arg-type]
        )
        with pytest.raises(KafkaError) as caught:
            await client.start()
        return caught.value


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(trustme.CA()).running() as server:
        yield server


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1.3"),
    ],
)
async def test_handshakes_use_the_version_of_the_options(
    server: Server, options: dict[str, str], version: str
) -> None:
    error = await server.error_of(**options)
    assert not isinstance(error, TlsError)
    assert {chosen for _, chosen in server.chosen} == {version}
    assert server.received


async def test_handshakes_use_the_suites_of_the_options(server: Server) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    await server.error_of(ssl_cipher_suites=suite)
    assert {name for name, _ in server.chosen} == {SUITES_BEFORE_13[suite]}
    assert server.received


async def test_a_handshake_with_an_excluded_suite_is_refused_before_anything_is_sent(
    server: Server,
) -> None:
    if hasattr(server.context, "set_ciphersuites"):
        pytest.skip("This Python selects the suites of TLS 1.3 in the handshake.")
    # Both sides prefer TLS_AES_256_GCM_SHA384.
    error = await server.error_of(ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    assert isinstance(error, TlsError)
    assert "TLS_AES_256_GCM_SHA384 (TLSv1.3), which ssl_cipher_suites does not" in str(error)
    await asyncio.wait_for(server.ended.wait(), 30)
    assert server.chosen
    assert server.received == b""


async def test_names_are_sent_as_sni_and_addresses_are_not(server: Server) -> None:
    await server.error_of("localhost")
    assert set(server.names) == {"localhost"}
    server.names.clear()
    await server.error_of("127.0.0.1")
    assert set(server.names) == {None}


async def test_host_names_are_verified_unless_that_is_switched_off(server: Server) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA()
    authority.issue_cert("elsewhere.example").configure_cert(own)
    server.context.sni_callback = lambda held, _, __: setattr(held, "context", own)
    server.trust = authority.cert_pem.bytes().decode()
    error = await server.error_of("localhost")
    assert isinstance(error, TlsError)
    assert "not valid for 'localhost'" in str(error)
    assert server.received == b""
    error = await server.error_of("localhost", ssl_endpoint_identification_algorithm="")
    assert not isinstance(error, TlsError)
    assert server.received
