"""Connections without encryption and authentication."""

from __future__ import annotations

from typing import ClassVar

from aiokclient.types import public_in


@public_in("aiokclient")
class Plaintext:
    """No encryption and no authentication."""

    __slots__ = ()
    __match_args__ = ()

    sasl_mechanism: ClassVar[str | None] = None
    """The SASL mechanism for which this object has the credentials, or None without SASL."""
    sasl_identity: ClassVar[str | None] = None
    """The name of the user in error texts. It is None without SASL, or if it is not known."""
    tls: ClassVar[None] = None
    """None, because there is no TLS."""

    def ssl_context(self) -> None:
        """Return None: connections are not encrypted."""

    def scrub_text(self, text: str) -> str:
        """Return a text of a broker without the secrets of this object."""
        return text

    def __eq__(self, other: object) -> bool:
        return True if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash(Plaintext)

    def __repr__(self) -> str:
        return "Plaintext()"

    def __setstate__(self, state: object) -> None:
        """Do nothing. Pickles of earlier versions have an empty state."""
