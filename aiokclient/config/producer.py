"""The options of a producer."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.kinds import (
    BOOLEAN,
    FUNCTION,
    MILLISECONDS,
    OPTIONAL_BOOLEAN,
    OPTIONAL_TEXT,
    POSITIVE,
    SERIALIZER,
    Choice,
    Integer,
    option,
)
from aiokclient.config.problems import suggest, together
from aiokclient.config.rules import (
    check_delivery_timeout,
    settle_compression,
    settle_idempotence,
)
from aiokclient.types import Serializer

__all__ = ["ProducerConfig", "ProducerOptions"]

K = TypeVar("K")
V = TypeVar("V")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """A producer's options. `acks` is -1 for "all".

    `enable_idempotence` left out means: where acks and the requests in flight allow it.
    `compression_level` left out means the codec's own, or Kafka's option for this codec.
    """

    acks: int = option(Choice(((-1, ("all", -1, "-1")), (0, (0, "0")), (1, (1, "1")))), -1)
    enable_idempotence: bool = option(OPTIONAL_BOOLEAN, None)  # type: ignore[assignment]  # set on init
    max_in_flight_requests_per_connection: int = option(POSITIVE, 5)
    delivery_timeout_ms: int = option(POSITIVE, 120_000)
    linger_ms: int = option(MILLISECONDS, 5)
    batch_size: int = option(MILLISECONDS, 131_072)
    max_request_size: int = option(POSITIVE, 1_048_576)
    max_block_ms: int = option(MILLISECONDS, 60_000)
    buffer_memory: int = option(Integer(1, 2**63 - 1), 33_554_432)
    compression_type: str = option(Choice.of("none", "gzip", "snappy", "lz4", "zstd"), "none")
    compression_level: int | None = option(Integer(-131_072, 22, optional=True), None)
    compression_gzip_level: int | None = option(Integer(-1, 9, optional=True), None)
    compression_lz4_level: int | None = option(Integer(1, 17, optional=True), None)
    compression_zstd_level: int | None = option(Integer(-131_072, 22, optional=True), None)
    partitioner: Any = option(FUNCTION, None)
    partitioner_ignore_keys: bool = option(BOOLEAN, False)
    partitioner_adaptive_partitioning_enable: bool = option(BOOLEAN, True)
    partitioner_availability_timeout_ms: int = option(MILLISECONDS, 0)
    transactional_id: str | None = option(OPTIONAL_TEXT, None)
    transaction_timeout_ms: int = option(POSITIVE, 60_000)
    key_serializer: Any = option(SERIALIZER, None)
    value_serializer: Any = option(SERIALIZER, None)
    on_delivery_error: Callable[[Any], object] | None = option(FUNCTION, None)

    def _check_together(self) -> None:
        together(
            self,
            ClientConfig._check_together,
            settle_idempotence,
            settle_compression,
            check_delivery_timeout,
        )


suggest(ProducerConfig.kind(), ProducerConfig.__dataclass_fields__)


class ProducerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a producer; `ProducerConfig` checks them."""

    acks: int | str
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    linger_ms: int
    batch_size: int
    max_request_size: int
    max_block_ms: int
    buffer_memory: int
    compression_type: str
    compression_level: int | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    partitioner: Any
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: Callable[[K], bytes] | Serializer[K] | None
    value_serializer: Callable[[V], bytes] | Serializer[V] | None
    on_delivery_error: Callable[[Any], object] | None
