"""The schema registry of a command, from its arguments, the environment, files, and the profile.

    [profiles.prod.registry]
    url = "https://registry:8081"
    basic_auth_user_info = { command = ["pass", "registry/prod"] }

The entries of a profile are the options of Confluent's clients, without their prefix and with
underscores. In the environment they begin with AIOKCLIENT_SCHEMA_REGISTRY_, and in properties files
and -X with `schema.registry.`. What is typed wins over files, those over the environment, and that
over the profile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.cli.connection import PREFIX, dotted, merge_sources
from aiokclient.cli.grammar import Option, WrongUseError
from aiokclient.cli.librdkafka import is_secret
from aiokclient.cli.profiles import Profile, read_profile, read_secret

if TYPE_CHECKING:
    import argparse

    from aiokclient.schema import SchemaRegistry

REGISTRY = Option(
    ("--registry",),
    "The schema registry. Users, passwords, and tokens belong in a file, the environment, or a "
    "profile.",
    "URL[,...]",
)
"""The option of commands that need a schema registry."""
NAME = "schema.registry."
VARIABLE = f"{PREFIX}SCHEMA_REGISTRY_"
URL = f"{NAME}url"
AUTH = ("basic.auth.", "bearer.auth.")
"""The beginnings of options that may be without the prefix of the registry in a properties file."""


def make_registry(given: argparse.Namespace) -> SchemaRegistry:
    """Return the registry of a command. It belongs to the event loop that uses it first.

    `--timeout` bounds each request. Raises WrongUseError if no registry is known, and ConfigError
    for options that are not allowed.
    """
    options = registry_properties(given, read_profile(given.profile))
    if URL not in options:
        raise WrongUseError(
            "No schema registry is known. Give --registry URL, set the environment variable "
            f"{VARIABLE}URL, or add a table registry with url to the profile."
        )
    from aiokclient.schema import SchemaRegistry

    more = {} if given.timeout is None else {"timeout": given.timeout}
    try:
        return SchemaRegistry.from_properties(options, **more)
    except ImportError as error:
        raise WrongUseError(str(error)) from error


def has_registry(given: argparse.Namespace) -> bool:
    """Return whether a schema registry is known to a command."""
    return URL in registry_properties(given, read_profile(given.profile))


def registry_properties(given: argparse.Namespace, profile: Profile) -> dict[str, Any]:
    """Return the options of the registry by their full names."""
    options = {
        NAME + dotted(name): _text_of(profile.name, name, value)
        for name, value in profile.registry.items()
    }
    for name, value in os.environ.items():
        if value and name.startswith(VARIABLE):
            options[NAME + dotted(name.removeprefix(VARIABLE).lower())] = value
    for path in given.config:
        options |= _of_registry(merge_sources([path]))
    for text in given.X:
        name, _, value = text.partition("=")
        typed = _of_registry({dotted(name): value})
        if typed and (is_secret(name) or name.endswith("user.info")):
            variable = VARIABLE + dotted(name).removeprefix(NAME).replace(".", "_").upper()
            raise WrongUseError(
                f"-X {name}: A secret is no argument, because others can see it. Give it by "
                f"--config, by the environment variable {variable}, or in a profile."
            )
        options |= typed
    if given.registry is not None:
        if "@" in given.registry:
            raise WrongUseError(
                "--registry: A user and a password are no arguments, because others can see them. "
                f"Set the environment variable {VARIABLE}BASIC_AUTH_USER_INFO, or use a profile."
            )
        options[URL] = given.registry
    return options


def _of_registry(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name if name.startswith(NAME) else NAME + name: value
        for name, value in properties.items()
        if name.startswith((NAME, *AUTH))
    }


def _text_of(profile: str, option: str, value: Any) -> str:
    if isinstance(value, dict):
        return read_secret(f"registry.{option} of the profile {profile}", value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
