"""The function that makes a TLS context."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from ssl import Purpose, SSLContext, create_default_context
from typing import Any

Path = str | bytes | PathLike[str] | PathLike[bytes]


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: Any = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> SSLContext:
    """Return a context that verifies brokers by their certificate and host name.

    `cafile`, `capath`, and `cadata` (PEM text or DER bytes) have the trusted certificates; without
    them, those of the system are trusted. `certfile` and `keyfile` authenticate the client, and
    `password` decrypts the key. Raises OSError for a file that cannot be read, and `ssl.SSLError`
    for one that has no certificate.
    """
    context = create_default_context(
        Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata
    )
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
