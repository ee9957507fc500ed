"""Tokens for OAUTHBEARER without a signature, which a broker accepts by default."""

import base64
import json
import time

LIFE_S = 3600


def unsecured_token(user: str) -> tuple[str, int]:
    """Return a token for the user, and when it expires, in milliseconds since the epoch."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + LIFE_S}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, ""]), int((now + LIFE_S) * 1000)
