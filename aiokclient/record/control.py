"""Control batches, which brokers write for clients. Each has one record.

The key is a version and a type, two 16-bit integers. At the end of a transaction, the value is a
version and the epoch of the transaction coordinator (KIP-98).
"""

from __future__ import annotations

import struct
from enum import IntEnum

from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.record.header import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER_SIZE,
    seal_crc,
    with_offset,
)

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records that Kafka 4.4 knows."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_batch(
    kind: int,
    value: bytes,
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return a batch with one control record at `base_offset`; `timestamp` is in milliseconds."""
    builder = RecordBatchBuilder(limit=HEADER_SIZE)
    builder.append(timestamp, _KEY.pack(0, kind), value)
    batch = bytearray(builder.seal(producer_id, producer_epoch, -1, transactional=transactional))
    batch[ATTRIBUTES_AT + 1] |= CONTROL
    seal_crc(batch)
    return with_offset(batch, base_offset, leader_epoch)


def end_transaction_batch(
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    *,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the marker that ends the transaction of a producer in one partition."""
    return control_batch(
        ControlType.COMMIT if committed else ControlType.ABORT,
        _END_TRANSACTION.pack(0, coordinator_epoch),
        timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
