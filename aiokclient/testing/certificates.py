"""The certificates of an embedded cluster, made by trustme when the cluster is created."""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.config.security import Tls


@public_in("aiokclient.testing")
@dataclass(frozen=True)
class ClientCertificate:
    """A certificate of the cluster's authority for a client, with its private key, as PEM text.

    `authority` is the certificate that clients trust. Other clients than aiokclient take these
    texts as well: librdkafka as `ssl.ca.pem`, `ssl.certificate.pem`, and `ssl.key.pem`, and Java as
    `ssl.truststore.certificates`, `ssl.keystore.certificate.chain`, and `ssl.keystore.key`.
    """

    name: str
    certificate: str = field(repr=False)
    key: str = field(repr=False)
    authority: str = field(repr=False)

    @property
    def tls(self) -> Tls:
        """The option `security` of a client that presents this certificate."""
        from aiokclient.config.security import Tls

        context = ssl.create_default_context(cadata=self.authority)
        with tempfile.TemporaryDirectory() as folder:
            # The module ssl loads certificates from files only.
            path = os.path.join(folder, "client.pem")
            with open(path, "w", opener=_open_private) as file:
                file.write(self.key + self.certificate)
            context.load_cert_chain(path)
        return Tls(context=context)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class AlertingObject(ssl.SSLObject):
    """The TLS state of a broker's connection. It tells a client why its certificate is refused.

    If a handshake fails, asyncio closes the connection without sending OpenSSL's alert. So when the
    client's certificate is refused, this class first requests more data. That makes asyncio send
    the alert. When data or the end of the connection arrives, the handshake ends with the error.
    """

    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            missing = error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
            if not (missing or isinstance(error, ssl.SSLCertVerificationError)):
                raise
            self._failure = error
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "An alert is sent.") from error


class Certificates:
    """A certificate authority, and the certificates of the brokers.

    Raises ImportError if trustme is not installed.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ImportError(
                "A listener with TLS needs the package trustme, which makes its certificates. "
                "Install it by `pip install aiokclient[testing]`."
            ) from error
        self._authority: Any = trustme.CA()
        self._hosts = tuple(hosts)
        self._leaf: Any = self._authority.issue_cert(*self._hosts)
        self.authority: str = self._authority.cert_pem.bytes().decode()
        """The certificate of the authority, as PEM text."""

    def server_context(self, kind: str, *, client_certificate: bool) -> ssl.SSLContext:
        """Return a TLS context for brokers. `kind` is the `certificate` of a `BrokerListener`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.sslobject_class = AlertingObject
        self._find_leaf(kind).configure_cert(context)
        if client_certificate:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _find_leaf(self, kind: str) -> Any:
        if kind == "expired":
            return self._authority.issue_cert(*self._hosts, **_make_expired_dates())
        if kind == "untrusted":
            return type(self._authority)().issue_cert(*self._hosts)
        if kind == "other-host":
            return self._authority.issue_cert("other-host.example")
        return self._leaf

    def issue(self, name: str, *, expired: bool = False) -> ClientCertificate:
        """Return a certificate with this common name."""
        limits = _make_expired_dates() if expired else {}
        # OpenSSL refuses a certificate without any alternative name.
        leaf = self._authority.issue_cert("localhost", common_name=name, **limits)
        chain = "".join(each.bytes().decode() for each in leaf.cert_chain_pems)
        key = _convert_to_pkcs8(leaf.private_key_pem.bytes())
        return ClientCertificate(name, chain, key, self.authority)


def _make_expired_dates() -> dict[str, datetime.datetime]:
    return {"not_after": datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)}


def _convert_to_pkcs8(pem: bytes) -> str:
    """Return a private key in the form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return text.decode()
