"""The admin calls about access: ACLs, SCRAM credentials, delegation tokens, and client quotas."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
