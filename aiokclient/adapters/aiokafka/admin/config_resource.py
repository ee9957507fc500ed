"""The owner of configs: a topic or a broker."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The kind of an owner of configs."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or a broker, with the configs that are to be described or altered.

    None for `configs` means all of them.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs
