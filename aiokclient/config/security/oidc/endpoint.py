"""The request to a token endpoint: one POST in a thread, with time limits and a bounded response.

No function that can raise an error has a secret in a local variable, and the errors of http.client
and ssl lose their tracebacks, whose variables contain the whole request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiokclient import threads
from aiokclient.config.secret import Secret
from aiokclient.config.security.tls import Tls
from aiokclient.errors import ConfigError, TokenProviderError
from aiokclient.types.named_tuple import NamedTuple

MAX_RESPONSE: Final = 1024 * 1024
"""The largest accepted response in bytes."""

TRUST: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of the checks that fail for a certificate of an unknown authority."""

PORTS: Final = {"http": 80, "https": 443}


class Reply(NamedTuple):
    """A response of a token endpoint."""

    status: int
    body: Secret
    """The content, with one character for each byte."""


class Endpoint:
    """A token endpoint. `connect_s` and `read_s` limit connecting and waiting for the response."""

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | ssl.SSLContext | None,
        connect_s: float,
        read_s: float,
        allow_http: bool,
    ) -> None:
        parts = _split(url)
        if not (tls is None or isinstance(tls, Tls | ssl.SSLContext)):
            raise ConfigError("tls must be Tls(...), an ssl.SSLContext, or None.")
        if parts.scheme == "http" and not (allow_http or _is_loopback(parts.hostname or "")):
            raise ConfigError(
                "token_url: http sends the credentials unencrypted. Use https. In a test "
                "environment, pass a token provider with allow_http=True."
            )
        self.shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        """The URL in error texts, without a query."""
        self.host = parts.hostname or ""
        self.port = parts.port or PORTS[parts.scheme]
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.encrypted = parts.scheme == "https"
        self.tls = Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls or Tls()
        self.connect_s = connect_s
        self.read_s = read_s

    async def post_form(self, form: Secret, authorization: Secret | None) -> Reply:
        """Send a form and return the response, whatever its status is.

        Raises TokenProviderError if the response does not arrive in time or is too large. A
        cancellation closes the connection.
        """
        exchange = _Exchange(self, form, authorization)
        limit_s = self.connect_s + self.read_s
        try:
            async with asyncio.timeout(limit_s):
                outcome = await threads.run_blocking(exchange.send_request)
        except TimeoutError:
            raise self._make_error(f"did not respond within {limit_s:.1f} s") from None
        finally:
            exchange.abort()
        if isinstance(outcome, TimeoutError):
            raise self._make_error("did not respond in time") from outcome
        if isinstance(outcome, Exception):
            reason = str(outcome) or type(outcome).__name__
            failed = self._make_error(f"cannot be asked ({reason})")
            if isinstance(outcome, ssl.SSLCertVerificationError):
                failed.message += f" {_advice(outcome)}"
            raise failed from outcome
        if len(outcome.body.reveal()) > MAX_RESPONSE:
            raise self._make_error(f"sent a response of more than {MAX_RESPONSE} bytes")
        return outcome

    def _make_error(self, what: str) -> TokenProviderError:
        return TokenProviderError(f"The token endpoint {self.shown} {what}.")


class _Exchange:
    """One request. `send_request` sends it in a thread; `abort` ends it from the event loop."""

    def __init__(self, endpoint: Endpoint, form: Secret, authorization: Secret | None) -> None:
        self._endpoint = endpoint
        self._form = form
        self._authorization = authorization
        self._socket: socket.socket | None = None
        self._aborted = False

    def send_request(self) -> Reply | Exception:
        """Return the response, or the error without its traceback. Blocking."""
        try:
            connection = self._make_connection()
            try:
                return self._send_form(connection)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:  # ValueError includes ConfigError.
            error.__context__ = None
            return error.with_traceback(None)

    def abort(self) -> None:
        """Wake up the thread if it is waiting for the endpoint. It sends nothing from now on."""
        self._aborted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # SSLSocket.shutdown would drop the TLS state, which the thread still uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _make_connection(self) -> HTTPConnection:
        endpoint = self._endpoint
        where = (endpoint.host, endpoint.port)
        if endpoint.encrypted:
            context = endpoint.tls.ssl_context()
            return HTTPSConnection(*where, timeout=endpoint.connect_s, context=context)
        return HTTPConnection(*where, timeout=endpoint.connect_s)

    def _send_form(self, connection: HTTPConnection) -> Reply:
        connection.connect()
        self._socket = connection.sock
        if self._aborted:
            raise TimeoutError("The request was cancelled.")
        connection.sock.settimeout(self._endpoint.read_s)
        connection.putrequest("POST", self._endpoint.target)
        connection.putheader("Accept", "application/json")
        connection.putheader("Cache-Control", "no-cache")
        connection.putheader("Connection", "close")
        connection.putheader("Content-Type", "application/x-www-form-urlencoded")
        connection.putheader("Content-Length", str(len(self._form.encode())))
        if self._authorization is not None:
            connection.putheader("Authorization", self._authorization.reveal())
        connection.endheaders(self._form.encode())
        response = connection.getresponse()
        return Reply(response.status, Secret(response.read(MAX_RESPONSE + 1).decode("latin-1")))


def _advice(error: ssl.SSLCertVerificationError) -> str:
    """Return what to do about a certificate of the endpoint that is not accepted."""
    if error.verify_code not in TRUST:
        return "Check the names and the dates of the endpoint's certificate."
    return (
        "If a private authority has signed its certificate, pass tls=Tls(cafile=...) to the token "
        "provider, or set ssl.truststore.type=PEM and ssl.truststore.location in sasl_jaas_config."
    )


def _split(url: object) -> SplitResult:
    if not isinstance(url, str):
        raise ConfigError("token_url must be a string.")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in PORTS and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("token_url must be a URL such as https://login.example.com/token.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ConfigError("token_url must contain neither credentials nor a fragment.")
    return parts


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
