"""The `repr` of a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.config.kinds import written
from aiokclient.types import State

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.client import ClientConfig

NAMES = 5
"""The maximum number of names that a repr shows."""


def described(
    name: str,
    config: ClientConfig,
    state: State,
    cluster: ClusterClient | None,
    subject: Mapping[str, str | None],
) -> str:
    """Return the repr of a client. `name` is its class, and `subject` its topics or its group."""
    known = {} if cluster is None else cluster.list_addresses()
    parts = {
        "client_id": repr(config.client_id),
        "state": state.name,
        **subject,
        "brokers": some(known.values() or map(written, config.initial_servers)),
    }
    shown = " ".join(f"{key}={value}" for key, value in parts.items() if value is not None)
    return f"<{name} {shown}>"


def some(names: Iterable[object]) -> str | None:
    """Return the first few names separated by commas, or None if there are none."""
    found = [str(name) for name in names]
    shown = ", ".join(found[:NAMES])
    if len(found) > NAMES:
        shown += f" and {len(found) - NAMES} more"
    return repr(shown) if found else None
