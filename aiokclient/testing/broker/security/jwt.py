"""JSON Web Tokens: checking unsecured tokens, and tokens signed with RS256 or ES256.

`cryptography`, which trustme brings, checks the signatures. It is imported at the first use.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiokclient.testing.broker.security.mechanism import Bearer

ALGORITHMS: Final = ("RS256", "ES256")
SKEW_S: Final = 30
"""The clock skew in seconds that is allowed for signed tokens. Kafka has the same default."""


class TokenRules(NamedTuple):
    """The requirements of a listener for tokens. A listener without keys takes unsecured tokens."""

    keys: tuple[Mapping[str, Any], ...] | None = None
    issuer: str | None = None
    audience: str | None = None


def check_token(token: str, rules: TokenRules, now_ms: int) -> Bearer:
    """Return the client of a token. Raises ValueError if the token is not valid."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("A token has three parts.")
    header, claims = _read_object(parts[0]), _read_object(parts[1])
    skew_s = 0
    if rules.keys is None:
        if header.get("alg") != "none" or parts[2]:
            raise ValueError("The listener takes unsecured tokens only.")
    else:
        skew_s = SKEW_S
        signed = f"{parts[0]}.{parts[1]}".encode()
        _check_signature(header, signed, decode_base64url(parts[2]), rules.keys)
        _check_claims(claims, rules)
    user, expires = claims.get("sub"), _read_number(claims, "exp")
    if not isinstance(user, str) or not user or expires is None:
        raise ValueError("The claims sub and exp are missing.")
    issued, now = _read_number(claims, "iat"), now_ms / 1000
    if expires <= now - skew_s:
        raise ValueError("The token has expired.")
    if issued is not None and (issued > now + skew_s or issued >= expires):
        raise ValueError("The token was issued in the future, or after its expiry.")
    return Bearer(user, int(expires * 1000))


def decode_base64url(text: str) -> bytes:
    """Return the bytes of base64url without padding. Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("A part of the token is not base64url.") from error


def encode_base64url(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _read_object(text: str) -> dict[str, Any]:
    found = json.loads(decode_base64url(text))
    if not isinstance(found, dict):
        raise ValueError("A part of the token is not a JSON object.")
    return found


def _read_number(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"The claim {name} is not a number.")
    return float(found)


def _check_claims(claims: Mapping[str, Any], rules: TokenRules) -> None:
    audience = claims.get("aud", [])
    audiences = [audience] if isinstance(audience, str) else audience
    if rules.audience is not None and rules.audience not in audiences:
        raise ValueError("The token is for another audience.")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise ValueError("The token is from another issuer.")
    if _read_number(claims, "iat") is None:
        raise ValueError("The claim iat is missing.")


def _check_signature(
    header: Mapping[str, Any], signed: bytes, signature: bytes, keys: Iterable[Mapping[str, Any]]
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise ValueError("The signature algorithm is not supported.")
    for key in keys:
        if key_id in (None, key.get("kid")) and _is_signed_by(key, algorithm, signed, signature):
            return
    raise ValueError("The token is not signed by a known key.")


def _is_signed_by(key: Mapping[str, Any], algorithm: str, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        if algorithm == "RS256" and key.get("kty") == "RSA":
            rsa.RSAPublicNumbers(
                _read_integer(key["e"]), _read_integer(key["n"])
            ).public_key().verify(signature, signed, padding.PKCS1v15(), SHA256())
            return True
        if algorithm == "ES256" and key.get("kty") == "EC" and len(signature) == 64:
            halves = (int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
            point = ec.EllipticCurvePublicNumbers(
                _read_integer(key["x"]), _read_integer(key["y"]), ec.SECP256R1()
            )
            point.public_key().verify(encode_dss_signature(*halves), signed, ec.ECDSA(SHA256()))
            return True
    except InvalidSignature:
        pass
    return False


def _read_integer(text: str) -> int:
    return int.from_bytes(decode_base64url(text), "big")
