"""Hiding the HMAC of a delegation token, which is a secret, from tracebacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from aiokclient.config.secret import Secret

__all__ = ["hides_hmac"]

F = TypeVar("F", bound=Callable[..., Any])


def hides_hmac(method: F) -> F:
    """Decorate an admin call whose first argument is a token, or its HMAC as a text.

    A text is wrapped in a `Secret` first, so that tracebacks do not show it as a local variable.
    """
    call: Any = method

    async def awaited(self: Any, token: Any, *args: Any, **named: Any) -> Any:
        from aiokclient.admin.delegation_tokens import DelegationToken

        token = token if isinstance(token, DelegationToken) else Secret(token)
        return await call(self, token, *args, **named)

    return cast(F, functools.wraps(method)(awaited))
