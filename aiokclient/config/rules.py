"""Rules about several options: which combinations are allowed, and what they mean."""

from __future__ import annotations

from typing import Any

from aiokclient.config.codecs import Compression
from aiokclient.errors import ConfigError

LEVELS = {codec.title: codec.traits.levels for codec in Compression if codec.traits.levels}


def written_levels() -> str:
    """Return the levels of all codecs, for the text of the option `compression_level`."""
    return ", ".join(
        f"{levels.start} to {levels.stop - 1} for {codec}" for codec, levels in LEVELS.items()
    )


RESPONSE_OVERHEAD = 512
"""Bytes of a response to a fetch that `fetch_max_bytes` does not count, if it is a small one."""


def settle(config: Any, name: str, value: Any) -> None:
    """Set an option of a frozen configuration while it is created."""
    object.__setattr__(config, name, value)


def order_backoffs(config: Any) -> None:
    """Increase each maximum delay that is below its initial delay to that delay, as Kafka does."""
    for low, high in (
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ):
        if getattr(config, low) > getattr(config, high):
            settle(config, high, getattr(config, low))


def check_delivery_timeout(config: Any) -> None:
    """Raise ConfigError if a record would expire before its batch has lingered."""
    if config.delivery_timeout_ms < config.linger_ms:
        raise ConfigError(
            f"delivery_timeout_ms: {config.delivery_timeout_ms} is below linger_ms "
            f"({config.linger_ms}), so records would expire before they are sent."
        )


def check_fetch_size(config: Any) -> None:
    """Raise ConfigError if a response to a fetch could be larger than the client accepts."""
    limit = config.receive_message_max_bytes - RESPONSE_OVERHEAD
    if config.fetch_max_bytes > limit:
        raise ConfigError(
            f"fetch_max_bytes: {config.fetch_max_bytes} is too large for "
            f"receive_message_max_bytes ({config.receive_message_max_bytes}), because the client "
            f"refuses larger responses. Set fetch_max_bytes to {limit} or less, or raise "
            "receive_message_max_bytes."
        )


def settle_idempotence(config: Any) -> None:
    """Enable idempotence by default if the other options allow it.

    Raises ConfigError if the options contradict each other.
    """
    if config.transactional_id == "":
        raise ConfigError(
            "transactional_id: It is empty. Name the producer, or leave it out if the producer "
            "needs no transactions."
        )
    reasons = []
    if config.acks != -1:
        reasons.append("acks='all'")
    if config.max_in_flight_requests_per_connection > 5:
        reasons.append("max_in_flight_requests_per_connection of at most 5")
    if config.transactional_id is not None and config.enable_idempotence is False:
        raise ConfigError(
            "enable_idempotence: It cannot be False, because transactional_id needs it."
        )
    given: Any = config.enable_idempotence
    if reasons and (given or config.transactional_id is not None):
        raise ConfigError(f"enable_idempotence: It needs {' and '.join(reasons)}.")
    if given is None:
        settle(config, "enable_idempotence", not reasons)


def settle_compression(config: Any) -> None:
    """Set the compression level of the codec. Raises ConfigError if the codec does not have it."""
    codec, level = config.compression_type, config.compression_level
    if level is None:
        level = getattr(config, f"compression_{codec}_level", None)
    elif codec not in LEVELS:
        raise ConfigError(f"compression_level: The codec {codec} has no levels.")
    if level is not None and codec == "gzip" and level == -1:
        level = None
    if level is not None and level not in LEVELS[codec]:
        levels = LEVELS[codec]
        raise ConfigError(
            f"compression_level: {level} is not a level of {codec}. It must be "
            f"from {levels.start} to {levels.stop - 1}."
        )
    settle(config, "compression_level", level)
