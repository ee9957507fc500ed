"""Errors for a port that does not speak Kafka's protocol as configured, with advice. Sans-IO.

`SetupFrames` has the first bytes that a broker sends, which tell another protocol.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.errors import ConnectionSetupError, DisconnectedError, ProtocolError, TlsError
from aiokclient.log.texts import bounded
from aiokclient.types.tls_objects import is_certificate_error

if TYPE_CHECKING:
    import ssl

    from aiokclient.errors import KafkaError
    from aiokclient.protocol.fields import Buffer

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"HTTP", "an HTTP server, not a Kafka broker. Check the port in bootstrap_servers."),
    (b"<!DO", "an HTTP server, not a Kafka broker. Check the port in bootstrap_servers."),
    (b"SSH-", "an SSH server, not a Kafka broker. Check the port in bootstrap_servers."),
    (b"220 ", "a mail or FTP server, not a Kafka broker. Check the port in bootstrap_servers."),
    (b"-ERR", "a Redis server, not a Kafka broker. Check the port in bootstrap_servers."),
)
"""First bytes of other protocols. Read as the length of a frame, all of them are too large."""

USE_PLAINTEXT_ALONE = "security=Plaintext() (security_protocol='PLAINTEXT')"
USE_TLS = (
    "Set security=Tls() (security_protocol='SSL'), or with SASL tls=Tls() "
    "(security_protocol='SASL_SSL')"
)
USE_PLAINTEXT = (
    "Set security=Plaintext() (security_protocol='PLAINTEXT'), or with SASL tls=None "
    "(security_protocol='SASL_PLAINTEXT'), or use its TLS port"
)

FORMS = {
    "PLAIN": "SaslPlain(user, password)",
    "GSSAPI": "SaslGssapi(service_name='kafka')",
    "SCRAM-SHA-256": "SaslScram(user, password)",
    "SCRAM-SHA-512": "SaslScram(user, password)",
    "OAUTHBEARER": "SaslOAuthBearer(token_provider)",
}
"""The objects for `security=`, by mechanism."""

NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNSUPPORTED_PROTOCOL",
)
"""OpenSSL's names for the errors when the server does not speak TLS."""

STRICT_CHECKS = range(80, 94)
"""OpenSSL's codes of the checks that VERIFY_X509_STRICT adds."""
STRICT_ADVICE = (
    "This is a check of VERIFY_X509_STRICT, which Python applies from version 3.13 on. Use a "
    "certificate authority that meets RFC 5280, or set Tls(strict=False)."
)
OTHER_CHECKS = (
    "Check the certificate authority given to Tls(), the certificate's names, and its dates."
)

_DATES = "Renew it, or that of its authority, or correct the clock of this machine."
_TRUST = (
    "Check the certificate authority given to Tls(): cafile or cadata must have the one that "
    "signed it."
)
_NAMES = (
    "Use a name that is in the certificate, in bootstrap_servers and in advertised.listeners of "
    "the brokers."
)
CHECKS = {
    2: _TRUST,
    9: _DATES,
    10: _DATES,
    18: _TRUST,
    19: _TRUST,
    20: _TRUST,
    21: _TRUST,
    62: _NAMES,
    64: _NAMES,
} | dict.fromkeys(STRICT_CHECKS, STRICT_ADVICE)
"""Advice about the failed check of a broker's certificate, by OpenSSL's codes of the checks."""

REFUSAL = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA)")
"""OpenSSL's names for the alerts with which a server refuses the certificate of a client."""
REFUSALS = {
    "CERTIFICATE_REQUIRED": "requires a certificate of the client, and there is none",
    "CERTIFICATE_EXPIRED": "refused the client's certificate, because it has expired",
    "CERTIFICATE_REVOKED": "refused the client's certificate, because it was revoked",
    "UNKNOWN_CA": "refused the client's certificate, because it does not trust its authority",
}
"""The meanings of the most specific alerts, by the ends of their names."""
UNEXPLAINED = {
    False: REFUSALS["CERTIFICATE_REQUIRED"],
    True: "refused the client's certificate",
    None: "requires a certificate of the client that it can verify",
}
"""The meaning of any other alert, as Java's brokers send it.

The key is whether the client has a certificate, or None if that is not known."""


