"""The admin calls about access: ACLs, SCRAM credentials, delegation tokens, and client quotas."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient.config.secret import Secret

if TYPE_CHECKING:
    from aiokclient.admin.security import acls as acls
    from aiokclient.admin.security import client_quotas as client_quotas
    from aiokclient.admin.security import delegation_tokens as delegation_tokens
    from aiokclient.admin.security import scram_credentials as scram_credentials
else:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        """Import a module of calls, which `Admin` uses first."""
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


C = TypeVar("C", bound=type)


def hide_hmacs(owner: C) -> C:
    """Wrap the HMAC that a call with a delegation token gets as a text in a `Secret`.

    Tracebacks would otherwise show it as a local variable. So this decorator comes first, before
    those whose functions have the arguments of the call as local variables.
    """
    for name in ("renew_delegation_token", "expire_delegation_token"):
        setattr(owner, name, _hide_hmac(getattr(owner, name)))
    return owner


def _hide_hmac(call: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    @functools.wraps(call)
    async def hidden(self: Any, token: Any, *args: Any, **named: Any) -> int:
        from aiokclient.admin.security.delegation_tokens import DelegationToken  # a late module

        is_token = isinstance(token, DelegationToken)
        token = token if is_token else Secret(token)
        return await call(self, token, *args, **named)

    return hidden
