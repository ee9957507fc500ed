"""The options of an admin client."""

from __future__ import annotations

from aiokclient.config.client import ClientConfig, ClientOptions


class AdminConfig(ClientConfig):
    """The options of an admin client. It has only the options that every client has."""


class AdminOptions(ClientOptions, total=False):
    """The keyword options of an admin client; `AdminConfig` checks them."""
