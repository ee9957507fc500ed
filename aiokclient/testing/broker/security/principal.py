"""Principals: the clients to which connections belong."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """The type and name of a client, which ACLs and quotas refer to as `type:name`."""

    type: str
    name: str
    token: bool = False
    """Whether the client logged in by a delegation token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a connection without authentication."""


def parse_principal(text: str) -> Principal:
    """Return the principal of a text such as "User:alice". Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not a principal. Use a text such as 'User:alice'.")
    return Principal(kind, name)
