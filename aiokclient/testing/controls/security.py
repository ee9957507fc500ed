"""The listeners and certificates of an embedded cluster."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokclient.testing.broker.security.listeners import BrokerListener, check_listeners
from aiokclient.testing.broker.security.state import Security
from aiokclient.testing.certificates import Certificates, ClientCertificate

if TYPE_CHECKING:
    from aiokclient.config.security import Tls

_HOSTS = ("localhost", "127.0.0.1", "::1")


class SecurityControls:
    """Controls that describe listeners and issue certificates. They do not need a running cluster.

    Raises ValueError or TypeError for listeners that are not valid, and ImportError if a listener
    has TLS and trustme is not installed.
    """

    def __init__(
        self, security: Security, listeners: Mapping[str, BrokerListener], host: str
    ) -> None:
        check_listeners(listeners)
        self._certificates: Certificates | None = None
        encrypted = [each for each in listeners.values() if each.tls]
        if encrypted:
            hosts = (*_HOSTS, host, *(each.host for each in encrypted if each.host))
            self._certificates = Certificates(dict.fromkeys(hosts))
        security.add_listeners(listeners, self._server_context)

    def _server_context(self, listener: BrokerListener) -> ssl.SSLContext:
        return self.certificates.server_context(
            listener.certificate, client_certificate=listener.mutual_tls
        )

    @property
    def certificates(self) -> Certificates:
        """The certificate authority of the cluster, which issues its certificates.

        Raises ValueError if no listener has TLS.
        """
        if self._certificates is None:
            raise ValueError(
                "The embedded cluster has no certificates, because none of its listeners has TLS. "
                "Give it a BrokerListener(tls=True)."
            )
        return self._certificates

    @property
    def client_tls(self) -> Tls:
        """The TLS options of a client that trusts the brokers' certificates."""
        from aiokclient.config.security import Tls

        return Tls(cadata=self.certificates.authority)

    def client_certificate(self, name: str, *, expired: bool = False) -> ClientCertificate:
        """Return a client's certificate for a listener with `mutual_tls`.

        Its principal is `User:<name>`. The attribute `tls` has the options for a client of
        aiokclient; `certificate`, `key`, and `authority` are PEM texts for other clients. An
        expired certificate is refused by the brokers.

        Raises ValueError if no listener has TLS.
        """
        return self.certificates.issue(name, expired=expired)
