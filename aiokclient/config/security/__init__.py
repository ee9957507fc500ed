"""The security of connections: encryption by TLS, and authentication by TLS or SASL.

Names are imported when they are first used, because many programs use none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.config.security.plaintext import Plaintext
    from aiokclient.config.security.sasl import (
        OAuthToken,
        SaslGssapi,
        SaslOAuthBearer,
        SaslPlain,
        SaslScram,
        Security,
    )
    from aiokclient.config.security.tls import Tls

__all__ = [
    "OAuthToken",
    "Plaintext",
    "SaslGssapi",
    "SaslOAuthBearer",
    "SaslPlain",
    "SaslScram",
    "Security",
    "Tls",
    "settle_security",
]


def settle_security(config: Any) -> None:
    """Convert Kafka's security options to one `security` object, if there are any."""
    for name, declaration in config.declarations.items():
        ours = name.startswith(("security", "ssl_", "sasl_"))
        if ours and getattr(config, name) != declaration.default:
            from aiokclient.config.security.fold import fold_security

            return fold_security(config)


if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = {"Plaintext": "plaintext", "Tls": "tls"}.get(name, "sasl")
        globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
        return value
