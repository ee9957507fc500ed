"""Schemas as applications give them: an object of the registry's class, a text, or an object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    from aiokclient.schema.schema import Schema


def to_schema(given: Schema | str | Mapping[str, Any] | None, schema_type: str) -> Schema | None:
    """Return a schema of the type. Raises ConfigError for a schema of another type."""
    from aiokclient.schema.schema import Schema

    if given is None:
        return None
    if isinstance(given, Schema):
        if given.type != schema_type:
            raise ConfigError(f"The schema is of type {given.type}, not {schema_type}.")
        return given
    if not isinstance(given, str):
        given = json.dumps(given, separators=(",", ":"))
    return Schema(given, schema_type)
