"""Errors for a port that does not speak Kafka's protocol as configured, with advice. Sans-IO."""

from __future__ import annotations

import re
import ssl

from aiokclient.errors import ConnectionSetupError, DisconnectedError

__all__ = [
    "ClosedEarlyError",
    "NotConnectedError",
    "closed_early",
    "not_kafka",
    "plaintext_port",
    "tls_failure",
    "tls_port",
    "unusable_address",
]

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x15\x03", "a TLS port that was spoken to in plaintext: {use_tls}."),
    (b"HTTP", "an HTTP server, not a Kafka broker: check the port in bootstrap_servers."),
    (b"<!DO", "an HTTP server, not a Kafka broker: check the port in bootstrap_servers."),
    (b"SSH-", "an SSH server, not a Kafka broker: check the port in bootstrap_servers."),
    (b"220 ", "a mail or FTP server, not a Kafka broker: check the port in bootstrap_servers."),
    (b"-ERR", "a Redis server, not a Kafka broker: check the port in bootstrap_servers."),
)
"""First bytes of other protocols. Read as the length of a frame, all of them are too large."""

USE_TLS = "set security=Tls() (security_protocol='SSL')"
USE_PLAINTEXT = "set security=Plaintext() (security_protocol='PLAINTEXT'), or use its TLS port"

NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNSUPPORTED_PROTOCOL",
)
"""OpenSSL's names for the errors when the other side does not speak TLS."""

REFUSAL = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA)")
"""OpenSSL's names for the alerts by which a client's certificate is refused."""


def not_kafka(place: str, head: bytes) -> ConnectionSetupError:
    """Return the error for a response that is not a frame of Kafka and begins with `head`."""
    for signature, meaning in SIGNATURES:
        if head.startswith(signature):
            return ConnectionSetupError(f"{place} is {meaning.format(use_tls=USE_TLS)}")
    return ConnectionSetupError(
        f"{place} is not a Kafka broker: its answer begins with {head[:16]!r}. "
        "Check host and port in bootstrap_servers."
    )


def tls_port(place: str) -> ConnectionSetupError:
    """Return the error for a port that expects TLS."""
    return ConnectionSetupError(
        f"{place} is a TLS port that was spoken to in plaintext: {USE_TLS}."
    )


def plaintext_port(place: str) -> ConnectionSetupError:
    """Return the error for a port that does not expect TLS."""
    return ConnectionSetupError(
        f"{place} is a plaintext port that was spoken to in TLS: {USE_PLAINTEXT}."
    )


def tls_failure(place: str, error: ssl.SSLError) -> ConnectionSetupError:
    """Return the error for a TLS handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionSetupError(
            f"The certificate of {place} is not accepted ({error.verify_message}). Check the "
            "certificate authority given to Tls(), the certificate's names, and its dates."
        )
    if error.reason in NOT_TLS:
        return plaintext_port(place)
    if REFUSAL.search(error.reason or ""):
        return ConnectionSetupError(
            f"{place} requires another certificate of the client's, or any ({error.reason}). "
            "Give Tls() a certfile and keyfile that an authority of the broker has signed."
        )
    return ConnectionSetupError(
        f"The TLS handshake with {place} failed ({error.reason or error}). Check the versions and "
        "ciphers of both sides, and the client's certificate if the broker requires one."
    )


class NotConnectedError(DisconnectedError):
    """An error raised when connecting failed. It increases the setup timeout."""


class ClosedEarlyError(DisconnectedError):
    """An error raised when the other side closed a connection before it sent anything."""


def closed_early(place: str, tls: bool) -> ClosedEarlyError:
    """Return the error for a connection that was closed during its setup."""
    during = "during the TLS handshake" if tls else "before it answered ApiVersions"
    return ClosedEarlyError(
        f"{place} closed the connection {during}. It is shutting down, refuses this client, or is "
        "not a Kafka broker."
    )


def unusable_address(node_id: int, place: str, why: str) -> DisconnectedError:
    """Return the error for an address that is not valid."""
    whose = "A bootstrap server" if node_id < 0 else f"Broker {node_id}"
    return DisconnectedError(
        f"{whose} has the address {place}, which cannot be used: {why}. Check advertised.listeners "
        "of the brokers.",
        broker=node_id,
    )
