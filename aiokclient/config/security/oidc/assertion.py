"""Assertions (RFC 7523): signed statements that identify a client to a token endpoint.

An assertion is read from a file, or made and signed with a private key. Both files are read again
for each request, so that they can be replaced.
"""

from __future__ import annotations

import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, TypedDict

from aiokclient.config.secret import Secret
from aiokclient.config.security.oidc.files import read_secret
from aiokclient.errors import ConfigError, TokenProviderError

__all__ = ["ALGORITHMS", "Assertion", "AssertionOptions"]

ALGORITHMS: Final = ("RS256", "ES256")
LONGEST_S: Final = 86_400
EARLIEST_S: Final = 3_600


class AssertionOptions(TypedDict, total=False):
    """The arguments of `Assertion`."""

    assertion_file: str | None
    private_key_file: str | None
    private_key_passphrase: str | Secret | None
    algorithm: str
    audience: str | None
    issuer: str | None
    subject: str | None
    lifetime_s: int
    not_before_s: int
    include_jti: bool
    template_file: str | None


class Assertion:
    """A source of assertions. See `OidcJwtBearer` for the arguments."""

    def __init__(
        self,
        *,
        assertion_file: str | None = None,
        private_key_file: str | None = None,
        private_key_passphrase: str | Secret | None = None,
        algorithm: str = "RS256",
        audience: str | None = None,
        issuer: str | None = None,
        subject: str | None = None,
        lifetime_s: int = 300,
        not_before_s: int = 60,
        include_jti: bool = False,
        template_file: str | None = None,
    ) -> None:
        private_key_passphrase = Secret.of(private_key_passphrase)
        if (assertion_file is None) == (private_key_file is None):
            raise ConfigError("Give either assertion_file or private_key_file.")
        if private_key_passphrase is not None and not private_key_passphrase.is_text:
            raise ConfigError("private_key_passphrase must be a string or None.")
        self._algorithm = algorithm.upper() if isinstance(algorithm, str) else algorithm
        if self._algorithm not in ALGORITHMS:
            raise ConfigError(
                f"algorithm: {algorithm!r} is not allowed. It must be RS256 or ES256."
            )
        for name, value, most in (
            ("lifetime_s", lifetime_s, LONGEST_S),
            ("not_before_s", not_before_s, EARLIEST_S),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ConfigError(f"{name} must be an integer from 0 to {most}.")
        if private_key_file is not None and find_spec("cryptography") is None:
            raise ConfigError(
                "Signing an assertion needs the package cryptography. Install it by "
                "`pip install aiokclient[oidc]`."
            )
        claims = {"aud": audience, "iss": issuer, "sub": subject}
        self._claims = {name: value for name, value in claims.items() if value is not None}
        self._file = assertion_file
        self._key_file = private_key_file
        self._passphrase = private_key_passphrase
        self._lifetime_s = lifetime_s
        self._not_before_s = not_before_s
        self._include_jti = include_jti
        self._template_file = template_file

    def create(self) -> Secret:
        """Return an assertion for one request. Blocking.

        Raises TokenProviderError for a file that cannot be read or used.
        """
        if self._file is not None:
            found = read_secret(self._file).stripped()
            if not found or not found.reveal().isascii():
                raise TokenProviderError(f"The assertion file {self._file} has no assertion.")
            return found
        assert self._key_file is not None
        header, payload = self._template()
        now = int(time.time())
        header |= {"alg": self._algorithm, "typ": "JWT"}
        payload |= {"iat": now, "exp": now + self._lifetime_s, "nbf": now - self._not_before_s}
        if self._include_jti:
            payload["jti"] = str(uuid.uuid4())
        signed = f"{_part(header)}.{_part(payload)}"
        return Secret(f"{signed}.{_encoded(self._signature(signed.encode()))}")

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the claims that do not change."""
        if self._template_file is None:
            return {}, dict(self._claims)
        template = _json(read_secret(self._template_file))
        parts = [{} if template is None else template.get(name, {}) for name in _TEMPLATE]
        if template is None or not all(isinstance(part, dict) for part in parts):
            raise TokenProviderError(
                f"The template file {self._template_file} is not a JSON object with the objects "
                "header and payload."
            )
        return dict(parts[0]), self._claims | parts[1]

    def _signature(self, signed: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        assert self._key_file is not None
        pem, passphrase = read_secret(self._key_file), self._passphrase
        try:
            key: Any = load_pem_private_key(
                pem.encode(), None if passphrase is None else passphrase.encode()
            )
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise TokenProviderError(
                f"The private key in {self._key_file} cannot be loaded. It must be in PEM format, "
                "and an encrypted key needs its passphrase."
            ) from error.with_traceback(None)
        if self._algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            signature: bytes = key.sign(signed, padding.PKCS1v15(), SHA256())
            return signature
        elliptic = isinstance(key, ec.EllipticCurvePrivateKey) and key.key_size == 256
        if self._algorithm == "ES256" and elliptic:
            halves = decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
            return b"".join(half.to_bytes(32, "big") for half in halves)
        raise TokenProviderError(
            f"The private key in {self._key_file} does not fit the algorithm {self._algorithm}."
        )


_TEMPLATE: Final = ("header", "payload")


def _json(text: Secret) -> Mapping[str, Any] | None:
    """Return the object in a JSON text, or None if the text has none. This does not raise."""
    try:
        found = json.loads(text.reveal())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _part(value: object) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
