"""Token providers for OAUTHBEARER that ask an OAuth or OpenID Connect server (KIP-768, KIP-1139).

A provider makes a request, sends it to the token endpoint, and makes a token from the response:

    credentials or assertion (`assertion`) ──▶ POST (`endpoint`) ──▶ response (`response`) ──▶ token

The request runs in a thread of the library, with http.client. So it needs no other package, and
neither the resolution of the name nor the TLS handshake blocks the event loop. A cancelled request
ends its thread by shutting down the socket. Only signing an assertion needs a package (the extra
`oidc`).
"""

from __future__ import annotations

from aiokclient.config.security.oidc.providers import OidcClientCredentials, OidcJwtBearer

__all__ = ["OidcClientCredentials", "OidcJwtBearer"]