def not_kafka(address: str, head: bytes) -> ConnectionSetupError:
    """Return the error for a response that is not a frame of Kafka and begins with `head`."""
    if head.startswith(b"\x15\x03"):  # An alert of TLS.
        return tls_port(address)
    for signature, meaning in SIGNATURES:
        if head.startswith(signature):
            return ConnectionSetupError(f"{address} is {meaning}")
    return ConnectionSetupError(
        f"{address} is not a Kafka broker: its answer begins with {head[:16]!r}. "
        "Check host and port in bootstrap_servers."
    )


def tls_port(address: str) -> ConnectionSetupError:
    """Return the error for a port that expects TLS."""
    return ConnectionSetupError(
        f"{address} is a TLS port, but the client uses plaintext. {USE_TLS}."
    )


def plaintext_port(address: str) -> ConnectionSetupError:
    """Return the error for a port that does not expect TLS."""
    return ConnectionSetupError(
        f"{address} is a plaintext port, but the client uses TLS. {USE_PLAINTEXT}."
    )


def without_sasl(address: str, *, tls: bool) -> str:
    """Return the text for a port that does not use SASL."""
    instead = "security=Tls() (security_protocol='SSL')" if tls else USE_PLAINTEXT_ALONE
    return (
        f"{address} does not use SASL, but the client does. Set {instead}, or use the port of a "
        "SASL listener."
    )


def missing_login(address: str, mechanisms: Sequence[str], *, tls: bool) -> str:
    """Return advice about a server that never answers a client without SASL.

    `mechanisms` is empty if the server does not name them. Naming some does not mean that it
    requires a login, and it may have closed a connection for another reason.
    """
    named = bounded(f" with {' or '.join(mechanisms)}" if mechanisms else "")
    forms = dict.fromkeys(FORMS[name] for name in mechanisms if name in FORMS)
    form = (" or ".join(forms) or FORMS["PLAIN"]).replace(")", ", tls=Tls())" if tls else ")")
    return (
        f"The client does not use SASL. If {address} requires SASL{named}, set security={form} "
        f"(security_protocol='{'SASL_SSL' if tls else 'SASL_PLAINTEXT'}', with sasl_mechanism and "
        "sasl_jaas_config)."
    )


def tls_failure(
    address: str, error: ssl.SSLError, has_certificate: bool | None
) -> ConnectionSetupError:
    """Return the error for a TLS handshake that failed.

    `has_certificate` tells whether the client has a certificate, or is None if that is not known.
    """
    if is_certificate_error(error):
        advice = CHECKS.get(error.verify_code, OTHER_CHECKS)
        return TlsError(
            f"The certificate of {address} is not accepted ({error.verify_message}). {advice}"
        )
    if error.reason in NOT_TLS:
        return plaintext_port(address)
    if REFUSAL.search(error.reason or ""):
        known = (text for end, text in REFUSALS.items() if (error.reason or "").endswith(end))
        return TlsError(
            f"{address} {next(known, UNEXPLAINED[has_certificate])} ({error.reason}). Give Tls() a "
            "certfile and keyfile that an authority trusted by the broker has signed, and that "
            "have not expired."
        )
    return TlsError(
        f"The TLS handshake with {address} failed ({error.reason or error}). Check the versions "
        "and ciphers of both sides, and the client's certificate if the broker requires one."
    )


def outdated_files(node_id: int, failure: ConnectionSetupError) -> DisconnectedError:
    """Return the error for a handshake that failed with files that have been replaced since."""
    return DisconnectedError(
        "The TLS handshake failed, but the files of Tls() have been replaced since, and the next "
        f"attempt uses them. {failure}",
        broker=node_id,
    )


def excluded_suite(address: str, suite: str, version: str) -> TlsError:
    """Return the error for a handshake that chose a cipher suite that the options exclude."""
    return TlsError(
        f"{address} uses the cipher suite {suite} ({version}), which ssl_cipher_suites does not "
        "contain. Add it, or let the broker prefer one of the others."
    )


class NotConnectedError(DisconnectedError):
    """An error raised when connecting failed. It increases the setup timeout."""


class TimedOutError(NotConnectedError):
    """An error raised when the server neither accepted nor refused a connection in time."""


class SilentHandshakeError(TimedOutError):
    """An error raised when the server accepted a connection, but did not answer TLS in time."""


class SilentError(DisconnectedError):
    """An error raised when the server accepted a connection, but did not respond in time."""


class UnresolvedError(DisconnectedError):
    """An error raised when a name has no address, or cannot be resolved."""


