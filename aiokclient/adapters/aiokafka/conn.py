"""The name by which programs import the provider of tokens. The adapter has no connections."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider

__all__ = ["AbstractTokenProvider"]
