"""Tokens for OAUTHBEARER: unsecured ones, and ones that are signed as a token server signs them."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from aiokclient.testing.broker.security.jwt import ALGORITHMS, encode_base64url
from aiokclient.types import public_in


def unsecured_token(
    user: str, *, lifetime_s: float = 3600.0, now_s: float | None = None, **claims: Any
) -> str:
    """Return a token without a signature, which a listener without keys accepts.

    `claims` are added to the claims `sub`, `iat`, and `exp`, or replace them.
    """
    contents = _encode_part(_make_claims(user, lifetime_s, now_s, claims))
    return f"{_encode_part({'alg': 'none'})}.{contents}."


@public_in("aiokclient.testing")
class TokenIssuer:
    """An issuer of signed tokens, with a key of its own.

        issuer = TokenIssuer(issuer="https://issuer.test", audience="kafka")
        BrokerListener(mechanisms=("OAUTHBEARER",), jwks=issuer.jwks,
                       token_issuer="https://issuer.test", token_audience="kafka")
        token = issuer.token("alice")

    algorithm: RS256 or ES256.

    Raises ImportError if the package cryptography is not installed.
    """

    def __init__(
        self,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        algorithm: Literal["RS256", "ES256"] = "RS256",
        key_id: str = "key-1",
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm={algorithm!r}: Use RS256 or ES256.")
        try:
            from cryptography.hazmat.primitives.asymmetric import ec, rsa
        except ImportError as error:
            raise ImportError(
                "Signed tokens need the package cryptography. Install it by "
                "`pip install aiokclient[testing]`."
            ) from error
        self.algorithm = algorithm
        self.key_id = key_id
        self._defaults = {"iss": issuer, "aud": audience}
        self._key: Any = (
            rsa.generate_private_key(65537, 2048)
            if algorithm == "RS256"
            else ec.generate_private_key(ec.SECP256R1())
        )

    @property
    def jwks(self) -> dict[str, Any]:
        """The public key as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        key = {"kid": self.key_id, "alg": self.algorithm, "use": "sig"}
        if self.algorithm == "RS256":
            key |= {
                "kty": "RSA",
                "n": _encode_integer(numbers.n, 256),
                "e": _encode_integer(numbers.e, 3),
            }
        else:
            key |= {"kty": "EC", "crv": "P-256"}
            key |= {"x": _encode_integer(numbers.x, 32), "y": _encode_integer(numbers.y, 32)}
        return {"keys": [key]}

    def token(
        self, user: str, *, lifetime_s: float = 3600.0, now_s: float | None = None, **claims: Any
    ) -> str:
        """Return a signed token.

        `claims` are added to the claims `sub`, `iat`, `exp`, `iss`, and `aud`, or replace them. A
        claim that is None is left out.
        """
        given = _make_claims(user, lifetime_s, now_s, self._defaults | claims)
        kept = {name: value for name, value in given.items() if value is not None}
        header = {"alg": self.algorithm, "typ": "JWT", "kid": self.key_id}
        signed = f"{_encode_part(header)}.{_encode_part(kept)}"
        return f"{signed}.{encode_base64url(self._sign_text(signed.encode()))}"

    def _sign_text(self, signed: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec, padding
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        if self.algorithm == "RS256":
            signature: bytes = self._key.sign(signed, padding.PKCS1v15(), SHA256())
            return signature
        halves = decode_dss_signature(self._key.sign(signed, ec.ECDSA(SHA256())))
        return b"".join(half.to_bytes(32, "big") for half in halves)


def _make_claims(
    user: str, lifetime_s: float, now_s: float | None, claims: dict[str, Any]
) -> dict[str, Any]:
    now = time.time() if now_s is None else now_s
    return {"sub": user, "iat": int(now), "exp": now + lifetime_s} | claims


def _encode_part(value: object) -> str:
    return encode_base64url(json.dumps(value).encode())


def _encode_integer(number: int, size: int) -> str:
    return encode_base64url(number.to_bytes(size, "big"))