class ResolutionTimeoutError(UnresolvedError, SilentError):
    """An error raised when a name was not resolved in time."""


class WrongBrokerError(DisconnectedError):
    """An error raised when a connection has reached another broker or another cluster."""


class ClosedEarlyError(DisconnectedError):
    """An error raised when the server closed a connection before it sent anything."""


def closed_early(address: str, tls: bool) -> ClosedEarlyError:
    """Return the error for a connection that was closed during its setup."""
    during = "during the TLS handshake" if tls else "before it answered ApiVersions"
    return ClosedEarlyError(
        f"{address} closed the connection {during}. It is shutting down, refuses this client, or "
        "is not a Kafka broker."
    )


def silent_handshake(node_id: int, where: str, within: str) -> SilentHandshakeError:
    """Return the error for a server that accepted a connection, but did not answer TLS."""
    return SilentHandshakeError(
        f"{where} accepted the connection, but did not answer the TLS handshake{within}. Check "
        "that it speaks TLS on this port.",
        broker=node_id,
    )


def unusable_address(node_id: int, address: str, why: str) -> DisconnectedError:
    """Return the error for an address that is not valid."""
    whose = "A bootstrap server" if node_id < 0 else f"Broker {node_id}"
    option = "bootstrap_servers" if node_id < 0 else "advertised.listeners of the brokers"
    return DisconnectedError(
        f"{whose} has the address {address}, which cannot be used: {why}. Check {option}.",
        broker=node_id,
    )


def wrong_broker(node_id: int, address: str) -> WrongBrokerError:
    """Return the error for a broker that has another broker id, or is in another cluster."""
    return WrongBrokerError(
        f"The server at {address} is not broker {node_id} of this cluster. The client starts again "
        "from its bootstrap servers.",
        broker=node_id,
    )


def wrong_cluster(node_id: int, address: str, known: str, found: str) -> WrongBrokerError:
    """Return the error for a broker that says that it is in another cluster."""
    return WrongBrokerError(
        f"The server at {address} is in the cluster {found}, and broker {node_id} is in the "
        f"cluster {known}.",
        broker=node_id,
    )


def disconnected(node_id: int, api: str, reason: KafkaError | None) -> DisconnectedError:
    """Return the error of a request that gets no response, because its connection is closed."""
    why = reason.message if reason is not None else "The connection is closed."
    failure = DisconnectedError(why, api=api, broker=node_id)
    failure.__cause__ = None if isinstance(reason, DisconnectedError) else reason
    return failure


def not_decoded(error: BaseException) -> ProtocolError:
    """Return the error for a connection if decoding a response has raised an unexpected error."""
    failure = ProtocolError(f"A response could not be decoded: {error!r}.")
    failure.__cause__ = error
    return failure


HEAD = 16
"""The number of first bytes that are kept, to recognize another protocol on the port."""


class SetupFrames:
    """The frames of a setup: one from the client, then one from the broker, and so on."""

    __slots__ = ("_address", "_frame", "_head")

    def __init__(self, address: str) -> None:
        self._address = address
        self._head = b""
        self._frame: asyncio.Future[Buffer] | None = None

    def expect_frame(self) -> asyncio.Future[Buffer]:
        """Return a future of the next received frame."""
        self._frame = asyncio.get_running_loop().create_future()
        return self._frame

    def on_bytes(self, data: memoryview) -> None:
        """Store the first bytes from the broker."""
        if len(self._head) < HEAD:
            self._head += bytes(data[:HEAD])

    def on_frame(self, frame: Buffer) -> None:
        """Complete the future of `expect_frame`. Raises ProtocolError if no frame is expected."""
        if self._frame is None or self._frame.done():
            raise ProtocolError(
                "The broker sent a response that matches no request. The connection was closed.",
                broker=self._address,
            )
        self._frame.set_result(frame)

    def make_frame_error(self) -> ConnectionSetupError:
        """Return the error for bytes that are not a frame of Kafka."""
        return not_kafka(self._address, self._head)

    def fail_expected_frame(self, reason: KafkaError | None) -> None:
        """Fail the future of `expect_frame`, because the connection is closed."""
        if self._frame is not None and not self._frame.done():
            closed = f"The connection to {self._address} was closed."
            self._frame.set_exception(reason or DisconnectedError(closed))
            # Mark the error as retrieved: the setup may have been cancelled.
            self._frame.exception()
