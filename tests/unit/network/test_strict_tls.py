"""Certificates that only VERIFY_X509_STRICT refuses, which Python applies from 3.13 on."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aiokclient import Client, Tls
from aiokclient.errors import KafkaError, TlsError

STRICT_BY_DEFAULT = sys.version_info >= (3, 13)


def certificate(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )


class Server(NamedTuple):
    """A TLS server whose authority has no key usage."""

    port: int
    authority: str
    handshakes: list[bool]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = (
        certificate("root", "root", root, root)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root.public_key()), critical=False)
        .sign(root, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    leaf = (
        certificate("broker", "root", own, root)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(root, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = tmp_path / "broker.pem"
    file.write_bytes(own.private_bytes(pem, form, secret) + leaf.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    handshakes: list[bool] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshakes.append(True)
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield Server(port, authority.public_bytes(pem).decode(), handshakes)


def client_of(server: Server, tls: Tls) -> Client:
    servers = f"127.0.0.1:{server.port}"
    return Client(bootstrap_servers=servers, security=tls, default_api_timeout_ms=2_000)


@pytest.mark.skipif(not STRICT_BY_DEFAULT, reason="Python applies the flag from 3.13 on")
async def test_a_strict_check_names_the_option_that_switches_it_off(server: Server) -> None:
    with pytest.raises(TlsError, match=r"key usage.*Tls\(strict=False\)"):
        await client_of(server, Tls(cadata=server.authority)).start()
    assert server.handshakes == []


async def test_strict_can_be_switched_off(server: Server) -> None:
    with pytest.raises(KafkaError) as caught:
        await client_of(server, Tls(cadata=server.authority, strict=False)).start()
    assert not isinstance(caught.value, TlsError), caught.value
    assert server.handshakes


async def test_an_untrusted_authority_is_refused_without_strict_checks_too(server: Server) -> None:
    with pytest.raises(TlsError, match=r"is not accepted.*Check the certificate authority"):
        await client_of(server, Tls(strict=False)).start()
    assert server.handshakes == []
